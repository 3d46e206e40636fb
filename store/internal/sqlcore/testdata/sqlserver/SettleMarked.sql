SET XACT_ABORT ON;
SET NOCOUNT ON;
BEGIN TRANSACTION;
UPDATE k SET tried_to = m.pos
  FROM (SELECT j.ord, j.lane AS lane, j.epoch AS epoch, j.pos AS pos FROM OPENJSON(@p2) WITH (ord INT '$[0]', lane INT '$[1]', epoch BIGINT '$[2]', pos BIGINT '$[3]') j) m JOIN [postrider_lanes] l WITH (REPEATABLEREAD, ROWLOCK, FORCESEEK) ON l.lane = m.lane AND l.epoch = m.epoch AND l.owner = CONVERT(BINARY(16), @p3)
  JOIN [postrider_lane_marks] k WITH (ROWLOCK, FORCESEEK) ON k.lane = l.lane AND k.tried_to < m.pos
OPTION (FORCE ORDER, LOOP JOIN, KEEPFIXED PLAN, MAXDOP 1);
DELETE o OUTPUT deleted.id FROM (SELECT j.ord, j.lane AS lane, j.pos AS pos, CONVERT(BINARY(16), j.id, 2) AS id FROM OPENJSON(@p1) WITH (ord INT '$[0]', lane INT '$[1]', pos BIGINT '$[2]', id CHAR(32) '$[3]') j) u JOIN [postrider_outbox] o WITH (ROWLOCK, INDEX ([postrider_outbox_pk]), FORCESEEK) ON o.lane = u.lane AND o.pos = u.pos AND o.id = u.id
OPTION (FORCE ORDER, LOOP JOIN, KEEPFIXED PLAN, MAXDOP 1);
COMMIT TRANSACTION
