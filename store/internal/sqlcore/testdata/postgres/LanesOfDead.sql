SELECT d.lane FROM unnest($1::uuid[]) AS u(id) JOIN "postrider_dead" d ON d.id = u.id
