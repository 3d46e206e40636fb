SELECT lane FROM "postrider_lanes" WHERE owner = $1::uuid ORDER BY lane FOR UPDATE
