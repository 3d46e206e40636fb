SELECT u.id FROM unnest($1::uuid[]) AS u(id) WHERE "postrider_pending_id"($2::integer[], ARRAY[u.id]) IS NOT NULL
