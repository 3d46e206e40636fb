package sqlcore

import (
	"context"
	"encoding/hex"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/postrider/postrider/store/schema"
)

// Oracle 19c and later, in databases whose character set is AL32UTF8.
//
// The texts are scripts. What is written for many rows is one statement that the
// driver runs with arrays, row after row: so positions are drawn in the order of the
// arguments, and no plan depends on a list. What is looked up for many rows is a list
// in JSON, in parts of 4,000 bytes, for no longer string goes into an expression;
// hints keep the indexes in use, for the optimizer knows nothing of the list.
//
// Rows are not locked shared: who fences a lane keeps it from the others. A
// statement that locks has the limits and joins of its choice in a sub-select,
// where nothing is locked, and looks at its conditions once more.
//
// Values of any length stand alone in VALUES and SET, and last, where the server
// takes them. DUAL, and large objects beside UNION ALL and not UNION, are for
// versions before 23.
var Oracle = &oracleDialect

var oracleDialect = Dialect{
	name:         "Oracle",
	engine:       schema.Oracle,
	begin:        "SET TRANSACTION ISOLATION LEVEL READ COMMITTED",
	driverBegins: true,
	scripts:      true,
	mark:         ":",
	perLane:      true,
	ddlCommits:   true,
	savepoint:    true,
	valueRows:    1,
	length:       "DBMS_LOB.GETLENGTH",
	here:         "SYS_CONTEXT('USERENV', 'CURRENT_SCHEMA')",
	rows:         byteRows,
	id:           bytesOf,
	lanes:        func(first, n int64) any { return fmt.Sprintf("[%d,%d]", first, first+n-1) },
	compared:     func(s string) any { return []byte(s) },
	literal:      func(s string) string { return "HEXTORAW('" + hex.EncodeToString([]byte(s)) + "')" },

	missing: func(err error) bool { return codeOracle(err) == 942 },
	busy: func(err error) bool {
		// Serialization, deadlocks of rows and of the dictionary, locks of tables and
		// rows that were not to be had, and a snapshot that is too old.
		return slices.Contains([]int{8177, 60, 4020, 54, 4021, 30006, 1555}, codeOracle(err))
	},
	taken:  func(err error) bool { return codeOracle(err) == 1 },
	exists: func(err error) bool { c := codeOracle(err); return c == 955 || c == 1 },
	refused: func(err error) bool {
		// Values, constraints, triggers, policies, rights, quotas, and databases that
		// only read.
		c := codeOracle(err)
		return c >= 20000 && c <= 20999 || slices.Contains([]int{
			1, 1400, 1407, 1401, 1438, 12899, 2290, 2291, 2292, 1402, 4088, 4098, 28115, 1031, 41900, 1950, 1536, 1456, 16000,
		}, c)
	},
	denied:  func(err error) bool { c := codeOracle(err); return c == 1031 || c == 41900 },
	prepare: prepareOracle,
	least:   map[string][]int{"Oracle": {19}},
	fits: func(version string) error {
		if strings.HasSuffix(version, " AL32UTF8") {
			return nil
		}
		return invalid("the database's character set is not AL32UTF8 (%.120q): text of messages would be changed: use a database that has it", version)
	},
	macros: []string{
		"{now}", nowOracle,
		"{every_lane}", "(SELECT l.lane FROM {lanes} l)",
		"{unparked}", `(o.key_hash IS NULL OR NOT EXISTS (SELECT 1 FROM {parked_keys} k WHERE k.lane = o.lane AND k.key_hash = o.key_hash AND k.ordering_key = o.ordering_key))`,
		"{ready:1}", readyMySQL("?1"), "{due:1}", dueMySQL("?1"),
		"{ready:2}", readyMySQL("?2"), "{due:2}", dueMySQL("?2"), // where ?1 are the lanes
		"{columns}", columnsOracle,
		"{one}", valuesOracle("?"), "{many}", valuesOracle("#"),
		"{moved}", movedOracle(""), "{o.moved}", movedOracle("o."), "{d.moved}", movedOracle("d."),
		"{o.held}", "o.pos, " + movedOracle("o.") + ", o.attempts, o.last_error, o.retry_at, o.claim_until",
		"{state}", "attempts, last_error, first_failed_at, retry_at, claim_token, claim_until",
		"{o.state}", "o.attempts, o.last_error, o.first_failed_at, o.retry_at, o.claim_token, o.claim_until",
		"{d.state}", "d.attempts, d.last_error, d.first_failed_at, d.retry_at, d.claim_token, d.claim_until",
		"{o.row}", rowOracle("o.body"),
		"{o.lean row}", rowOracle("CASE WHEN {length} > {large} THEN NULL ELSE o.body END"),
		"{withheld}", "CASE WHEN {length} > {large} THEN {length} END",
		"{length}", "DBMS_LOB.GETLENGTH(o.body)", "{large}", strconv.Itoa(largeBody),
		"{dead row}", strings.NewReplacer("o.body_empty *", "CASE WHEN ?3 <> 0 THEN 0 ELSE o.body_empty END *", "o.retry_at", "CAST(NULL AS NUMBER) AS retry_at").
			Replace(rowOracle("CASE WHEN ?3 <> 0 THEN NULL ELSE o.body END")) + ", o.first_failed_at, o.reason, o.died_at, o.later_out",
		"{claimed}", "CASE WHEN o.claim_until IS NULL THEN 0 WHEN o.claim_until > {now} THEN 1 ELSE 0 END AS claimed",
		"{due_at}", "GREATEST(COALESCE(o.deliver_at, 0), COALESCE(o.retry_at, 0))",
		// The hash XOR the lane is the code of a key that was seen.
		"{prev}", `CASE WHEN o.key_hash IS NULL OR u.after_pos = 0 THEN NULL ELSE
   (SELECT MAX(p.pos) FROM {outbox} p WHERE p.lane = o.lane AND p.key_hash = o.key_hash AND p.ordering_key = o.ordering_key
       AND p.pos <= u.after_pos AND p.pos > COALESCE(f.pos, 0)) END AS key_prev`,
		"{f}", rowsOracle("f", 2, "code", "lane", "pos") + ` ON f.lane = o.lane AND f.code = o.key_hash + o.lane - 2 * BITAND(o.key_hash, o.lane)`,
		"{r}", `JSON_TABLE(CAST(?2 AS VARCHAR2(4000 BYTE)), '$' COLUMNS (first_lane NUMBER PATH '$[0]', last_lane NUMBER PATH '$[1]')) r`,
		"{u:lane}", rowsOracle("u", 1, "lane"),
		"{u:lane+epoch}", rowsOracle("u", 1, "lane", "epoch"),
		"{u:lane+id}", rowsOracle("u", 1, "lane", "#id"),
		"{u:id}", rowsOracle("u", 1, "#id"),
		"{u:row}", rowsOracle("u", 1, "lane", "pos", "#id"),
		"{u:owner}", rowsOracle("u", 1, "#owner"),
		"{u:key}", rowsOracle("u", 1, "lane", "key_hash", "#ordering_key"),
		"{u:range}", rowsOracle("u", 1, "lane", "after_pos", "upto_pos"),
		"{u:key range}", rowsOracle("u", 1, "lane", "after_pos", "upto_pos", "key_hash", "#ordering_key"),
		"{named}", "(o.lane, o.pos, o.id) IN (SELECT /*+ CARDINALITY(u 10) */ u.lane, u.pos, u.id FROM {u:row})",
		"{placed}", "(o.lane, o.id) IN (SELECT /*+ CARDINALITY(u 10) */ u.lane, u.id FROM {u:lane+id})",
		"{erase}", "DELETE /*+ INDEX(o (lane pos)) */ FROM {outbox} o WHERE o.lane = #1 AND o.pos = #2 AND o.id = #3",
		"{lifted}", `k.unparking <> 0
   AND NOT EXISTS (SELECT 1 FROM {deferred} o WHERE o.lane = k.lane AND o.key_hash = k.key_hash AND o.ordering_key = k.ordering_key AND o.due_at IS NULL)`,
	},
	texts: textsOracle,
}

