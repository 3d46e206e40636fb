DELETE FROM "postrider_dead" o USING unnest($1::uuid[]) AS u(id) WHERE o.id = u.id RETURNING o.later_out
