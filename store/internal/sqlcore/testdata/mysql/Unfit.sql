SELECT table_name, engine FROM information_schema.tables WHERE table_schema = DATABASE() AND engine <> 'InnoDB'
   AND table_name IN ('postrider_outbox', 'postrider_deferred', 'postrider_dead', 'postrider_routes', 'postrider_lanes', 'postrider_lane_marks', 'postrider_relays', 'postrider_parked_keys', 'postrider_audit', 'postrider_inbox', 'postrider_meta')
