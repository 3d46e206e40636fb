package sqlstore_test

import (
	"cmp"
	"database/sql"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/integration/stores"
	"github.com/postrider/postrider/outbox"
)

// statement is the golden text of a statement; a limited one is for 32 rows.
func statement(tb testing.TB, engine, name string) string {
	tb.Helper()
	b, err := os.ReadFile(filepath.Join("..", "..", "store", "internal", "sqlcore", "testdata", engine, name+".sql"))
	if err != nil {
		tb.Fatal(err)
	}
	return string(b)
}

// skewed fills the tables with n rows: seven of ten are of one key, a tenth has
// keys of its own, the rest none; every twentieth row is scheduled.
func skewed(tb testing.TB, s stores.Store, db *sql.DB, n int) {
	tb.Helper()
	later := time.Now().Add(time.Hour)
	for n > 0 {
		recs := make([]outbox.Record, 0, 5000)
		for len(recs) < cap(recs) && n > 0 {
			key := ""
			switch {
			case n%10 < 7:
				key = "hot"
			case n%10 == 7:
				key = fmt.Sprint("k", n%5000)
			}
			r := record(key)
			r.Message.Body = r.Message.Body[:64]
			if n%20 == 1 {
				r.Message.DeliverAt = later
			}
			recs = append(recs, r)
			n--
		}
		enlist(tb, s, db, recs...)
	}
}

// backlog is how many rows there are beside those that a statement is about; with
// POSTRIDER_PROVE=1 millions.
func backlog() int {
	if os.Getenv("POSTRIDER_PROVE") == "1" {
		return 2_000_000
	}
	return 50_000
}

// skewedMore fills the tables with n rows: 50,000 that are skewed, and copies of
// them, whose ids lie beside theirs.
func skewedMore(tb testing.TB, e engine, s stores.Store, db *sql.DB, n int) {
	tb.Helper()
	const first = 50_000
	skewed(tb, s, db, first)
	top := number(tb, db, `SELECT max(pos) FROM postrider_outbox`)
	const cols = `lane, key_hash, ordering_key, transport, message_type, destination, body, created_at, ce_source`
	began := time.Now()
	for i := first; i < n; i += first {
		exec(tb, db, fmt.Sprintf(`INSERT INTO postrider_outbox (id, %s) SELECT %s, %[1]s FROM postrider_outbox WHERE pos <= %[3]d ORDER BY pos`, cols, otherID(e, fmt.Sprint(i)), top))
		exec(tb, db, fmt.Sprintf(`INSERT INTO postrider_deferred (id, attempts, deliver_at, due_at, %s) SELECT %s, 1, deliver_at, due_at, %[1]s FROM postrider_deferred WHERE attempts = 0`, cols, otherID(e, fmt.Sprint(i))))
	}
	if n > first {
		tb.Logf("%d rows after %v", n, time.Since(began).Round(time.Second))
	}
}

// plan is what EXPLAIN says, run on c and rolled back.
func plan(tb testing.TB, c *sql.Conn, explain, text string, args ...any) string {
	tb.Helper()
	tx, err := c.BeginTx(tb.Context(), nil)
	if err != nil {
		tb.Fatal(err)
	}
	defer tx.Rollback()
	rows, err := tx.QueryContext(tb.Context(), explain+" "+text, args...)
	if err != nil {
		tb.Fatalf("%s: %v", text, err)
	}
	defer rows.Close()
	cols := must(rows.Columns())
	var b strings.Builder
	for rows.Next() {
		dst := make([]any, len(cols))
		for i := range dst {
			dst[i] = new(sql.RawBytes)
		}
		if err := rows.Scan(dst...); err != nil {
			tb.Fatal(err)
		}
		fmt.Fprintf(&b, "%s\n", *dst[len(dst)-1].(*sql.RawBytes))
	}
	if err := rows.Err(); err != nil {
		tb.Fatal(err)
	}
	return b.String()
}

// hotLane is the lane of the key "hot" in a store with the default route.
var hotLane = outbox.LaneOf(outbox.Route{First: 1, Ordered: 16, Unordered: 8}, outbox.ID{}, []byte("hot"))

func list[T any](n int, value func(i int) T) string {
	s := make([]string, n)
	for i := range s {
		s[i] = fmt.Sprint(value(i))
	}
	return "{" + strings.Join(s, ",") + "}"
}

