SELECT CASE WHEN ended = 0 AND expires_at > (extract(epoch FROM clock_timestamp()) * 1000000)::bigint THEN 1 ELSE 0 END FROM "postrider_relays" WHERE owner = $1::uuid FOR SHARE
