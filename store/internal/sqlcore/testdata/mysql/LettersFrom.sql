[[
UNION ALL |
(SELECT d.lane, d.key_hash, d.pos FROM `postrider_dead` d FORCE INDEX (`postrider_dead_key`) WHERE d.lane = #1 AND d.key_hash = #2 AND d.pos < #3 ORDER BY d.pos DESC LIMIT 1 OFFSET 1023)]]
