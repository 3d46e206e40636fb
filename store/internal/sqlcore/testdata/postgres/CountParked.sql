SELECT count(*) FROM "postrider_parked_keys" WHERE lane BETWEEN $1::integer AND $2::integer
