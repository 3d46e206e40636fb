SELECT CASE WHEN CONCAT(@@global.read_only) IN ('0', 'OFF') THEN 0 ELSE 1 END
