package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/integration/stores"
	"github.com/postrider/postrider/integration/testenv"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/schema"
	"github.com/postrider/postrider/store/sqlstore"
	"github.com/postrider/postrider/store/storetest"
)

// What is MySQL's and MariaDB's own.

// TestMySQLDrivers: the contract holds whatever the driver does with times,
// counts of rows and arguments. TestConformance has the other half of each.
func TestMySQLDrivers(t *testing.T) {
	t.Parallel()
	e, plain := mysql, mysql.dsn
	e.dsn = func(tb testing.TB) string {
		dsn := plain(tb)
		for _, p := range [][2]string{{"parseTime", "true"}, {"loc", "America/New_York"}, {"clientFoundRows", "true"}, {"interpolateParams", "true"}} {
			dsn = withSetting(dsn, p[0], p[1])
		}
		return dsn
	}
	storetest.Run(t, harness(t, e))
}

// TestMySQLModes: how the server reads quotes and escapes, and whether it refuses
// values or bends them, does not matter.
func TestMySQLModes(t *testing.T) {
	t.Parallel()
	const odd = "ANSI_QUOTES,NO_BACKSLASH_ESCAPES,PIPES_AS_CONCAT,IGNORE_SPACE,HIGH_NOT_PRECEDENCE,NO_AUTO_VALUE_ON_ZERO"
	for _, tc := range []struct{ name, mode, interpolate string }{
		{"lax", "", "false"}, {"lax in text", "", "true"}, {"odd", odd, "false"}, {"odd in text", odd, "true"},
	} {
		t.Run(tc.name, func(t *testing.T) {
			t.Parallel()
			e, plain := mysql, mysql.dsn
			e.dsn = func(tb testing.TB) string {
				return withSetting(withSetting(plain(tb), "sql_mode", "'"+tc.mode+"'"), "interpolateParams", tc.interpolate)
			}
			awkwardValues(t, e)
			model(t, e, 1)
		})
	}
}

// sessionVariables are what a relay's session changes, and what would show that
// a connection was one.
func sessionVariables(tb testing.TB, c *sql.Conn) string {
	tb.Helper()
	rows, err := c.QueryContext(tb.Context(), `SHOW SESSION VARIABLES WHERE variable_name IN ('autocommit', 'innodb_lock_wait_timeout', 'sql_mode',
 'tx_isolation', 'transaction_isolation', 'tx_read_only', 'transaction_read_only')`)
	if err != nil {
		tb.Fatal(err)
	}
	defer rows.Close()
	var all []string
	for rows.Next() {
		var name, value string
		if err := rows.Scan(&name, &value); err != nil {
			tb.Fatal(err)
		}
		all = append(all, name+"="+value)
	}
	if err := rows.Err(); err != nil {
		tb.Fatal(err)
	}
	return strings.Join(all, " ")
}

// readOnlySetting is the variable that makes a session's transactions read-only:
// the servers have no name for it in common.
func readOnlySetting(tb testing.TB, db *sql.DB) (name string) {
	tb.Helper()
	var value string
	if err := db.QueryRowContext(tb.Context(), `SHOW SESSION VARIABLES WHERE variable_name IN ('tx_read_only', 'transaction_read_only')`).Scan(&name, &value); err != nil {
		tb.Fatal(err)
	}
	return name
}

// hold takes n connections out of the pool at once and returns their numbers and
// their variables.
func hold(tb testing.TB, db *sql.DB, n int) (ids []int64, variables []string) {
	tb.Helper()
	for range n {
		c, err := db.Conn(tb.Context())
		if err != nil {
			tb.Fatal(err)
		}
		defer c.Close()
		var id int64
		if err := c.QueryRowContext(tb.Context(), `SELECT CONNECTION_ID()`).Scan(&id); err != nil {
			tb.Fatal(err)
		}
		ids, variables = append(ids, id), append(variables, sessionVariables(tb, c))
	}
	return ids, variables
}

