package sqlcore

import (
	"cmp"
	"context"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"time"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/schema"
)

// Dialect is everything in which one database engine differs from another:
// statement texts, the encoding of their arguments, the meaning of its errors.
type Dialect struct {
	name   string
	engine schema.Engine
	texts  texts
	macros []string // pairs for strings.NewReplacer
	begin  string   // begins a transaction that may write
	// beginPinned does so on a connection that prepare has readied; "" is begin.
	beginPinned string
	// driverBegins: the driver has to be told that a transaction begins, or it commits
	// each statement. begin then runs first in it, and on a pinned connection
	// beginPinned, if it is not "".
	driverBegins bool
	// beginRead begins a read on a connection of the pool, whose settings are
	// not the store's; "" where a read needs none.
	beginRead string
	// rollback ends a transaction that the engine may have ended; "" is ROLLBACK.
	rollback string

	scripts bool // the texts are scripts
	// mark stands before an argument's number in what is made of a script, such as
	// ":"; "" marks an argument with a ? alone.
	mark    string
	perLane bool // a read of many lanes takes them as its table parameter
	// ddlCommits: a statement that changes the schema commits, so tables are made
	// outside of transactions, on a connection that is readied like a relay's.
	ddlCommits bool

	// hides: the catalogue shows a role only the tables that it has a right on.
	hides bool

	// rows makes a table parameter of so many columns: the first arguments of a
	// statement.
	rows func(columns int) RowWriter
	// named are the rows of some settlements as u(lane, pos, id); nil where it
	// is made with rows.
	named func(list []outbox.Settlement, which []int) []any
	// span are the arguments of SettleSpan for rows that lie close together,
	// ordered by position; nil where there is no such statement.
	span func(list []outbox.Settlement, which []int) []any
	// id is an id as an argument of its own, lanes those of a route.
	id    func(outbox.ID) any
	lanes func(first, n int64) any
	// compared is compared text as an argument of its own: a route, a consumer, the id
	// of a consumed message; nil leaves it a string. See RowWriter.Name.
	compared func(string) any
	// literal is the same in a script of DDL; nil is a string's literal.
	literal func(string) string
	// savepoint: an INSERT of many rows that fails leaves some of them.
	savepoint bool
	// valueRows is how many rows an INSERT takes as VALUES; 0 is any number.
	valueRows int

	length string // the function that counts bytes; "" is octet_length
	// here is an expression for the schema of tables without one; "" is DATABASE().
	here string

	missing func(error) bool // a table or schema does not exist
	// lacking is what a server was built without, and how to have it, if that is the
	// error; it may be nil.
	lacking func(error) string
	// stale: the tables are there, and not those of this program: an index or a column
	// is missing. nil where such an error says no more than that a statement is wrong.
	stale func(error) bool
	busy  func(error) bool // nothing happened; try again soon
	// busyTx is what a user's transaction that is busy was begun without.
	busyTx string
	// held: a wait for a row that another transaction has locked came to its end;
	// busy as well. nil where producers lock no rows of others.
	held    func(error) bool
	taken   func(error) bool // a key of the row is there already; needed where QueueOne is
	exists  func(error) bool // what is to be created is there already; nil where scripts ask
	refused func(error) bool // the statement, by a constraint, a trigger or a missing right
	denied  func(error) bool // for the lack of a right
	// tooLarge: its arguments are more than the server takes; nil where nothing is.
	tooLarge func(error) bool

	// prepare readies a connection of its own for the relay; undo puts it back
	// into its old state, and is nil if that cannot be done: the connection is
	// then discarded.
	prepare func(ctx context.Context, c Querier, purpose string) (undo func(context.Context) error, err error)
	inOrder bool // one writer at a time: positions become visible in order
	// least names the first versions that will do, by what their version texts
	// contain; "" is any other.
	least map[string][]int
	// fits judges what else a version text says of the server; it may be nil.
	fits func(version string) error
	// ready asks the server and the database for what no version text tells; it may be
	// nil.
	ready func(ctx context.Context, c Querier) error
	// beforeMigrate runs outside of a transaction; it may be nil.
	beforeMigrate func(ctx context.Context, c Querier) error
}