// TestPostgresPlans: a statement reads as many rows as it returns, and the
// buffers that lead to them, however many there are, on tables that were never
// analyzed and on fresh statistics, and with plans that do not know their
// parameters.
func TestPostgresPlans(t *testing.T) {
	t.Parallel()
	e := postgres
	_, db, _ := crowded(t, e)
	middle := number(t, db, `SELECT pos FROM postrider_outbox WHERE lane = $1 ORDER BY pos OFFSET 20000 LIMIT 1`, hotLane)

	hot := placesOf(t, db, `SELECT lane::text, pos::text, id::text, '"' || ctid::text || '"' FROM postrider_outbox WHERE pos > $1 ORDER BY pos LIMIT 500`, middle)
	aside := placesOf(t, db, `SELECT lane::text, pos::text, id::text, '' FROM postrider_deferred WHERE pos > $1 ORDER BY pos LIMIT 500`, middle)
	parked := placesOf(t, db, `SELECT lane::text, pos::text, id::text, '' FROM postrider_deferred WHERE due_at IS NULL ORDER BY pos OFFSET 10000 LIMIT 500`)
	letters := placesOf(t, db, `SELECT lane::text, pos::text, id::text, '' FROM postrider_dead ORDER BY pos OFFSET 10000 LIMIT 500`)
	counted := number(t, db, `SELECT pos FROM postrider_dead WHERE lane = $1 AND ordering_key = 'hot' ORDER BY pos DESC OFFSET 1023 LIMIT 1`, hotLane)
	died := number(t, db, `SELECT died_at FROM postrider_dead ORDER BY pos OFFSET 10000 LIMIT 1`)
	exec(t, db, `UPDATE postrider_parked_keys SET unparking = 1 WHERE lane = $1`, asideLane)
	keys := int(number(t, db, `SELECT count(*) FROM postrider_parked_keys`))
	owner := outbox.NewID().String()
	exec(t, db, `UPDATE postrider_lanes SET owner = $1, epoch = 1`, owner)

	every := list(24, func(i int) int { return i + 1 })
	ones := list(24, func(int) int { return 1 })
	cursor := list(24, func(int) int64 { return middle })
	far := list(24, func(int) string { return "9223372036854775807" })
	same := func(v string) string { return list(500, func(int) string { return v }) }
	hash := outbox.KeyHash([]byte("hot"))
	const afterAll = int64(99_999_999_999_999_999)

	cases := []struct {
		name string
		args []any
		rows int // that scans of outbox and deferred may return in all
		bufs int // buffers that it may touch; 0: ten a row and 60
	}{
		{"ReadRanges", []any{every, cursor, far, fmt.Sprintf("{%d}", hash^int64(hotLane)), fmt.Sprintf("{%d}", hotLane), fmt.Sprintf("{%d}", middle)}, 3000, 3000},
		{"ReadRanges", []any{every, cursor, far, "{}", "{}", "{}"}, 3000, 3000},
		{"SweepRanges", []any{every, cursor, far}, 3000, 800},
		{"ReadKeys", []any{fmt.Sprintf("{%d,%d}", hotLane, hotLane), fmt.Sprintf("{%d,0}", middle), "{9223372036854775807,9223372036854775807}",
			fmt.Sprintf("{%d,NULL}", hash), "{hot,NULL}", "{}", "{}", "{}"}, 400, 200},
		{"Settle", []any{hot.lanes, hot.poss, hot.ids}, 1000, 3000},
		{"SettleMarked", []any{hot.lanes, hot.poss, hot.ids, every, ones, cursor, owner}, 1000, 3000},
		{"SettleAt", []any{hot.lanes, hot.poss, hot.ids, hot.tids}, 1000, 1800},
		{"SettleMarkedAt", []any{hot.lanes, hot.poss, hot.ids, hot.tids, every, ones, cursor, owner}, 1000, 1800},
		{"FindHot", []any{hot.lanes, hot.poss, hot.ids}, 1000, 0},
		{"FailHot", []any{hot.lanes, hot.ids, same("1"), same("x"), same("1")}, 1000, 0},
		{"Defer", []any{hot.lanes, hot.ids, same("0")}, 1000, 0},
		{"BuryHot", []any{hot.lanes, hot.ids, same("1"), same("x")}, 1000, 0},
		{"UnlistHot", []any{hot.lanes, hot.ids}, 1000, 0},
		{"Due", []any{every, 1000}, 100, 0},
		{"NextDue", []any{every}, 100, 0},
		{"NextClaimed", []any{every}, 100, 0},
		{"ParkedRows", []any{fmt.Sprintf("{%d}", hotLane), fmt.Sprintf("{%d}", hash), "{hot}", 32}, 100, 0},
		{"AsideRows", []any{fmt.Sprintf("{%d}", hotLane), fmt.Sprintf("{%d}", hash), "{hot}", 32}, 100, 0},
		{"FindPending", []any{hot.id}, 10, 240},
		{"ClaimHot", []any{afterAll, hot.lane, hot.id, []byte("token"), afterAll + 1}, 10, 0},
		{"DoneHot", []any{int64(1), hot.id, []byte("token")}, 10, 0},
		{"ClaimedHot", []any{int64(1), hot.id, []byte("token")}, 10, 0},
		{"RenewHot", []any{int64(1), hot.id, []byte("token"), afterAll}, 10, 0},
		{"UnclaimHot", []any{hot.lane, hot.id}, 10, 0},
		{"ClaimDeferred", []any{afterAll, aside.lane, aside.id, []byte("token"), afterAll + 1}, 10, 0},
		{"DoneDeferred", []any{int64(1), aside.id, []byte("token")}, 10, 0},
		{"ClaimedDeferred", []any{int64(1), aside.id, []byte("token")}, 10, 0},
		{"RenewDeferred", []any{int64(1), aside.id, []byte("token"), afterAll}, 10, 0},
		{"UnclaimDeferred", []any{aside.lane, aside.id}, 10, 0},
		{"Promote", []any{aside.lanes, aside.ids}, 1000, 0},
		{"Return", []any{aside.lanes, aside.ids}, 1000, 0},
		{"FindDeferred", []any{aside.lanes, aside.poss, aside.ids}, 1000, 0},
		{"FailDeferred", []any{aside.lanes, aside.ids, same("1"), same("x"), same("1")}, 1000, 0},
		{"BuryDeferred", []any{aside.lanes, aside.ids, same("1"), same("x")}, 1000, 0},
		{"DropDeferred", []any{aside.lanes, aside.ids}, 1000, 0},
		{"Return", []any{parked.lanes, parked.ids}, 1000, 0},
		{"DropDeferred", []any{parked.lanes, parked.ids}, 1000, 0},
		{"AsideRows", []any{fmt.Sprintf("{%d}", asideLane), fmt.Sprintf("{%d}", outbox.KeyHash(asideKey)), fmt.Sprintf("{%s}", asideKey), 32}, 32, 0},
		{"Park", []any{fmt.Sprintf("{%d}", hotLane), fmt.Sprintf("{%d}", hash), "{hot}", "{why}", "test"}, 0, 20},
		{"Unpark", []any{asideLane, outbox.KeyHash(asideKey), asideKey}, 10, 0},
		{"Lift", []any{fmt.Sprintf("{%d,%d}", asideLane, hotLane), fmt.Sprintf("{%d,%d}", outbox.KeyHash(asideKey), hash), fmt.Sprintf("{%s,hot}", asideKey)}, 10, 0},
		{"Leases", []any{owner}, 50, 0},
		{"Parked", nil, keys, keys},
		{"Lettered", []any{fmt.Sprintf("{%d,%d}", hotLane, asideLane), fmt.Sprintf("{%d,%d}", hash, outbox.KeyHash(asideKey))}, 2, 20},
		{"LettersFrom", []any{fmt.Sprintf("{%d,%d}", hotLane, asideLane), fmt.Sprintf("{%d,%d}", hash, outbox.KeyHash(asideKey)), fmt.Sprintf("{%d,%d}", middle, middle)}, 1024, 60},
		{"CountLater", []any{fmt.Sprintf("{%d,%d}", hotLane, hotLane), fmt.Sprintf("{%d,%d}", hash, hash), "{hot,hot}",
			fmt.Sprintf("{%d,%d}", counted, middle), fmt.Sprintf("{%d,%d}", middle, middle+100), "{2,1}"}, 1024, 16 * 1024},
		{"LanesOfDead", []any{letters.ids}, 500, 0},
		{"LockDead", []any{letters.ids}, 500, 0},
		{"PendingIDs", []any{letters.ids, every}, 0, 500 * 24 * 10},
		{"Replay", []any{letters.ids}, 1000, 0},
		{"DropDead", []any{letters.ids}, 500, 0},
		{"PurgeInbox", []any{afterAll}, 64, 0},
	}
	// What waits in the lane is passed over or sorted, and the parked keys are all read.
	waits := int(number(t, db, `SELECT count(*) FROM postrider_deferred WHERE lane = $1`, hotLane))
	withStats := []struct {
		name string
		args []any
		rows int
	}{
		{"ReadLane", []any{afterAll, hotLane, outbox.ID{}.String()}, 200 + waits + 2*keys},
		{"ReadUnordered", []any{afterAll, outbox.ID{}.String()}, 2000 + 2*keys},
		{"Oldest", []any{afterAll}, 24*128*4 + 2*keys},
		{"ListDead", []any{died, outbox.ID{}.String(), 0}, 32},
		{"ListDeadOf", []any{died, outbox.ID{}.String(), 0, "default"}, 32},
		{"ListDeadOf", []any{int64(0), outbox.ID{}.String(), 0, "rare"}, 32},
	}
	check := func(c *sql.Conn, when, name string, limit, bufs int, args []any) {
		if backlog() > 1_000_000 {
			bufs += bufs / 4 // indexes are a page deeper
		}
		text := plan(t, c, "EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF)", statement(t, "postgres", name), args...)
		if limit > 0 { // 0: there is no scan, or a function's
			if n := scanned(t, text); n > limit {
				t.Errorf("%s, %s: scans return and filter %d rows, limit %d:\n%s", name, when, n, limit, text)
			}
		}
		if n := touched(t, text); n > bufs {
			t.Errorf("%s, %s: it touches %d buffers, limit %d:\n%s", name, when, n, bufs, text)
		}
	}
	for _, when := range []string{"never analyzed", "analyzed"} {
		if when == "analyzed" {
			exec(t, db, "VACUUM ANALYZE")
		}
		for _, tc := range cases {
			c, err := db.Conn(t.Context())
			if err != nil {
				t.Fatal(err)
			}
			sessionSettings(t, c, false)
			check(c, when, tc.name, tc.rows, cmp.Or(tc.bufs, 10*tc.rows+60), tc.args)
			if err := c.Close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	c, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	sessionSettings(t, c, true)
	for _, tc := range withStats {
		check(c, "analyzed", tc.name, tc.rows, 10*tc.rows+60, tc.args)
	}
	// What is not due yet is passed over by a contract read, or what is due is sorted.
	for _, name := range []string{"ReadLane", "ReadUnordered"} {
		args := []any{int64(1), hotLane, outbox.ID{}.String()}
		if name == "ReadUnordered" {
			args = []any{int64(1), outbox.ID{}.String()}
		}
		text := plan(t, c, "EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF)", statement(t, "postgres", name), args...)
		t.Logf("%s before anything scheduled is due: %d rows, %d buffers", name, scanned(t, text), touched(t, text))
	}
	// A promotion takes its share, however much is due.
	exec(t, db, `UPDATE postrider_deferred SET due_at = 1 WHERE due_at IS NOT NULL`)
	for _, tc := range cases {
		if tc.name != "Due" && tc.name != "NextDue" {
			continue
		}
		c := must(db.Conn(t.Context()))
		sessionSettings(t, c, false)
		check(c, "all due", tc.name, tc.rows, 10*tc.rows+60, tc.args)
		if err := c.Close(); err != nil {
			t.Fatal(err)
		}
	}
}

// TestPostgresSeenKeys: while a snapshot keeps what was delivered from being
// vacuumed, the look below the cursor for a key that was seen does not walk it.
func TestPostgresSeenKeys(t *testing.T) {
	t.Parallel()
	e := postgres
	s, db, _ := e.migrated(t, nil)
	const n = 3000
	recs := make([]outbox.Record, n)
	for i := range recs {
		recs[i] = record("hot")
		recs[i].Message.Body = recs[i].Message.Body[:64]
	}
	enlist(t, s, db, recs...)
	old := must(db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead}))
	defer old.Rollback()
	var seen int64
	if err := old.QueryRowContext(t.Context(), `SELECT max(pos) FROM postrider_outbox`).Scan(&seen); err != nil {
		t.Fatal(err)
	}
	exec(t, db, `DELETE FROM postrider_outbox`)
	enlist(t, s, db, record("hot"))

	c := must(db.Conn(t.Context()))
	defer c.Close()
	sessionSettings(t, c, false)
	buffers := func(codes, lanes, positions string) int {
		t.Helper()
		text := plan(t, c, "EXPLAIN (ANALYZE, BUFFERS, COSTS OFF, TIMING OFF)", statement(t, "postgres", "ReadRanges"),
			fmt.Sprintf("{%d}", hotLane), fmt.Sprintf("{%d}", seen), "{9223372036854775807}", codes, lanes, positions)
		if !regexp.MustCompile(`rows=1(\.00)? `).MatchString(text) {
			t.Fatalf("the row was not read:\n%s", text)
		}
		return touched(t, text)
	}
	whole := buffers("{}", "{}", "{}")
	bound := buffers(fmt.Sprintf("{%d}", outbox.KeyHash([]byte("hot"))^int64(hotLane)), fmt.Sprintf("{%d}", hotLane), fmt.Sprintf("{%d}", seen))
	if bound > 20 || whole < 3*bound {
		t.Errorf("the read of one row behind %d delivered ones touches %d buffers; of a key that was seen %d, limit 20", n, whole, bound)
	}
}

