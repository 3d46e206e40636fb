SELECT d.id, d.lane, d.transport, d.ordering_key, d.later_out FROM unnest($1::uuid[]) AS u(id) JOIN "postrider_dead" d ON d.id = u.id
 ORDER BY d.lane, d.pos, d.id FOR UPDATE OF d
