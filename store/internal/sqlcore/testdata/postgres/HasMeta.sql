SELECT count(*) FROM pg_catalog.pg_class WHERE oid = to_regclass('"postrider_meta"')