// sessionSettings are those of sqlstore's relay sessions and write
// transactions, or of its reads; what a session really has is TestSessions'
// matter.
func sessionSettings(tb testing.TB, c *sql.Conn, reads bool) {
	tb.Helper()
	scan := "off"
	if reads {
		scan = "on"
	}
	_, err := c.ExecContext(tb.Context(), `SELECT set_config('plan_cache_mode', 'force_custom_plan', false), set_config('jit', 'off', false),
 set_config('enable_bitmapscan', 'off', false), set_config('enable_seqscan', $1::text, false),
 set_config('enable_hashjoin', $1::text, false), set_config('enable_mergejoin', $1::text, false)`, scan)
	if err != nil {
		tb.Fatal(err)
	}
}

// places are rows as parameters of statements, and one of them by itself.
type places struct {
	lanes, poss, ids, tids string
	lane, id               string
}

// placesOf reads places, of which each column is text.
func placesOf(tb testing.TB, db *sql.DB, query string, args ...any) (p places) {
	tb.Helper()
	rows, err := db.QueryContext(tb.Context(), query, args...)
	if err != nil {
		tb.Fatal(err)
	}
	defer rows.Close()
	var columns [4][]string
	for rows.Next() {
		var row [4]string
		if err := rows.Scan(&row[0], &row[1], &row[2], &row[3]); err != nil {
			tb.Fatal(err)
		}
		for i, v := range row {
			columns[i] = append(columns[i], v)
		}
	}
	if err := rows.Err(); err != nil {
		tb.Fatal(err)
	}
	if n := len(columns[0]); n != 500 {
		tb.Fatalf("%d rows, want 500: %s", n, query)
	}
	of := func(i int) string { return list(500, func(n int) string { return columns[i][n] }) }
	return places{of(0), of(1), of(2), of(3), columns[0][7], columns[2][7]}
}

