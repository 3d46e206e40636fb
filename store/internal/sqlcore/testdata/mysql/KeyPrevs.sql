[[
UNION ALL |
(SELECT #1, x.key_hash, p.ordering_key, x.pos
  FROM (SELECT k.lane, k.key_hash, MAX(k.pos) AS pos FROM `postrider_outbox` k FORCE INDEX (`postrider_outbox_key`)
         WHERE k.lane = #2 AND k.key_hash IN (#3..) AND k.pos <= #4 GROUP BY k.lane, k.key_hash) x
  STRAIGHT_JOIN `postrider_outbox` p FORCE INDEX (`postrider_outbox_lane`) ON p.lane = x.lane AND p.pos = x.pos)]]
