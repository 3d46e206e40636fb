SELECT u.place, p.object, p.privilege, QUOTENAME(USER_NAME())
  FROM (SELECT j.ord, j.place AS place, j.privilege AS privilege FROM OPENJSON(@p1) WITH (ord INT '$[0]', place NVARCHAR(128) '$[1]', privilege NVARCHAR(60) '$[2]') j) u
 CROSS APPLY (SELECT CONCAT(QUOTENAME(COALESCE(OBJECT_SCHEMA_NAME(OBJECT_ID('[postrider_meta]')), SCHEMA_NAME())), '.', QUOTENAME(u.place)) AS object, CASE u.privilege WHEN 'USAGE' THEN 'UPDATE' ELSE u.privilege END AS privilege) p
 WHERE COALESCE(HAS_PERMS_BY_NAME(p.object, 'OBJECT', p.privilege), 0) = 0
 ORDER BY u.ord
