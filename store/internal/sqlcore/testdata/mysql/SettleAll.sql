DELETE `postrider_outbox` FROM `postrider_outbox` FORCE INDEX (`postrider_outbox_lane`) WHERE [[
   OR |(`postrider_outbox`.lane = #1 AND `postrider_outbox`.pos IN (#2..) AND `postrider_outbox`.id = ELT(FIELD(`postrider_outbox`.pos, #2..), #3..))]]
