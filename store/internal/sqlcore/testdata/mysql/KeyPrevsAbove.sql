SELECT k.lane, k.key_hash, k.ordering_key, k.pos FROM `postrider_outbox` k FORCE INDEX (`postrider_outbox_key`)
 WHERE [[ OR |k.lane = #1 AND k.key_hash = #2 AND k.pos > #3 AND k.pos <= #4]]
