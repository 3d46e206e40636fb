DELETE o FROM `postrider_outbox` o FORCE INDEX (PRIMARY) WHERE [[
   OR |(o.lane = #1 AND o.pos IN (#2..) AND o.id = ELT(FIELD(o.pos, #2..), #3..))]]
