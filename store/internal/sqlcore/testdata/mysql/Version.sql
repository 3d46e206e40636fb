SELECT CONCAT_WS(' ', VERSION(), @@version_comment, CASE WHEN DATABASE() IS NULL THEN '(no schema)' WHEN DATABASE() IS NULL THEN '(no database)' END)
