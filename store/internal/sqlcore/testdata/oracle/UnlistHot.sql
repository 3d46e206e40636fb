DELETE /*+ INDEX(o (lane id)) */ FROM "postrider_outbox" o WHERE o.lane = #1 AND o.id = #2