// TestMySQLSessions: a relay's connection has settings of its own, nobody knows
// what it had before, and so it is never given back to the pool.
func TestMySQLSessions(t *testing.T) {
	t.Parallel()
	_, db, dsn := mysql.migrated(t, nil)
	ctx := t.Context()
	const n = 4
	relay := mysql.open(t, dsn)
	relay.SetMaxOpenConns(n)
	relay.SetMaxIdleConns(n)
	s := mysql.store(t, db, &sqlstore.Options{RelayDB: relay})
	pinned, before := hold(t, relay, n)
	var open []outbox.LaneSession
	for _, purpose := range []string{"read", "sweep", "settle", "lease"} {
		ses, err := s.LaneSession(ctx, purpose)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, ses)
		if _, err := ses.ReadLanes(ctx, []outbox.LaneRead{{Lane: 1}}, make([]outbox.LaneRow, 8)); err != nil {
			t.Errorf("read on session %q: %v", purpose, err)
		}
	}
	if n := relay.Stats().InUse; n != len(open) {
		t.Errorf("connections in use: got %d, want %d", n, len(open))
	}
	for _, ses := range open {
		if err := ses.Close(); err != nil {
			t.Error(err)
		}
		if err := ses.Close(); err != nil {
			t.Errorf("second Close: %v", err)
		}
	}
	now, after := hold(t, relay, n)
	for i := range now {
		if slices.Contains(pinned, now[i]) {
			t.Errorf("connection %d came back to the pool from a session", now[i])
		}
		if after[i] != before[i] {
			t.Errorf("settings of the pool: got %s, want %s", after[i], before[i])
		}
	}
	// The server ends a connection that was closed in its own time.
	left := fmt.Sprintf(`SELECT count(*) FROM `+testenv.MySQLSessions+` WHERE id IN (%d, %d, %d, %d)`, pinned[0], pinned[1], pinned[2], pinned[3])
	for end := time.Now().Add(time.Minute); number(t, db, left) != 0; time.Sleep(5 * time.Millisecond) {
		if time.Now().After(end) {
			t.Fatal("connections of closed sessions are still there")
		}
	}
	// Nor do the settings of a transaction of the store's, or of Migrate, outlive
	// it on a connection of the pool.
	one := mysql.openOne(t, dsn)
	_, before = hold(t, one, 1)
	s = mysql.store(t, one, nil)
	for what, call := range map[string]func() error{
		"PendingCount": func() error { _, err := s.PendingCount(ctx, time.Now()); return err },
		"ParkKey": func() error {
			_, err := s.ParkKey(ctx, outbox.ParkedKey{Route: "default", Key: []byte("k")})
			return err
		},
		"Migrate": func() error { return s.Migrate(ctx) },
	} {
		if err := call(); err != nil {
			t.Errorf("%s: %v", what, err)
		}
		if _, after := hold(t, one, 1); after[0] != before[0] {
			t.Errorf("settings after %s: got %s, want %s", what, after[0], before[0])
		}
	}
}

