SELECT i.consumer, i.message_id FROM "postrider_inbox" i
 WHERE (i.consumer, i.message_id) IN (SELECT /*+ UNNEST CARDINALITY(x 10) */ x.consumer, x.message_id FROM (SELECT e.consumer, e.message_id FROM "postrider_inbox" e
    WHERE e.expires_at <= ?1 ORDER BY e.expires_at FETCH FIRST 32 ROWS ONLY) x)
   AND i.expires_at <= ?1 FOR UPDATE SKIP LOCKED
