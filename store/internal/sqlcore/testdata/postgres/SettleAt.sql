DELETE FROM "postrider_outbox" o
 WHERE o.ctid = ANY ($4::tid[])
   AND o.pos = ($2::bigint[])[width_bucket(o.pos, $2::bigint[])]
   AND o.lane = ($1::integer[])[width_bucket(o.pos, $2::bigint[])]
   AND o.id = ($3::uuid[])[width_bucket(o.pos, $2::bigint[])] RETURNING o.id
