SELECT lane FROM "postrider_lanes" WHERE owner = ?1
