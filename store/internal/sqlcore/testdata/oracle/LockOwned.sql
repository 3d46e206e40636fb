SELECT lane FROM "postrider_lanes" WHERE owner = ?1 ORDER BY lane FOR UPDATE
