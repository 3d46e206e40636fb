DELETE /*+ INDEX(o (lane id)) */ FROM "postrider_deferred" o WHERE o.lane = #1 AND o.id = #2
