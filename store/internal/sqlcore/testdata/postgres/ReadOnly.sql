SELECT CASE WHEN pg_catalog.pg_is_in_recovery() THEN 1 ELSE 0 END
