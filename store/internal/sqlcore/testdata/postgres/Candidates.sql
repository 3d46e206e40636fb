SELECT l.lane, l.owner, CASE WHEN r.owner IS NULL THEN 0 ELSE 1 END FROM "postrider_lanes" l LEFT JOIN "postrider_relays" r ON r.owner = l.owner
 WHERE l.lane BETWEEN $1::integer AND $2::integer
   AND (l.owner IS NULL OR r.owner IS NULL OR r.ended <> 0 OR r.expires_at <= (extract(epoch FROM clock_timestamp()) * 1000000)::bigint)
 ORDER BY l.lane LIMIT $3::integer FOR UPDATE OF l SKIP LOCKED
