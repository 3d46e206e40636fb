UPDATE "postrider_dead" d SET later_out = d.later_out + u.more
  FROM unnest($1::integer[], $2::bigint[], $3::bytea[], $4::bigint[], $5::bigint[], $6::bigint[]) AS u(lane, key_hash, ordering_key, start, below, more)
 WHERE d.lane = u.lane AND d.key_hash IS NOT NULL AND d.key_hash = u.key_hash AND d.pos >= u.start AND d.pos < u.below AND d.ordering_key = u.ordering_key
