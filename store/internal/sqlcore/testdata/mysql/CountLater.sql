UPDATE ([[
  UNION ALL |
  (SELECT o.id, #6 AS more FROM `postrider_dead` o FORCE INDEX (`postrider_dead_key`) WHERE o.lane = #1 AND o.key_hash = #2 AND o.pos >= #4 AND o.pos < #5 AND o.ordering_key = #3)]]) x
  STRAIGHT_JOIN `postrider_dead` d FORCE INDEX (PRIMARY) ON d.id = x.id
   SET d.later_out = d.later_out + x.more
