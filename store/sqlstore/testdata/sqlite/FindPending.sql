SELECT lane FROM "postrider_outbox" WHERE lane IN (SELECT lane FROM "postrider_lanes") AND id = ?1
UNION ALL SELECT lane FROM "postrider_deferred" WHERE lane IN (SELECT lane FROM "postrider_lanes") AND id = ?1
