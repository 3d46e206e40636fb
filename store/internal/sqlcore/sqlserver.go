package sqlcore

import (
	"cmp"
	"context"
	"encoding/hex"
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/schema"
)

// SQL Server 2019 and later, and Azure SQL, with READ_COMMITTED_SNAPSHOT ON.
//
// A text is a batch that the driver runs through sp_executesql, so what it sets
// holds for the batch alone. Rows without a hint come from the versions of the
// statement's begin, and wait for nobody. What decides is read under a lock: shared
// and held to the commit with REPEATABLEREAD, exclusive with XLOCK, for an update
// lock would pass beside a shared one, and rows of messages, which nobody locks
// shared, with UPDLOCK. READPAST stands where locked rows are to be passed over,
// with READCOMMITTEDLOCK, without which it is refused where versions are read.
// Lists drive the joins, in their order, so that rows are locked in that order.
//
// The driver declares text and bytes with their length, and each length is a plan
// of its own: lists are filled up to one of a few lengths, and messages go over as
// a list of numbers, text and places in one value of bytes. A NULL is declared
// nvarchar, which no column of bytes takes: where one may come it is converted.
var SQLServer = &sqlServerDialect

var sqlServerDialect = Dialect{
	name:   "SQL Server",
	engine: schema.SQLServer,
	begin:  "SET TRANSACTION ISOLATION LEVEL READ COMMITTED; " + settingsSQLServer + "; BEGIN TRANSACTION",
	// The session is ready.
	beginPinned: "BEGIN TRANSACTION",
	// XACT_ABORT ends a transaction at its first error.
	rollback: "IF @@TRANCOUNT > 0 ROLLBACK TRANSACTION",
	rows:     func(columns int) RowWriter { return newOpenRows(columns) },
	id:       func(id outbox.ID) any { return id[:] },
	// Both in one number: lanes follow one another.
	lanes:     func(first, n int64) any { return first<<32 | n },
	compared:  func(text string) any { return []byte(text) },
	literal:   func(text string) string { return "0x" + hex.EncodeToString([]byte(text)) },
	valueRows: 1000,
	length:    "DATALENGTH",
	here:      "SCHEMA_NAME()",
	missing:   func(err error) bool { n := numberSQLServer(err); return n == 208 || n == 2812 },
	stale:     func(err error) bool { n := numberSQLServer(err); return n == 207 || n == 308 },
	busy: func(err error) bool {
		// Deadlock, lock timeout, a conflict of snapshots, and a deadlock or timeout at
		// an application's lock.
		return slices.Contains([]int{1205, 1222, 3960, lockRefused}, numberSQLServer(err))
	},
	taken: func(err error) bool { n := numberSQLServer(err); return n == 2627 || n == 2601 },
	refused: func(err error) bool {
		// Values, constraints, rights, databases that only read, and triggers, which
		// raise 50000 and what is above it.
		n := numberSQLServer(err)
		return n >= 50000 && n != lockRefused || slices.Contains([]int{
			220, 229, 230, 262, 515, 547, 2601, 2627, 2628, 3609, 3906, 3908, 8115, 8152,
		}, n)
	},
	denied:  func(err error) bool { return slices.Contains([]int{229, 230, 262}, numberSQLServer(err)) },
	hides:   true,
	prepare: prepareSQLServer,
	least:   map[string][]int{"SQL Server": {15}, "Azure SQL": {12}},
	fits:    fitsSQLServer,
	macros: []string{
		"{now}", "DATEDIFF_BIG(MICROSECOND, '19700101', SYSUTCDATETIME())",
		"{id:1}", "CONVERT(BINARY(16), @p1)", "{id:2}", "CONVERT(BINARY(16), @p2)", "{id:3}", "CONVERT(BINARY(16), @p3)",
		// Of their columns' types: of a wider one a column is compared as if it were a
		// range, and what stands behind it in the index is no part of the search.
		"{lane:1}", "CONVERT(INT, @p1)", "{lane:2}", "CONVERT(INT, @p2)", "{lane:3}", "CONVERT(INT, @p3)",
		"{unparked}", `(o.key_hash IS NULL OR NOT EXISTS (SELECT 1 FROM {parked_keys} k WHERE k.lane = o.lane AND k.key_hash = o.key_hash AND k.ordering_key = o.ordering_key))`,
		"{ready}", `(o.deliver_at IS NULL OR o.deliver_at <= @p1) AND (o.retry_at IS NULL OR o.retry_at <= @p1)
    AND (o.claim_until IS NULL OR o.claim_until <= @p1) AND {unparked}`,
		"{due}", `o.due_at <= @p1 AND (o.claim_until IS NULL OR o.claim_until <= @p1) AND {unparked}`,
		"{claimed}", "CASE WHEN o.claim_until IS NULL THEN 0 WHEN o.claim_until > {now} THEN 1 ELSE 0 END",
		"{due_at}", "CASE WHEN COALESCE(o.deliver_at, 0) > COALESCE(o.retry_at, 0) THEN COALESCE(o.deliver_at, 0) ELSE COALESCE(o.retry_at, 0) END",
		"{state}", "attempts, last_error, first_failed_at, retry_at, claim_token, claim_until",
		"{o.state}", "o.attempts, o.last_error, o.first_failed_at, o.retry_at, o.claim_token, o.claim_until",
		"{d.state}", "d.attempts, d.last_error, d.first_failed_at, d.retry_at, d.claim_token, d.claim_until",
		// What was compiled for an empty table serves a full one.
		"{plan}", "OPTION (FORCE ORDER, LOOP JOIN, KEEPFIXED PLAN, MAXDOP 1)",
		// Sought, and not scanned, which pays in a table of few rows: a scan would lock all
		// that it passes.
		"{shared}", "WITH (REPEATABLEREAD, ROWLOCK, FORCESEEK)", "{exclusive}", "WITH (XLOCK, ROWLOCK, FORCESEEK)",
		"{one row}", "WITH (ROWLOCK, FORCESEEK)",
		"{exclusive unless locked}", "WITH (XLOCK, ROWLOCK, READPAST, READCOMMITTEDLOCK, FORCESEEK)",
		"{lock deferred unless locked}", "WITH (UPDLOCK, ROWLOCK, READPAST, READCOMMITTEDLOCK, INDEX ({=deferred_pk}), FORCESEEK)",
		"{by id}", "WITH (INDEX ({=outbox_id}))", "{range by id}", "WITH (INDEX ({=outbox_id}), FORCESEEK)", "{deferred by id}", "WITH (INDEX ({=deferred_pk}), FORCESEEK)",
		"{range by pos}", "WITH (INDEX ({=outbox_pk}), FORCESEEK)", "{range by key}", "WITH (INDEX ({=outbox_key}), FORCESEEK)",
		"{row by pos}", "WITH (ROWLOCK, INDEX ({=outbox_pk}), FORCESEEK)", "{row by id}", "WITH (ROWLOCK, INDEX ({=outbox_id}), FORCESEEK)",
		"{lock by pos}", "WITH (UPDLOCK, ROWLOCK, INDEX ({=outbox_pk}), FORCESEEK)", "{lock by id}", "WITH (UPDLOCK, ROWLOCK, INDEX ({=outbox_id}), FORCESEEK)",
		"{row deferred}", "WITH (ROWLOCK, INDEX ({=deferred_pk}), FORCESEEK)", "{lock deferred}", "WITH (UPDLOCK, ROWLOCK, INDEX ({=deferred_pk}), FORCESEEK)",
		"{row dead}", "WITH (ROWLOCK, INDEX ({=dead_pk}), FORCESEEK)", "{lock dead}", "WITH (UPDLOCK, ROWLOCK, INDEX ({=dead_pk}), FORCESEEK)",
		"{drawn}", "NEXT VALUE FOR {outbox_pos} OVER",
		// Whatever the user's session is set to: an error ends its statement alone, and
		// rows are counted.
		"{quietly}", "SET XACT_ABORT OFF;\nSET NOCOUNT OFF;\n",
		"{many}", messagesSQLServer(),
		"{u:rights}", rowsSQLServer(1, "u", "$place", "$privilege"),
		"{u:lane}", rowsSQLServer(1, "u", "lane"),
		"{u:lane+ordered}", rowsSQLServer(1, "u", "lane", "is_ordered"),
		"{u:lane+epoch}", rowsSQLServer(1, "u", "lane", "epoch"),
		"{u:lane+pos}", rowsSQLServer(1, "u", "lane", "pos"),
		"{u:lane+id}", rowsSQLServer(1, "u", "lane", "#id"),
		"{u:id}", rowsSQLServer(1, "u", "#id"),
		"{u:row}", rowsSQLServer(1, "u", "lane", "pos", "#id"),
		"{u:range}", rowsSQLServer(1, "u", "lane", "after", "upto"),
		"{u:ranges}", rowsSQLServer(1, "u", "lane", "after", "upto", "key_hash", "#ordering_key"),
		"{u:prev}", rowsSQLServer(1, "u", "nr", "lane", "key_hash", "after"),
		"{u:above}", rowsSQLServer(1, "u", "lane", "key_hash", "above", "after"),
		"{u:fail}", rowsSQLServer(1, "u", "lane", "#id", "attempts", "$reason", "retry_at"),
		"{u:bury}", rowsSQLServer(1, "u", "lane", "#id", "attempts", "$reason"),
		"{u:owner}", rowsSQLServer(1, "u", "#owner"),
		"{u:config}", rowsSQLServer(1, "u", "lane", "config"),
		"{u:defer}", rowsSQLServer(1, "u", "lane", "#id", "aside"),
		"{u:key}", rowsSQLServer(1, "u", "lane", "key_hash", "#ordering_key"),
		"{u:park}", rowsSQLServer(1, "u", "lane", "key_hash", "#ordering_key", "$why"),
		"{u:lettered}", rowsSQLServer(1, "u", "lane", "key_hash"),
		"{u:letters}", rowsSQLServer(1, "u", "lane", "key_hash", "below"),
		"{u:later}", rowsSQLServer(1, "u", "lane", "key_hash", "#ordering_key", "start", "below", "more"),
		"{m:mark}", rowsSQLServer(2, "m", "lane", "epoch", "pos"),
		"{pending}", `SELECT p.lane FROM {lanes} l WITH (READCOMMITTED) JOIN {outbox} p WITH (READCOMMITTED, INDEX ({=outbox_id}), FORCESEEK) ON p.lane = l.lane AND p.id = u.id
                WHERE l.lane BETWEEN {first lane} AND {last lane}`,
		"{pending deferred}", `SELECT p.lane FROM {lanes} l WITH (READCOMMITTED) JOIN {deferred} p WITH (READCOMMITTED, INDEX ({=deferred_pk}), FORCESEEK) ON p.lane = l.lane AND p.id = u.id
                WHERE l.lane BETWEEN {first lane} AND {last lane}`,
		// So large a literal is a decimal, which would divide with a fraction.
		"{first lane}", "CONVERT(INT, @p2 / CONVERT(BIGINT, 4294967296))",
		"{last lane}", "CONVERT(INT, @p2 / CONVERT(BIGINT, 4294967296) + @p2 % CONVERT(BIGINT, 4294967296) - 1)",
		"{live}", "SELECT 1 FROM {relays} r WHERE r.owner = c.owner AND r.ended = 0 AND r.expires_at > {now}",
		"{live owner}", "SELECT 1 FROM {relays} r WHERE r.owner = l.owner AND r.ended = 0 AND r.expires_at > {now}",
		"{claim}", "WHERE o.claim_token = @p3 AND o.claim_until > @p1",
		// One message at a time, whether there is a record of it or not: a lock on what
		// is not there would be on a range, and stop other messages.
		"{message lock}", `SET XACT_ABORT OFF;
SET NOCOUNT ON;
DECLARE @locked INT, @message NVARCHAR(255) = CONCAT(N'postrider ', CONVERT(NVARCHAR(64), HASHBYTES('SHA2_256', CONVERT(BINARY(4), OBJECT_ID({'inbox})) + @p1 + 0x00 + @p2), 2));
EXEC @locked = sp_getapplock @Resource = @message, @LockMode = 'Exclusive', @LockOwner = 'Transaction';
{locked}
SET NOCOUNT OFF;
`,
		"{locked}", "IF @locked < 0\nBEGIN;\nTHROW " + strconv.Itoa(lockRefused) + ", N'postrider: the lock was not granted: deadlock or timeout', 1;\nEND;",
		"{message}", "consumer = @p1 AND message_id = @p2",
		"{dead columns}", `pos, lane, id, key_hash, ordering_key, transport, message_type, destination, content_type, headers,
    CASE WHEN @p3 <> 0 THEN NULL ELSE body END,
    deliver_at, created_at, tenant, envelope, ce_source, ce_subject, ce_time, ce_dataschema, ce_extensions,
    correlation_id, causation_id, traceparent, tracestate, attempts, last_error, NULL, first_failed_at, reason, died_at, later_out`,
		"{after}", "died_at >= @p1 AND (died_at > @p1 OR id > {id:2})",
	},
	texts: textsSQLServer,
}