// String returns the engine's name.
func (d *Dialect) String() string { return d.name }

var dialects = []*Dialect{PostgreSQL, SQLite, MySQL, Oracle, SQLServer}

// RowWriter collects the rows of a table parameter, value by value. Text and
// bytes are borrowed until the statement has run.
type RowWriter interface {
	// Grow makes room for so many rows; a hint.
	Grow(rows int)
	Int(v int64)
	Text(s string)
	Name(s string)  // text that the database compares, byte by byte
	Bytes(b []byte) // nil is NULL
	ID(id outbox.ID)
	Hint(h uint64) // of outbox.LaneRow
	Null()
	// Args ends the parameter.
	Args() []any
}

// nullText writes NULL for "".
func nullText(w RowWriter, s string) {
	if s == "" {
		w.Null()
		return
	}
	w.Text(s)
}

// limited is a statement text for each of outbox.LaneLimits.
type limited [len(outbox.LaneLimits)]string

// at is the text whose limit is the smallest that is not below n.
func (l *limited) at(n int) (text string, limit int) {
	for i, limit := range outbox.LaneLimits {
		if limit >= n || i == len(outbox.LaneLimits)-1 {
			return l[i], limit
		}
	}
	return l[0], 0
}

// texts are all statements. A table parameter u stands first; after it the
// other arguments in the order given here. Fields of type limited have a
// literal {LIMIT}, so that no plan depends on a parameter.
type texts struct {
	// Schema.
	Version    string
	HasMeta    string
	Absent     string // the tables that are not there
	ReadOnly   string // 1 where the server only reads; "" where there are no replicas
	Rights     string // u(place, right): those that are missing, as place, object, right, role; "" where errors name them
	TryRights  string // statements that fail where a relay lacks a right, one for each, and do nothing; "" where Rights tells
	Whom       string // the role, and the schema of tables without one, as a GRANT takes them; "" where there are none
	Unfit      string // tables of a kind that will not do, and their kind; "" where there is one kind
	Foreign    string // tables that have our names and not our columns; "" where creating one fails then
	HasSchema  string // name; "" where there are no schemas
	Where      string // the tables' schema; "" where nobody is woken
	Lock       string // number; "" where beginning the transaction locks
	Unlock     string // number; "" where the lock ends with the transaction
	Meta       string
	Routes     string
	LockRoutes string // "" where the migration's lock is held
	AddRoute   string // name, first, ordered, unordered
	AddLanes   string // u(lane, is_ordered), route
	AddMarks   string // u(lane)
	Now        string

	// Enlist. "" where a statement that fails takes nothing else with it: then ids
	// are looked for before, and the rows are queued, or deferred without lanes.
	EnlistOne  string // the message's columns, lanes of its route
	EnlistMany string // u(the message's columns), lanes of the route
	QueueOne   string // of an id that is fresh, the message's columns; "" where nothing is queued, or one like many
	QueueMany  string // the same, u(the message's columns)
	DeferOne   string
	DeferMany  string
	UnlistHot  string // u(lane, id)
	PendingIDs string // u(id), lanes

	// The contract.
	ReadLane        limited // now, lane, after
	ReadUnordered   limited // now, after; u(lane) before them where reads are per lane
	FindPending     string  // id
	LockLane        string  // lane
	LockRelay       string  // owner
	ClaimHot        string  // now, lane, id, token, expires
	ClaimDeferred   string
	RenewHot        string // now, id, token, expires
	RenewDeferred   string
	DoneHot         string // now, id, token
	DoneDeferred    string
	ClaimedHot      string // now, id, token: lane, pos, attempts, keyed
	ClaimedDeferred string
	UnclaimHot      string // lane, id
	UnclaimDeferred string
	CountHot        string // now, first lane, last lane
	CountDeferred   string
	Oldest          string // now; u(lane) before it where reads are per lane

	// Leases.
	LiveRelays   string
	HeldLanes    string // owner
	LockLanes    string // u(lane, epoch), owner
	LockOwned    string // owner
	Candidates   string // first, last, limit
	LockOwner    string // owner
	LockOwners   string // u(owner)
	Owners       string // u(owner)
	AddRelay     string // owner, expires, routes, ended
	RenewRelay   string // owner, expires, routes, ended
	EndRelays    string // u(owner)
	ReleaseLanes string // u(lane), owner
	TakeLanes    string // u(lane), owner
	Leases       string // owner
	ForgetRelays string // expired before

	// Lane rows.
	Fence string // u(lane, epoch), owner
	// Where commits come out of order also f(code, lane, pos), the keys seen. The
	// last column is the size of a body that is NULL because it is too large.
	ReadRanges  limited // u(lane, after, upto)
	ReadKeys    limited // u(lane, after, upto, key_hash, key)
	SweepRanges limited // u(lane, after, upto)
	BodyPart    string  // lane, pos, id, first byte, bytes
	// The last rows of keys at or below the cursor; "" where reads tell. Above is of
	// keys that are seen up to a position; "" where that spares nothing.
	KeyPrevs      string // u(read, lane, key_hash, after), by reads
	KeysAbove     string // u(group, lane, above, after, key_hash): of more than asked, lane, key_hash and pos; "" where KeyPrevsAbove costs no more
	KeyPrevsAbove string // u(read, lane, key_hash, above, after)
	// By hints, where the engine has them; else empty.
	SettleAt       string // u(lane, pos, id, hint), in the order of positions
	SettleMarkedAt string // the same u, m(lane, epoch, pos), owner
	Settle         string // u(lane, pos, id); returns ids
	SettleSpan     string // a span; "" where rows are not kept by position
	SettleAll      string // u(lane, pos, id), by lanes; "" where Settle is one statement
	SettleKeys     string // u(lane, pos, id); returns ids, key hashes and keys
	Lettered       string // u(lane, key_hash): those that have letters
	LettersFrom    string // u(lane, key_hash, below): lane, key_hash and position of the 1,024th letter, where there are so many
	CountLater     string // u(lane, key_hash, key, from, below, more)
	SettleMarked   string // u(lane, pos, id), m(lane, epoch, pos), owner; "" if it takes a transaction
	FindHot        string // u(lane, pos, id)
	FindDeferred   string // u(lane, pos, id)
	DropDeferred   string // u(lane, id)
	FailHot        string // u(lane, id, attempts, reason, retry_at)
	FailDeferred   string
	Defer          string // u(lane, id, aside)
	BuryHot        string // u(lane, id, attempts, reason)
	BuryDeferred   string
	DropDead       string  // u(id)
	Marks          string  // u(lane, pos)
	Due            limited // u(lane), rows
	Promote        string  // u(lane, id), ordered as given
	NextDue        string  // u(lane)
	NextClaimed    string  // u(lane)

	// Parking.
	Park        string // u(lane, key_hash, key, why), by
	Unpark      string // lane, key_hash, key
	Lift        string // u(lane, key_hash, key)
	Parked      string
	ParkedRows  limited // u(lane, key_hash, key), rows
	AsideRows   limited // u(lane, key_hash, key), rows
	Return      string  // u(lane, id)
	SeenConfig  string  // u(lane, config)
	RaiseConfig string  // u(lane)
	CountAside  string  // first, last
	CountParked string  // first, last
	Audit       string  // by, what, how many, detail
	LaneOwners  string
	ListDead    limited // after time, after id, without body
	ListDeadOf  limited // after time, after id, without body, route
	CountDead   string
	CountDeadOf string // route
	LanesOfDead string // u(id)
	LockDead    string // u(id)
	Replay      string // u(id)
	Confirmed   string // u(lane); how many are not

	// Inbox.
	Reserve    string  // consumer, message id, processed, expires
	Processed  string  // now, consumer, message id
	MarkInbox  string  // consumer, message id, processed, expires
	PurgeInbox limited // now
	// Of keys that PurgeInbox returns, which then deletes nothing; else "".
	DropInbox     string // u(consumer, message_id), now
	ClaimInbox    string // consumer, message id, now, lease's end, token
	InboxToken    string // consumer, message id
	RenewInbox    string // consumer, message id, now, lease's end, token
	CompleteInbox string // consumer, message id, processed, expires, token
	ReleaseInbox  string // consumer, message id, token
}

