DELETE `postrider_outbox` FROM `postrider_outbox` FORCE INDEX (PRIMARY) WHERE [[
   OR |(`postrider_outbox`.lane = #1 AND `postrider_outbox`.id IN (#3..) AND `postrider_outbox`.id = ELT(FIELD(`postrider_outbox`.pos, #2..), #3..))]]