// TestMySQLSessionDefaults: sessions that do not commit by themselves, and those
// of another isolation level or time zone, make no difference, and none is left
// inside a transaction.
func TestMySQLSessionDefaults(t *testing.T) {
	t.Parallel()
	for _, setting := range [][2]string{{"autocommit", "0"}, {"tx_isolation", "'SERIALIZABLE'"}, {"time_zone", "'+05:30'"}} {
		t.Run(setting[0], func(t *testing.T) {
			t.Parallel()
			db, dsn := mysql.database(t)
			if setting[0] == "tx_isolation" {
				setting[0] = strings.Replace(readOnlySetting(t, db), "read_only", "isolation", 1)
			}
			odd := mysql.open(t, withSetting(dsn, setting[0], setting[1]))
			s := mysql.store(t, odd, nil)
			ctx := t.Context()
			if err := s.Migrate(ctx); err != nil {
				t.Fatalf("Migrate: %v", err)
			}
			s = mysql.store(t, odd, nil)
			if err := s.Check(ctx); err != nil {
				t.Fatalf("Check: %v", err)
			}
			late := record("")
			late.Message.DeliverAt = time.Now().Add(-time.Hour)
			enlist(t, s, odd, record("k"), record("k"), late)
			if now, err := s.ServerTime(ctx); err != nil || now.Sub(time.Now()).Abs() > time.Minute {
				t.Errorf("server time: got %v, %v, want %v", now, err, time.Now())
			}
			ses, err := s.LaneSession(ctx, "settle")
			if err != nil {
				t.Fatal(err)
			}
			defer ses.Close()
			g, err := ses.AcquireLanes(ctx, outbox.LaneRequest{Owner: outbox.NewID(), Routes: []string{"default"}, Want: 100, TTL: time.Minute})
			if err != nil || len(g.Leases) != 24 {
				t.Fatalf("acquire: got %d lanes, %v", len(g.Leases), err)
			}
			lane := outbox.LaneOf(outbox.Route{First: 1, Ordered: 16, Unordered: 8}, outbox.ID{}, []byte("k"))
			rows := make([]outbox.LaneRow, 8)
			n, err := ses.ReadLanes(ctx, []outbox.LaneRead{{Lane: lane}}, rows)
			if err != nil || n != 2 {
				t.Fatalf("read: got %d rows, %v, want 2", n, err)
			}
			later(t, ses, g.Leases[lane-1], outbox.SettleAccepted, rows[:1])
			later(t, ses, g.Leases[lane-1], outbox.SettleDead, rows[1:2])
			if n, _, err := ses.PromoteLanes(ctx, g.Leases, rows); err != nil || n != 1 {
				t.Errorf("promote: got %d, %v, want 1", n, err)
			}
			if ok, err := s.ParkKey(ctx, outbox.ParkedKey{Route: "default", Key: []byte("k")}); err != nil || !ok {
				t.Errorf("park: got %v, %v", ok, err)
			}
			// What others see is what was committed.
			for text, want := range map[string]int64{
				`SELECT count(*) FROM postrider_outbox`:      1,
				`SELECT count(*) FROM postrider_deferred`:    0,
				`SELECT count(*) FROM postrider_dead`:        1,
				`SELECT count(*) FROM postrider_parked_keys`: 1,
				`SELECT count(*) FROM postrider_lanes`:       24,
			} {
				if n := number(t, db, text); n != want {
					t.Errorf("%s: got %d, want %d", text, n, want)
				}
			}
			if open := transactions(t, db, "ACTIVE"); len(open) > 0 {
				t.Errorf("transactions are left open: %s", open)
			}
		})
	}
}

// TestMySQLInterruptedMigrate: a script does not run as one transaction there;
// wherever it ended, the next Migrate completes it.
func TestMySQLInterruptedMigrate(t *testing.T) {
	t.Parallel()
	steps, err := schema.Steps(schema.MySQL, schema.Names{})
	if err != nil {
		t.Fatal(err)
	}
	statements := steps[0].Statements
	for i := range statements {
		done := i + 1
		t.Run(fmt.Sprint(done), func(t *testing.T) {
			t.Parallel()
			db, _ := mysql.database(t)
			for _, text := range statements[:done] {
				exec(t, db, text)
			}
			s := mysql.store(t, db, nil)
			wantSchemaError(t, "Check", s.Check(t.Context()), "postrider migrate")
			if err := s.Migrate(t.Context()); err != nil {
				t.Fatalf("Migrate: %v", err)
			}
			if err := s.Check(t.Context()); err != nil {
				t.Errorf("Check: %v", err)
			}
			enlist(t, s, db, record("k"), record(""))
		})
	}
}

// TestMySQLForeignTables: where creating what exists is passed over, a table of
// somebody else's must not be taken for ours.
func TestMySQLForeignTables(t *testing.T) {
	t.Parallel()
	for name, text := range map[string]string{
		"outbox": `CREATE TABLE postrider_outbox (id BIGINT PRIMARY KEY, payload TEXT)`,
		"inbox":  `CREATE TABLE postrider_inbox (message_id VARCHAR(36) PRIMARY KEY)`,
		"meta":   `CREATE TABLE postrider_meta (name VARCHAR(64) PRIMARY KEY, value VARCHAR(64)) AS SELECT 'colour' AS name, 'red' AS value`,
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			db, _ := mysql.database(t)
			exec(t, db, text)
			s := mysql.store(t, db, nil)
			wantSchemaError(t, "Migrate", s.Migrate(t.Context()), "postrider_"+name, "another prefix")
			if n := number(t, db, `SELECT count(*) FROM information_schema.tables WHERE table_schema = DATABASE()`); n != 1 {
				t.Errorf("a refused Migrate left %d tables, want 1", n)
			}
		})
	}
}

