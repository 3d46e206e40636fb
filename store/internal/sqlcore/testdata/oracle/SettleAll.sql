DELETE /*+ INDEX(o (lane pos)) */ FROM "postrider_outbox" o WHERE o.lane = #1 AND o.pos = #2 AND o.id = #3