var (
	buffersLine = regexp.MustCompile(`Buffers: shared hit=(\d+)(?: read=(\d+))?`)
	scanLine    = regexp.MustCompile(`(?:Scan|Scan Backward) (?:using \S+ )?on postrider_(?:outbox|deferred|dead|parked_keys|inbox)\b.*\(actual rows=([\d.]+) loops=(\d+)\)`)
	removedLine = regexp.MustCompile(`Rows Removed by Filter: (\d+)`)
)

// scanned adds up the rows that scans of the two big tables returned and
// filtered out. What a plan says is an average over loops, a whole number before
// PostgreSQL 18.
func scanned(tb testing.TB, plan string) int {
	tb.Helper()
	n, loops, found := 0.0, 0.0, false
	for line := range strings.Lines(plan) {
		if m := scanLine.FindStringSubmatch(line); m != nil {
			var rows float64
			fmt.Sscan(m[1], &rows)
			fmt.Sscan(m[2], &loops)
			n += rows * loops
			found = true
		} else if strings.Contains(line, "->") {
			loops = 0
		}
		if m := removedLine.FindStringSubmatch(line); m != nil {
			var rows float64
			fmt.Sscan(m[1], &rows)
			n += rows * loops
		}
	}
	if !found {
		tb.Errorf("the plan has no scan of the outbox:\n%s", plan)
	}
	return int(math.Ceil(n))
}

