WITH l AS MATERIALIZED (SELECT lane FROM "postrider_lanes" WHERE lane = ANY ($1::integer[]) ORDER BY lane FOR UPDATE)
UPDATE "postrider_lanes" SET config = config + 1 WHERE lane IN (SELECT lane FROM l)
