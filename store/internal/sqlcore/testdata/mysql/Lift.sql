> SELECT `postrider_parked_keys`.lane, `postrider_parked_keys`.ordering_key FROM (SELECT j.lane AS lane, j.key_hash AS key_hash, UNHEX(j.ordering_key) AS ordering_key, j.ord FROM JSON_TABLE(?1, '$[*]' COLUMNS (ord FOR ORDINALITY, lane BIGINT PATH '$[0]', key_hash BIGINT PATH '$[1]', ordering_key VARCHAR(2048) CHARACTER SET ascii PATH '$[2]')) j) u STRAIGHT_JOIN `postrider_parked_keys` FORCE INDEX (PRIMARY)
    ON `postrider_parked_keys`.lane = u.lane AND `postrider_parked_keys`.key_hash = u.key_hash AND `postrider_parked_keys`.ordering_key = u.ordering_key
 WHERE `postrider_parked_keys`.unparking <> 0
   AND NOT EXISTS (SELECT 1 FROM `postrider_deferred` o FORCE INDEX (`postrider_deferred_parked`) WHERE o.lane = u.lane AND o.key_hash = u.key_hash AND o.ordering_key = u.ordering_key AND o.due_at IS NULL) FOR UPDATE
;; DELETE `postrider_parked_keys` FROM (SELECT j.lane AS lane, j.key_hash AS key_hash, UNHEX(j.ordering_key) AS ordering_key, j.ord FROM JSON_TABLE(?1, '$[*]' COLUMNS (ord FOR ORDINALITY, lane BIGINT PATH '$[0]', key_hash BIGINT PATH '$[1]', ordering_key VARCHAR(2048) CHARACTER SET ascii PATH '$[2]')) j) u STRAIGHT_JOIN `postrider_parked_keys` FORCE INDEX (PRIMARY)
    ON `postrider_parked_keys`.lane = u.lane AND `postrider_parked_keys`.key_hash = u.key_hash AND `postrider_parked_keys`.ordering_key = u.ordering_key
 WHERE `postrider_parked_keys`.unparking <> 0
   AND NOT EXISTS (SELECT 1 FROM `postrider_deferred` o FORCE INDEX (`postrider_deferred_parked`) WHERE o.lane = u.lane AND o.key_hash = u.key_hash AND o.ordering_key = u.ordering_key AND o.due_at IS NULL)