// lockRefused is the number that a text throws when it was not given a lock of an
// application.
const lockRefused = 51205

// settingsSQLServer are those of every transaction of the store's own: none is left
// open where a statement was cancelled, rows are counted, and tables are made whose
// bytes keep zeros at their end.
const settingsSQLServer = "SET XACT_ABORT ON; SET NOCOUNT OFF; SET IMPLICIT_TRANSACTIONS OFF; SET ANSI_PADDING ON"

// prepareSQLServer readies a connection for good: it is thrown away in the end.
func prepareSQLServer(ctx context.Context, c Querier, purpose string) (func(context.Context) error, error) {
	wait := 30000
	if purpose == "lease" {
		wait = 5000
	}
	_, err := c.Exec(ctx, fmt.Sprintf("SET TRANSACTION ISOLATION LEVEL READ COMMITTED; SET LOCK_TIMEOUT %d; %s", wait, settingsSQLServer))
	return nil, err
}

// fitsSQLServer reads the end of the version text.
func fitsSQLServer(version string) error {
	value := func(name string) int {
		_, rest, _ := strings.Cut(version, ", "+name+" ")
		list := numbersIn(rest)
		if len(list) == 0 {
			return 0
		}
		return list[0]
	}
	switch {
	case value("compatibility level") < 130:
		return fmt.Errorf("%w: the database is at %.200q, the least that dialect SQL Server needs is compatibility level 130: ALTER DATABASE CURRENT SET COMPATIBILITY_LEVEL = 150", outbox.ErrSchema, version)
	case value("READ_COMMITTED_SNAPSHOT") != 1:
		return fmt.Errorf("%w: the database reads under locks, so that relays and producers would wait for each other: ALTER DATABASE CURRENT SET READ_COMMITTED_SNAPSHOT ON WITH ROLLBACK IMMEDIATE", outbox.ErrSchema)
	}
	return nil
}

