INSERT INTO "postrider_lanes" (lane, is_ordered, route) SELECT u.lane, u.is_ordered, $3::text FROM unnest($1::integer[], $2::smallint[]) AS u(lane, is_ordered)
