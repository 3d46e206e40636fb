UPDATE /*+ INDEX(d (lane key_hash pos)) */ "postrider_dead" d SET d.later_out = d.later_out + #6
 WHERE d.lane = #1 AND d.key_hash = #2 AND d.ordering_key = #3 AND d.pos >= #4 AND d.pos < #5