// numberSQLServer is the number of the server's error, 0 if it is none.
func numberSQLServer(err error) int {
	var e interface{ SQLErrorNumber() int32 }
	if errors.As(err, &e) {
		return int(e.SQLErrorNumber())
	}
	return 0
}

// kindsSQLServer are the types of a list's columns that are not BIGINT.
var kindsSQLServer = map[string]string{"lane": "INT", "attempts": "INT", "is_ordered": "SMALLINT", "aside": "SMALLINT", "envelope": "SMALLINT", "place": "NVARCHAR(128)", "privilege": "NVARCHAR(60)"}

// rowsSQLServer is the table of a JSON list of rows in an argument, with their
// number from 1 in ord, which stands first in each. A name that starts with # is of
// bytes, in hexadecimal, one with $ of text.
func rowsSQLServer(argument int, alias string, columns ...string) string {
	out, in := "j.ord", "ord INT '$[0]'"
	for i, name := range columns {
		expr, kind := "", kindsSQLServer[name]
		switch name[0] {
		case '#':
			name = name[1:]
			expr, kind = "CONVERT(VARBINARY(1024), j."+name+", 2)", "VARCHAR(2048)"
			if name == "id" || name == "owner" {
				expr, kind = "CONVERT(BINARY(16), j."+name+", 2)", "CHAR(32)"
			}
		case '$':
			name = name[1:]
			kind = cmp.Or(kindsSQLServer[name], "NVARCHAR(MAX)")
		}
		if kind == "" {
			kind = "BIGINT"
		}
		if expr == "" {
			expr = "j." + name
		}
		out += ", " + expr + " AS " + name
		in += fmt.Sprintf(", %s %s '$[%d]'", name, kind, i+1)
	}
	return fmt.Sprintf("(SELECT %s FROM OPENJSON(@p%d) WITH (%s) j) %s", out, argument, in, alias)
}

