SELECT CASE WHEN CONCAT(@@global.read_only) IN ('0', 'OFF') AND @@global.innodb_read_only = 0 THEN 0 ELSE 1 END
