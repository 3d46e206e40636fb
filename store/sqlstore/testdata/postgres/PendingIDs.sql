SELECT u.id FROM unnest($1::uuid[]) AS u(id)
 WHERE EXISTS (SELECT 1 FROM "postrider_outbox" p WHERE p.lane = ANY ($2::integer[]) AND p.id = u.id)
    OR EXISTS (SELECT 1 FROM "postrider_deferred" p WHERE p.lane = ANY ($2::integer[]) AND p.id = u.id)
