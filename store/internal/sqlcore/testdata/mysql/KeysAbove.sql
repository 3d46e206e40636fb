SELECT k.lane, k.key_hash, k.pos FROM `postrider_outbox` k FORCE INDEX (`postrider_outbox_key`)
 WHERE [[ OR |k.lane = #2 AND k.pos > #3 AND k.pos <= #4 AND k.key_hash IN (#5..)]]
