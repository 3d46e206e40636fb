INSERT INTO "postrider_audit" (at, done_by, what, how_many, detail) VALUES (CAST((julianday('now') - 2440587.5) * 86400000000.0 AS INTEGER), ?1, ?2, ?3, ?4)
