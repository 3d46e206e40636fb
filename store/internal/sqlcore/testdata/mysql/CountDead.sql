SELECT count(*) FROM `postrider_dead`
