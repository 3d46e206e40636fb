BEGIN
  FOR attempt IN 1 .. 3 LOOP
    BEGIN
      INSERT INTO "postrider_inbox" (consumer, message_id, processed_at, expires_at) VALUES (?1, ?2, ?3, ?4);
      EXIT;
    EXCEPTION WHEN DUP_VAL_ON_INDEX THEN
      UPDATE "postrider_inbox" SET processed_at = ?3, expires_at = ?4, token = NULL WHERE consumer = ?1 AND message_id = ?2;
      EXIT WHEN SQL%ROWCOUNT > 0;
    END;
  END LOOP;
END;
