DELETE i FROM (SELECT UNHEX(j.consumer) AS consumer, UNHEX(j.message_id) AS message_id, j.ord FROM JSON_TABLE(?1, '$[*]' COLUMNS (ord FOR ORDINALITY, consumer VARCHAR(2048) CHARACTER SET ascii PATH '$[0]', message_id VARCHAR(2048) CHARACTER SET ascii PATH '$[1]')) j) u
  STRAIGHT_JOIN `postrider_inbox` i FORCE INDEX (PRIMARY) ON i.consumer = u.consumer AND i.message_id = u.message_id
