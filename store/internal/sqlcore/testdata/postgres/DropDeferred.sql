DELETE FROM "postrider_deferred" o USING unnest($1::integer[], $2::uuid[]) AS u(lane, id) WHERE o.lane = u.lane AND o.id = u.id
