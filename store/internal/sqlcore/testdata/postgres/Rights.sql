SELECT n.nspname::text, 'SCHEMA ' || quote_ident(n.nspname), 'USAGE', quote_ident(current_user)
  FROM pg_catalog.pg_namespace n WHERE NOT has_schema_privilege(n.oid, 'USAGE') AND (n.nspname = '' OR '' = '' AND to_regclass('"postrider_meta"') IS NULL
    AND n.nspname IN (SELECT CASE s.name WHEN '$user' THEN current_user ELSE s.name END
                        FROM (SELECT btrim(p.part, ' "') AS name FROM unnest(string_to_array(current_setting('search_path'), ',')) AS p(part)) s)
    AND EXISTS (SELECT 1 FROM pg_catalog.pg_class c WHERE c.relnamespace = n.oid AND c.relname = 'postrider_meta'))
UNION ALL
(SELECT u.place, CASE c.relkind WHEN 'S' THEN 'SEQUENCE ' ELSE '' END || c.oid::regclass::text, u.privilege, quote_ident(current_user)
  FROM unnest($1::text[], $2::text[]) WITH ORDINALITY AS u(place, privilege, ord)
  JOIN pg_catalog.pg_class c ON c.relname = u.place JOIN pg_catalog.pg_namespace n ON n.oid = c.relnamespace AND pg_catalog.pg_table_is_visible(c.oid)
 WHERE NOT CASE WHEN c.relkind = 'S' THEN has_sequence_privilege(c.oid, u.privilege)
                WHEN u.privilege = 'DELETE' THEN has_table_privilege(c.oid, u.privilege)
                ELSE has_any_column_privilege(c.oid, u.privilege) END
 ORDER BY u.ord)
