SELECT CASE WHEN ended = 0 AND expires_at > CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER) THEN 1 ELSE 0 END FROM "postrider_relays" WHERE owner = ?1