// nowOracle is the server's clock. All calls of SYSTIMESTAMP in a statement return
// the time at which it began.
const nowOracle = `FLOOR(EXTRACT(DAY FROM (SYS_EXTRACT_UTC(SYSTIMESTAMP) - TIMESTAMP '1970-01-01 00:00:00')) * 86400000000 + EXTRACT(HOUR FROM SYS_EXTRACT_UTC(SYSTIMESTAMP)) * 3600000000 + EXTRACT(MINUTE FROM SYS_EXTRACT_UTC(SYSTIMESTAMP)) * 60000000 + EXTRACT(SECOND FROM SYS_EXTRACT_UTC(SYSTIMESTAMP)) * 1000000)`

// columnsOracle are a message's columns in an INSERT: those that may be long last,
// behind which the server takes nothing of more than 4,000 bytes.
const columnsOracle = `lane, id, key_hash, ordering_key, transport, message_type, destination, content_type, deliver_at, created_at, tenant, envelope,
    ce_source, ce_subject, ce_time, ce_dataschema, correlation_id, causation_id, traceparent, body_empty, tracestate, headers, ce_extensions, body`

// valuesOracle are the values of columnsOracle, by their places in messageColumns.
func valuesOracle(sign string) string {
	list := strings.Fields("1 2 3 4$ 5 6 7 8 11 12 13 14 15 16 17 18 20 21 22 10! 23 9$ 19$ 10$")
	return sign + strings.Join(list, ", "+sign)
}

// movedOracle are the columns that a message takes from one table to another.
func movedOracle(alias string) string {
	return alias + strings.Join(messageColumns, ", "+alias) + ", " + alias + "body_empty"
}

