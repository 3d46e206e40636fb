SELECT count(*) FROM information_schema.schemata WHERE schema_name = ?1
