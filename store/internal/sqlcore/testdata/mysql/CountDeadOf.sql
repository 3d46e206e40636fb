SELECT count(*) FROM `postrider_dead` WHERE transport = ?1
