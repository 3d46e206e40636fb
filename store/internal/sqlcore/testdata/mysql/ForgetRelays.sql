if SELECT 1 FROM `postrider_relays` g WHERE g.expires_at < ?1 AND NOT EXISTS (SELECT 1 FROM `postrider_lanes` l WHERE l.owner = g.owner) LIMIT 1
;; DELETE r FROM (SELECT DISTINCT g.owner FROM `postrider_relays` g WHERE g.expires_at < ?1 AND NOT EXISTS (SELECT 1 FROM `postrider_lanes` l WHERE l.owner = g.owner)) u STRAIGHT_JOIN `postrider_relays` r ON r.owner = u.owner
