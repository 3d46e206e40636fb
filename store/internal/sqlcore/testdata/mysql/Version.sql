SELECT CONCAT(VERSION(), ' ', @@version_comment)