// touched is how many buffers the whole statement touched.
func touched(tb testing.TB, plan string) int {
	tb.Helper()
	m := buffersLine.FindStringSubmatch(plan)
	if m == nil {
		tb.Fatalf("the plan tells no buffers:\n%s", plan)
	}
	var hit, read int
	fmt.Sscan(m[1], &hit)
	fmt.Sscan(m[2], &read)
	return hit + read
}

// TestProducerPlanOfAnEmptyTable: a producer's connection caches the plan of
// its INSERT while the outbox is empty, as it is most of the time. It must not
// read the whole table when a backlog has grown since.
func TestProducerPlanOfAnEmptyTable(t *testing.T) { onPostgres(t, producerPlanOfAnEmptyTable) }

func producerPlanOfAnEmptyTable(t *testing.T, e engine) {
	s, db, dsn := e.migrated(t, nil)
	exec(t, db, `ALTER TABLE postrider_outbox SET (autovacuum_enabled = off)`)
	producer := e.openOne(t, dsn)
	enlist(t, s, producer, record("k"))
	exec(t, db, `DELETE FROM postrider_outbox`)
	exec(t, db, `VACUUM ANALYZE postrider_outbox`)
	for range 10 {
		// Rolled back: the table stays empty.
		tx, err := stores.Begin(t.Context(), producer)
		if err != nil {
			t.Fatal(err)
		}
		if err := tx.Enlist(t.Context(), s, record("k")); err != nil {
			t.Fatal(err)
		}
		if err := tx.Enlist(t.Context(), s, record("k"), record("")); err != nil {
			t.Fatal(err)
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
	}
	skewed(t, s, db, 20_000)
	tx := must(stores.Begin(t.Context(), producer))
	defer tx.Rollback()
	// Of this transaction: what others have read comes to the statistics late.
	read := func() (n int64) {
		t.Helper()
		err := tx.QueryRow(t.Context(), `SELECT seq_tup_read + idx_tup_fetch FROM pg_stat_xact_user_tables WHERE relname = 'postrider_outbox'`).Scan(&n)
		if err != nil {
			t.Fatal(err)
		}
		return n
	}
	before := read()
	for range 20 {
		if err := tx.Enlist(t.Context(), s, record("k")); err != nil {
			t.Fatal(err)
		}
		if err := tx.Enlist(t.Context(), s, record("k"), record("")); err != nil {
			t.Fatal(err)
		}
	}
	if after := read(); after != before {
		t.Errorf("60 inserts read %d rows of the outbox", after-before)
	}
}

// TestSQLitePlans: every statement finds its rows by an index.
func TestSQLitePlans(t *testing.T) {
	t.Parallel()
	e := sqlite
	_, db, _ := e.migrated(t, nil)
	c, err := db.Conn(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	files, err := filepath.Glob(filepath.Join("..", "..", "store", "internal", "sqlcore", "testdata", "sqlite", "*.sql"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no statements: %v", err)
	}
	big := regexp.MustCompile(`SCAN (o|d|p|postrider_outbox|postrider_deferred|postrider_dead)\b`)
	// Counts read everything that they count.
	whole := map[string]bool{"CountDead": true}
	for _, f := range files {
		name := strings.TrimSuffix(filepath.Base(f), ".sql")
		text := regexp.MustCompile(`\?\d+`).ReplaceAllString(statement(t, "sqlite", name), "'[]'")
		p := plan(t, c, "EXPLAIN QUERY PLAN", text)
		if big.MatchString(p) && !whole[name] {
			t.Errorf("%s scans a table:\n%s", name, p)
		}
	}
}
