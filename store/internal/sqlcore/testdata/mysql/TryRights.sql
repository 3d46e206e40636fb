EXPLAIN SELECT * FROM `postrider_outbox` WHERE 1 = 0
;; EXPLAIN INSERT INTO `postrider_outbox` (attempts) VALUES (0)
;; EXPLAIN UPDATE `postrider_outbox` SET attempts = 0 WHERE 1 = 0
;; EXPLAIN DELETE FROM `postrider_outbox` WHERE 1 = 0
;; EXPLAIN SELECT * FROM `postrider_deferred` WHERE 1 = 0
;; EXPLAIN INSERT INTO `postrider_deferred` (attempts) VALUES (0)
;; EXPLAIN UPDATE `postrider_deferred` SET attempts = 0 WHERE 1 = 0
;; EXPLAIN DELETE FROM `postrider_deferred` WHERE 1 = 0
;; EXPLAIN SELECT * FROM `postrider_dead` WHERE 1 = 0
;; EXPLAIN INSERT INTO `postrider_dead` (later_out) VALUES (0)
;; EXPLAIN UPDATE `postrider_dead` SET later_out = 0 WHERE 1 = 0
;; EXPLAIN DELETE FROM `postrider_dead` WHERE 1 = 0
;; EXPLAIN SELECT * FROM `postrider_relays` WHERE 1 = 0
;; EXPLAIN INSERT INTO `postrider_relays` (ended) VALUES (0)
;; EXPLAIN UPDATE `postrider_relays` SET ended = 0 WHERE 1 = 0
;; EXPLAIN DELETE FROM `postrider_relays` WHERE 1 = 0
;; EXPLAIN SELECT * FROM `postrider_parked_keys` WHERE 1 = 0
;; EXPLAIN INSERT INTO `postrider_parked_keys` (unparking) VALUES (0)
;; EXPLAIN UPDATE `postrider_parked_keys` SET unparking = 0 WHERE 1 = 0
;; EXPLAIN DELETE FROM `postrider_parked_keys` WHERE 1 = 0
;; EXPLAIN SELECT * FROM `postrider_lanes` WHERE 1 = 0
;; EXPLAIN UPDATE `postrider_lanes` SET epoch = 0 WHERE 1 = 0
;; EXPLAIN SELECT * FROM `postrider_lane_marks` WHERE 1 = 0
;; EXPLAIN UPDATE `postrider_lane_marks` SET tried_to = 0 WHERE 1 = 0
;; EXPLAIN SELECT * FROM `postrider_routes` WHERE 1 = 0
;; EXPLAIN SELECT * FROM `postrider_meta` WHERE 1 = 0
