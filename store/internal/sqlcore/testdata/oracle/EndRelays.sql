UPDATE "postrider_relays" SET ended = 1 WHERE owner = #1