// rowOracle is {o.row} with another body. Each column has a name, for a query that
// limits its rows is made a sub-select.
func rowOracle(body string) string {
	row := "o.pos, o." + strings.Join(messageColumns, ", o.") + ", o.attempts, o.last_error, o.retry_at"
	if body != "o.body" {
		row = strings.Replace(row, "o.body", body+" AS body", 1)
	}
	return strings.Replace(row, "o.envelope", fmt.Sprintf("o.envelope + o.body_empty * %d AS envelope", emptyBody), 1)
}

// rowsOracle is a table of the rows of a list in JSON, with their numbers from 1 in
// ord. A name that starts with # is of bytes.
func rowsOracle(name string, arg int, columns ...string) string {
	var out, in strings.Builder
	for i, c := range columns {
		plain, bytes := strings.CutPrefix(c, "#")
		kind, expr := "NUMBER", "j."+plain
		switch {
		case plain == "ordering_key":
			kind = "VARCHAR2(2048)"
		case bytes:
			kind = "VARCHAR2(32)"
		}
		if bytes {
			expr = "HEXTORAW(j." + plain + ") AS " + plain
		}
		out.WriteString(", " + expr)
		in.WriteString(", " + plain + " " + kind + " PATH '$[" + strconv.Itoa(i+1) + "]'")
	}
	return fmt.Sprintf("([< UNION ALL |SELECT j.ord%s FROM JSON_TABLE(CAST(?%d AS VARCHAR2(4000 BYTE)), '$[*]' COLUMNS (ord NUMBER PATH '$[0]'%s)) j>]) %s", out.String(), arg, in.String(), name)
}

// codeOracle is the number of the server's error, 0 if it is none. Drivers agree on
// its text alone, "ORA-00060: deadlock detected while waiting for resource". What
// goes wrong inside a block stands behind where it was.
func codeOracle(err error) int {
	if err == nil {
		return 0
	}
	for rest := err.Error(); ; {
		_, after, ok := strings.Cut(rest, "ORA-")
		if !ok {
			return 0
		}
		digits := after[:len(after)-len(strings.TrimLeft(after, "0123456789"))]
		n, _ := strconv.Atoi(digits)
		if n != 0 && n != 6550 && n != 6512 {
			return n
		}
		rest = after
	}
}

// prepareOracle readies a connection for good: what was set before is not known,
// and the connection is thrown away in the end.
func prepareOracle(ctx context.Context, c Querier, purpose string) (func(context.Context) error, error) {
	list := []string{"ALTER SESSION SET ISOLATION_LEVEL = READ COMMITTED"}
	if purpose == "migrate" {
		list = append(list, "ALTER SESSION SET DDL_LOCK_TIMEOUT = 60")
	}
	for _, text := range list {
		if _, err := c.Exec(ctx, text); err != nil {
			return nil, err
		}
	}
	return nil, nil
}

// signsOracle are the tables, each with a column that hardly another has.
func signsOracle() string {
	var parts []string
	for _, t := range [...][2]string{
		{"outbox", "KEY_HASH"}, {"deferred", "DUE_AT"}, {"dead", "LATER_OUT"}, {"routes", "FIRST_LANE"}, {"lanes", "IS_ORDERED"},
		{"lane_marks", "CONFIG_SEEN"}, {"relays", "EXPIRES_AT"}, {"parked_keys", "UNPARKING"}, {"audit", "HOW_MANY"}, {"inbox", "REPEATS"},
		{"meta", "VALUE"},
	} {
		parts = append(parts, fmt.Sprintf("SELECT {~%s} AS place, '%s' AS sign FROM DUAL", t[0], t[1]))
	}
	return strings.Join(parts, " UNION ALL ")
}

// rightsOracle are statements that change nothing, and take the rights of a relay.
func rightsOracle() string {
	var list []string
	for _, t := range [][2]string{{"outbox", "attempts"}, {"deferred", "attempts"}, {"dead", "later_out"}, {"relays", "ended"}, {"parked_keys", "unparking"}} {
		list = append(list,
			fmt.Sprintf("INSERT INTO {%s} SELECT * FROM {%[1]s} WHERE 1 = 0", t[0]),
			fmt.Sprintf("UPDATE {%s} SET %s = 0 WHERE 1 = 0", t[0], t[1]),
			fmt.Sprintf("DELETE FROM {%s} WHERE 1 = 0", t[0]))
	}
	list = append(list, "UPDATE {lanes} SET epoch = 0 WHERE 1 = 0", "UPDATE {lane_marks} SET tried_to = 0 WHERE 1 = 0")
	for _, t := range []string{"lanes", "lane_marks", "routes", "meta"} {
		list = append(list, fmt.Sprintf("if SELECT COUNT(*) FROM {%s} WHERE 1 = 0", t))
	}
	return strings.Join(list, "\n;; ")
}
