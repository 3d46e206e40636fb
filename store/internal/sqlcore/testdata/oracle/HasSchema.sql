SELECT COUNT(*) FROM all_users WHERE username = ?1