// messagesSQLServer is the table u of messages: bytes are places in the second
// argument, from 1, and lengths.
func messagesSQLServer() string {
	kinds := map[string]string{
		"lane": "INT", "envelope": "SMALLINT", "key_hash": "BIGINT", "deliver_at": "BIGINT", "created_at": "BIGINT", "ce_time": "BIGINT",
		"destination": "NVARCHAR(1024)", "ce_source": "NVARCHAR(1024)", "ce_subject": "NVARCHAR(1024)", "ce_dataschema": "NVARCHAR(1024)", "tracestate": "NVARCHAR(MAX)",
	}
	out, in, at := "j.ord", "ord INT '$[0]'", 1
	for _, name := range messageColumns {
		switch name {
		case "ordering_key", "transport", "headers", "body", "ce_extensions":
			out += fmt.Sprintf(", SUBSTRING(@p2, j.%s_at, j.%[1]s_size) AS %[1]s", name)
			in += fmt.Sprintf(", %s_at INT '$[%d]', %[1]s_size INT '$[%[3]d]'", name, at, at+1)
			at++
		case "id":
			out += ", CONVERT(BINARY(16), j.id, 2) AS id"
			in += fmt.Sprintf(", id CHAR(32) '$[%d]'", at)
		default:
			kind := kinds[name]
			if kind == "" {
				kind = "NVARCHAR(255)"
			}
			out += ", j." + name
			in += fmt.Sprintf(", %s %s '$[%d]'", name, kind, at)
		}
		at++
	}
	return "(SELECT " + out + " FROM OPENJSON(@p1) WITH (" + in + ") j) u"
}

