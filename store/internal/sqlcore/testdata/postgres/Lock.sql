SELECT pg_advisory_xact_lock($1::bigint # hashtextextended(COALESCE(NULLIF('', ''),
  (SELECT n.nspname::text FROM pg_catalog.pg_class c JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace WHERE c.oid = to_regclass('"postrider_meta"')), current_schema()::text, ''), 0))
