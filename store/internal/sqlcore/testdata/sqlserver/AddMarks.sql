INSERT INTO [postrider_lane_marks] (lane) SELECT u.lane FROM (SELECT j.ord, j.lane AS lane FROM OPENJSON(@p1) WITH (ord INT '$[0]', lane INT '$[1]') j) u