// openRows is a table parameter: a list of rows, each with its number first. Of
// messages the bytes are beside it.
type openRows struct {
	columns int
	at      int
	row     int
	buf     []byte
	aside   bool
	data    []byte
}

func newOpenRows(columns int) *openRows {
	return &openRows{columns: columns, aside: columns == len(messageColumns)}
}

func (r *openRows) Grow(rows int) { r.buf = slices.Grow(r.buf, 8*r.columns*rows) }

func (r *openRows) next() {
	if r.at == 0 {
		between := "],["
		if r.row++; r.row == 1 {
			between = "[["
		}
		r.buf = strconv.AppendInt(append(r.buf, between...), int64(r.row), 10)
	}
	r.buf = append(r.buf, ',')
	r.at = (r.at + 1) % r.columns
}

func (r *openRows) Int(v int64) {
	r.next()
	r.buf = strconv.AppendInt(r.buf, v, 10)
}

func (r *openRows) Null() {
	r.next()
	r.buf = append(r.buf, "null"...)
}

func (r *openRows) Hint(uint64) { r.Null() }

func (r *openRows) Text(s string) {
	r.next()
	r.buf = appendJSON(r.buf, s)
}

func (r *openRows) Name(s string) {
	if r.aside {
		r.Bytes([]byte(s))
		return
	}
	r.Text(s)
}

func (r *openRows) ID(id outbox.ID) {
	r.next()
	r.buf = append(hex.AppendEncode(append(r.buf, '"'), id[:]), '"')
}

func (r *openRows) Bytes(v []byte) {
	switch {
	case r.aside && v == nil:
		r.next()
		r.buf = append(r.buf, "null,null"...)
	case r.aside:
		r.next()
		r.buf = strconv.AppendInt(r.buf, int64(len(r.data)+1), 10)
		r.buf = strconv.AppendInt(append(r.buf, ','), int64(len(v)), 10)
		r.data = append(r.data, v...)
	case v == nil:
		r.Null()
	default:
		r.next()
		r.buf = append(hex.AppendEncode(append(r.buf, '"'), v), '"')
	}
}

// Args fills the list up with spaces and the bytes with zeros, to a length of which
// there are few.
func (r *openRows) Args() []any {
	list := "[]"
	if r.row > 0 {
		list = string(append(r.buf, "]]"...))
	}
	if n := room(unitsUTF16(list), 4000); n > 0 {
		list += strings.Repeat(" ", n)
	}
	if !r.aside {
		return []any{list}
	}
	if n := room(len(r.data), 8000); n > 0 {
		r.data = append(r.data, make([]byte, n)...)
	}
	return []any{list, r.data}
}

// room is how much is to be added to n: up to the next power of two, from 128 on,
// and to most at most. What is longer is declared without a length.
func room(n, most int) int {
	if n > most {
		return 0
	}
	to := 128
	for to < n {
		to *= 2
	}
	return min(to, most) - n
}

// unitsUTF16 is how long a text is for the server.
func unitsUTF16(s string) (n int) {
	for _, c := range s {
		if n++; c > 0xffff {
			n++
		}
	}
	return n
}
