if SELECT COUNT(*) FROM "postrider_outbox" WHERE 1 = 0
;; INSERT INTO "postrider_outbox" (attempts) SELECT 0 FROM DUAL WHERE 1 = 0
;; UPDATE "postrider_outbox" SET attempts = 0 WHERE 1 = 0
;; DELETE FROM "postrider_outbox" WHERE 1 = 0
;; if SELECT COUNT(*) FROM "postrider_deferred" WHERE 1 = 0
;; INSERT INTO "postrider_deferred" (attempts) SELECT 0 FROM DUAL WHERE 1 = 0
;; UPDATE "postrider_deferred" SET attempts = 0 WHERE 1 = 0
;; DELETE FROM "postrider_deferred" WHERE 1 = 0
;; if SELECT COUNT(*) FROM "postrider_dead" WHERE 1 = 0
;; INSERT INTO "postrider_dead" (later_out) SELECT 0 FROM DUAL WHERE 1 = 0
;; UPDATE "postrider_dead" SET later_out = 0 WHERE 1 = 0
;; DELETE FROM "postrider_dead" WHERE 1 = 0
;; if SELECT COUNT(*) FROM "postrider_relays" WHERE 1 = 0
;; INSERT INTO "postrider_relays" (ended) SELECT 0 FROM DUAL WHERE 1 = 0
;; UPDATE "postrider_relays" SET ended = 0 WHERE 1 = 0
;; DELETE FROM "postrider_relays" WHERE 1 = 0
;; if SELECT COUNT(*) FROM "postrider_parked_keys" WHERE 1 = 0
;; INSERT INTO "postrider_parked_keys" (unparking) SELECT 0 FROM DUAL WHERE 1 = 0
;; UPDATE "postrider_parked_keys" SET unparking = 0 WHERE 1 = 0
;; DELETE FROM "postrider_parked_keys" WHERE 1 = 0
;; if SELECT COUNT(*) FROM "postrider_lanes" WHERE 1 = 0
;; UPDATE "postrider_lanes" SET epoch = 0 WHERE 1 = 0
;; if SELECT COUNT(*) FROM "postrider_lane_marks" WHERE 1 = 0
;; UPDATE "postrider_lane_marks" SET tried_to = 0 WHERE 1 = 0
;; if SELECT COUNT(*) FROM "postrider_routes" WHERE 1 = 0
;; if SELECT COUNT(*) FROM "postrider_meta" WHERE 1 = 0
;; if SELECT "postrider_outbox_pos".CURRVAL FROM DUAL WHERE 1 = 0
