SELECT count(*) FROM "postrider_deferred" WHERE lane BETWEEN $1::integer AND $2::integer
