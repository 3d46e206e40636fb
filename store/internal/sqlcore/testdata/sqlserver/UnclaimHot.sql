UPDATE [postrider_outbox] SET claim_token = NULL, claim_until = NULL WHERE lane = CONVERT(INT, @p1) AND id = CONVERT(BINARY(16), @p2)