// TestMySQLTablesWithoutTransactions is found by Check, and the remedy in its
// error works.
func TestMySQLTablesWithoutTransactions(t *testing.T) {
	t.Parallel()
	s, db, _ := mysql.migrated(t, nil)
	exec(t, db, `ALTER TABLE postrider_relays ENGINE = MyISAM`)
	const remedy = "ALTER TABLE postrider_relays ENGINE = InnoDB"
	wantSchemaError(t, "Check", s.Check(t.Context()), "MyISAM", remedy)
	wantSchemaError(t, "Migrate", s.Migrate(t.Context()), "MyISAM", remedy)
	exec(t, db, remedy)
	for what, err := range map[string]error{"Check": s.Check(t.Context()), "Migrate": s.Migrate(t.Context())} {
		if err != nil {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestMySQLNamesAreBytes: a collation would take these for one.
func TestMySQLNamesAreBytes(t *testing.T) {
	t.Parallel()
	var routes []outbox.Route
	names := []string{"mail", "Mail", "ma\u0131l", "m\u00e1il", "mail "}
	for _, name := range names {
		routes = append(routes, outbox.Route{Name: name, Ordered: 1, Unordered: 1})
	}
	s, db, _ := mysql.migrated(t, &sqlstore.Options{Routes: routes})
	for i, name := range names {
		for range i + 1 {
			r := record("")
			r.Transport = name
			enlist(t, s, db, r)
		}
	}
	for i, name := range names {
		g, err := s.AcquireLanes(t.Context(), outbox.LaneRequest{Owner: outbox.NewID(), Routes: []string{name}, Want: 8, TTL: time.Minute})
		if err != nil || len(g.Leases) != 2 {
			t.Fatalf("route %q: got %d lanes, %v, want 2", name, len(g.Leases), err)
		}
		rows := make([]outbox.LaneRow, 32)
		if n, err := s.ReadLanes(t.Context(), []outbox.LaneRead{{Lane: g.Leases[1].Lane}}, rows); err != nil || n != i+1 {
			t.Errorf("route %q: got %d rows, %v, want %d", name, n, err, i+1)
		}
	}
}

// isMariaDB tells it from MySQL itself.
func isMariaDB(t *testing.T, db *sql.DB) bool {
	t.Helper()
	return number(t, db, `SELECT CONCAT(VERSION(), @@version_comment) LIKE '%MariaDB%'`) == 1
}

func currentDatabase(t *testing.T, db *sql.DB) (name string) {
	t.Helper()
	if err := db.QueryRowContext(t.Context(), `SELECT DATABASE()`).Scan(&name); err != nil {
		t.Fatal(err)
	}
	return name
}

// A session without a database serves a configured schema on MariaDB, and is refused by
// name where it cannot: on MySQL, and without a schema.
func TestMySQLWithoutADatabase(t *testing.T) {
	t.Parallel()
	db, dsn := mysql.database(t)
	name := currentDatabase(t, db)
	bare := mysql.open(t, strings.Replace(dsn, "/"+name, "/", 1))
	refuses := func(s stores.Store) {
		t.Helper()
		for what, err := range map[string]error{"Migrate": s.Migrate(t.Context()), "Check": s.Check(t.Context())} {
			if !errors.Is(err, outbox.ErrInvalidArgument) || !strings.Contains(err.Error(), "No database selected") || !strings.Contains(err.Error(), "in the DSN") {
				t.Errorf("%s without a database: got %v, want outbox.ErrInvalidArgument and the remedy", what, err)
			}
		}
	}
	refuses(mysql.store(t, bare, nil))
	s := mysql.store(t, bare, &sqlstore.Options{Schema: name})
	if !isMariaDB(t, db) {
		refuses(s)
		return
	}
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	relays(t, s, s, bare)
}

// TestMySQLRights: the tables' owner can leave a relay with four rights, and the
// error names the one that is missing.
func TestMySQLRights(t *testing.T) {
	t.Parallel()
	db, dsn := mysql.database(t)
	ours, theirs := testenv.Name("ours_"), testenv.Name("theirs_")
	t.Cleanup(func() {
		if _, err := mysql.open(t, dsn).ExecContext(context.Background(), "DROP DATABASE IF EXISTS "+ours); err != nil {
			t.Error(err)
		}
	})
	if err := mysql.store(t, db, &sqlstore.Options{Schema: ours}).Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	selected := ""
	if !isMariaDB(t, db) {
		selected = "information_schema"
	}
	as := func(grants ...string) *sql.DB {
		t.Helper()
		user := testenv.Name("limited_")
		exec(t, db, "CREATE USER "+user+" IDENTIFIED BY 'x'")
		t.Cleanup(func() {
			if _, err := mysql.open(t, dsn).ExecContext(context.Background(), "DROP USER "+user); err != nil {
				t.Error(err)
			}
		})
		for _, g := range grants {
			exec(t, db, "GRANT "+g+" TO "+user)
		}
		_, place, _ := strings.Cut(dsn, "@")
		server, _, _ := strings.Cut(place, "/")
		return mysql.open(t, user+":x@"+server+"/"+selected)
	}
	opts := &sqlstore.Options{Schema: ours}

	s := mysql.store(t, as(), opts)
	wantSchemaError(t, "Check without any right", s.Check(t.Context()), "migrate", "grant this role")
	limited := as("SELECT, INSERT, UPDATE, DELETE ON " + ours + ".*")
	s = mysql.store(t, limited, opts)
	if err := s.Check(t.Context()); err != nil {
		t.Errorf("Check: %v", err)
	}
	if err := s.Migrate(t.Context()); err != nil {
		t.Errorf("Migrate with nothing to do: %v", err)
	}
	relays(t, s, s, limited)
	consumes(t, s, limited)
	err := mysql.store(t, limited, &sqlstore.Options{Schema: theirs}).Migrate(t.Context())
	wantRefused(t, "Migrate into a new schema", err, `create schema "`+theirs+`"`, "grant")
	err = mysql.store(t, limited, &sqlstore.Options{Schema: ours, Prefix: "second_"}).Migrate(t.Context())
	wantRefused(t, "Migrate without DDL rights", err, "postrider schema", "CREATE")

	for _, right := range []string{"SELECT", "INSERT", "UPDATE", "DELETE"} {
		var rights []string
		for _, r := range []string{"SELECT", "INSERT", "UPDATE", "DELETE"} {
			if r != right {
				rights = append(rights, r)
			}
		}
		short := as(strings.Join(rights, ", ") + " ON " + ours + ".*")
		s := mysql.store(t, short, opts)
		var err error
		switch right {
		case "SELECT":
			_, err = s.PendingCount(t.Context(), time.Now())
		case "INSERT":
			err = tryEnlist(t.Context(), s, short, record("k"))
		case "UPDATE":
			_, err = s.ParkKey(t.Context(), outbox.ParkedKey{Route: "default", Key: []byte(right)})
		case "DELETE":
			_, err = s.SettleLanes(t.Context(), outbox.SettleRequest{Owner: outbox.NewID(), Settlements: []outbox.Settlement{{Lane: 1, Epoch: 1, Pos: 1, ID: outbox.NewID(), Outcome: outbox.SettleAccepted}}})
		}
		wantRefused(t, "without "+right, err, right+" command denied", "postrider_")
	}
}

func wantRefused(tb testing.TB, what string, err error, says ...string) {
	tb.Helper()
	if !errors.Is(err, outbox.ErrRefused) {
		tb.Errorf("%s: got %v, want outbox.ErrRefused", what, err)
		return
	}
	for _, s := range says {
		if !strings.Contains(err.Error(), s) {
			tb.Errorf("%s: the error does not say %q: %v", what, s, err)
		}
	}
}

// TestMySQLPacketLimit: the error for a message that the server does not take
// names its limit, however the driver sends it, and what comes after is taken.
func TestMySQLPacketLimit(t *testing.T) {
	t.Parallel()
	_, db, dsn := mysql.migrated(t, nil)
	limit := int(number(t, db, `SELECT @@max_allowed_packet`))
	body := make([]byte, limit+1)
	for _, tc := range []struct {
		name        string
		packet      int // of the driver; 0: it asks the server
		interpolate string
		refused     bool // else the server may have closed the connection
	}{
		{"arguments", 4 * limit, "false", false},
		{"text", 4 * limit, "true", false},
		{"arguments in parts", limit / 2, "false", true},
		{"text that is arguments again", limit / 2, "true", true},
		{"as much as the server takes", 0, "false", true},
	} {
		one := mysql.openOne(t, withSetting(withSetting(dsn, "maxAllowedPacket", fmt.Sprint(tc.packet)), "interpolateParams", tc.interpolate))
		s := mysql.store(t, one, &sqlstore.Options{MaxBytes: 2 * limit})
		r := record("k")
		r.Message.Body = body
		err := tryEnlist(t.Context(), s, one, r)
		if err == nil || !strings.Contains(err.Error(), "max_allowed_packet") || tc.refused && !errors.Is(err, outbox.ErrRefused) {
			t.Errorf("%s: got %v, want an error that names max_allowed_packet, outbox.ErrRefused: %v", tc.name, err, tc.refused)
		}
		enlist(t, s, one, record("k"), record(""))
		one.Close()
	}
}

// TestMySQLSettingsThatDoNotServe: what statements cannot be written for is refused
// by its name, where a program starts, and a relay's sessions do not depend on it.
func TestMySQLSettingsThatDoNotServe(t *testing.T) {
	t.Parallel()
	_, db, dsn := mysql.migrated(t, nil)
	settings := [][2]string{{"sql_select_limit", "1"}, {"sql_safe_updates", "1"}, {"completion_type", "'CHAIN'"}}
	if isMariaDB(t, db) {
		settings = append(settings, [2]string{"sql_mode", "'ORACLE'"}, [2]string{"sql_mode", "'EMPTY_STRING_IS_NULL'"})
	}
	for _, setting := range settings {
		odd := mysql.open(t, withSetting(dsn, setting[0], setting[1]))
		s := mysql.store(t, odd, nil)
		name := strings.Trim(setting[1], "'")
		if setting[0] != "sql_mode" {
			name = setting[0]
		}
		for what, err := range map[string]error{"Migrate": s.Migrate(t.Context()), "Check": s.Check(t.Context())} {
			if !errors.Is(err, outbox.ErrInvalidArgument) || !strings.Contains(err.Error(), name) {
				t.Errorf("%s with %s=%s: got %v, want outbox.ErrInvalidArgument that names it", what, setting[0], setting[1], err)
			}
		}
		if setting[0] == "sql_mode" {
			continue
		}
		ses, err := mysql.store(t, db, &sqlstore.Options{RelayDB: odd}).LaneSession(t.Context(), "settle")
		if err != nil {
			t.Fatal(err)
		}
		owner := outbox.NewID()
		for range 2 {
			g, err := ses.AcquireLanes(t.Context(), outbox.LaneRequest{Owner: owner, Routes: []string{"default"}, Want: 100, TTL: time.Minute})
			if err != nil || len(g.Leases) != 24 {
				t.Errorf("acquire with %s: got %d lanes, %v, want 24", setting[0], len(g.Leases), err)
			}
		}
		if _, err := ses.AcquireLanes(t.Context(), outbox.LaneRequest{Owner: owner, Routes: []string{"default"}, End: true, TTL: time.Minute}); err != nil {
			t.Errorf("end with %s: %v", setting[0], err)
		}
		ses.Close()
	}
}

// A session whose clock was set, as by an application that shares the pool, does not
// decide by it whose leases have ended.
func TestMySQLTimestampOfASession(t *testing.T) {
	t.Parallel()
	s, _, dsn := mysql.migrated(t, nil)
	want := outbox.LaneRequest{Owner: outbox.NewID(), Routes: []string{"default"}, Want: 100, TTL: time.Minute}
	acquire := func(s stores.Store, r outbox.LaneRequest) int {
		ses, err := s.LaneSession(t.Context(), "lease")
		if err != nil {
			t.Fatal(err)
		}
		defer ses.Close()
		g, err := ses.AcquireLanes(t.Context(), r)
		if err != nil {
			t.Fatal(err)
		}
		return len(g.Leases)
	}
	if n := acquire(s, want); n != 24 {
		t.Fatalf("the first relay gets %d lanes, want 24", n)
	}
	want.Owner = outbox.NewID()
	for _, at := range []string{"2147483000", "1000000000"} {
		odd := mysql.store(t, mysql.open(t, withSetting(dsn, "timestamp", at)), nil)
		if n := acquire(odd, want); n != 0 {
			t.Errorf("timestamp=%s: another relay gets %d lanes that are held, want none", at, n)
		}
	}
}
