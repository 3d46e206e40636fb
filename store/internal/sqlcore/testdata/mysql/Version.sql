SELECT CONCAT(VERSION(), ' ', @@version_comment, CASE WHEN DATABASE() IS NULL THEN ' (no database)' ELSE '' END)
