BEGIN
  FOR attempt IN 1 .. 3 LOOP
    BEGIN
      INSERT INTO "postrider_inbox" (consumer, message_id, processed_at, expires_at) VALUES (?1, ?2, ?3, ?4);
      EXIT;
    EXCEPTION WHEN DUP_VAL_ON_INDEX THEN
      UPDATE "postrider_inbox" SET repeats = CASE WHEN expires_at <= ?3 THEN 0 ELSE repeats + 1 END,
          processed_at = CASE WHEN expires_at <= ?3 THEN ?3 ELSE processed_at END,
          token = CASE WHEN expires_at <= ?3 THEN NULL ELSE token END,
          expires_at = CASE WHEN expires_at <= ?3 THEN TO_NUMBER(?4) ELSE expires_at END
       WHERE consumer = ?1 AND message_id = ?2;
      EXIT WHEN SQL%ROWCOUNT > 0;
    END;
  END LOOP;
END;
;; > SELECT 1 FROM "postrider_inbox" WHERE consumer = ?1 AND message_id = ?2 AND repeats = 0
