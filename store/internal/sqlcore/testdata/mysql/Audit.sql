INSERT INTO `postrider_audit` (at, done_by, what, how_many, detail) VALUES (TIMESTAMPDIFF(MICROSECOND, '1970-01-01 00:00:00', UTC_TIMESTAMP(6)), ?1, ?2, ?3, ?4)