// messageColumns are the columns of a message, in the order in which Enlist
// writes them.
var messageColumns = []string{
	"lane", "id", "key_hash", "ordering_key", "transport", "message_type", "destination", "content_type", "headers", "body",
	"deliver_at", "created_at", "tenant", "envelope", "ce_source", "ce_subject", "ce_time", "ce_dataschema", "ce_extensions",
	"correlation_id", "causation_id", "traceparent", "tracestate",
}

// expand puts names and macros into every text.
func (d *Dialect) expand(n schema.Names) *texts {
	pairs := append([]string{}, d.macros...)
	for _, alias := range []string{"", "o.", "u.", "d.", "inserted."} {
		cols := alias + strings.Join(messageColumns, ", "+alias)
		pairs = append(pairs, "{"+alias+"msg}", cols,
			"{"+alias+"row}", alias+"pos, "+cols+", "+alias+"attempts, "+alias+"last_error, "+alias+"retry_at")
	}
	schemaName := cmp.Or(d.here, "DATABASE()")
	if n.Schema != "" {
		schemaName = "'" + n.Schema + "'"
	}
	visible := "pg_catalog.pg_table_is_visible(c.oid)"
	if n.Schema != "" {
		visible = "n.nspname = '" + n.Schema + "'"
	}
	pairs = append(pairs, "{schema}", schemaName, "{named schema}", "'"+n.Schema+"'", "{visible}", visible)
	large, length := strconv.Itoa(largeBody), cmp.Or(d.length, "octet_length")+"(o.body)"
	lean := strings.Replace("o."+strings.Join(messageColumns, ", o."), "o.body", "CASE WHEN "+length+" > "+large+" THEN NULL ELSE o.body END", 1)
	pairs = append(pairs, "{o.lean row}", "o.pos, "+lean+", o.attempts, o.last_error, o.retry_at",
		"{withheld}", "CASE WHEN "+length+" > "+large+" THEN "+length+" END")
	// A macro may hold another one, and that one a third.
	r := strings.NewReplacer(pairs...)
	full := func(s string) string { return n.Expand(d.engine, r.Replace(r.Replace(r.Replace(s)))) }

	out := d.texts
	v := reflect.ValueOf(&out).Elem()
	for i := range v.NumField() {
		switch f := v.Field(i).Addr().Interface().(type) {
		case *string:
			*f = full(*f)
		case *limited:
			text := full(f[0])
			for i, limit := range outbox.LaneLimits {
				f[i] = strings.ReplaceAll(text, "{LIMIT}", strconv.Itoa(limit))
			}
		}
	}
	return &out
}

// eachTable writes format for every table of the schema.
func eachTable(format, between string) string {
	var parts []string
	for _, t := range schema.Tables() {
		parts = append(parts, fmt.Sprintf(format, t))
	}
	return strings.Join(parts, between)
}

// writeTime writes NULL for the zero time.
func writeTime(w RowWriter, t time.Time) {
	if t.IsZero() {
		w.Null()
		return
	}
	w.Int(t.UnixMicro())
}
