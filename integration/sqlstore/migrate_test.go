package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"strings"
	"sync"
	"testing"

	"github.com/postrider/postrider/integration/stores"
	"github.com/postrider/postrider/integration/testenv"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/schema"
	"github.com/postrider/postrider/store/sqlstore"
)

// wantSchemaError: err is outbox.ErrSchema and says all of these things.
func wantSchemaError(tb testing.TB, what string, err error, says ...string) {
	tb.Helper()
	if !errors.Is(err, outbox.ErrSchema) {
		tb.Fatalf("%s: got %v, want outbox.ErrSchema", what, err)
	}
	for _, s := range says {
		if !strings.Contains(err.Error(), s) {
			tb.Errorf("%s: the error does not say %q: %v", what, s, err)
		}
	}
}

func TestMigrateByManyStartersAtOnce(t *testing.T) {
	onEngines(t, func(t *testing.T, e engine) {
		dsn := e.dsn(t)
		opts := &sqlstore.Options{Routes: []outbox.Route{{Name: "default"}, {Name: "mail", Ordered: 2, Unordered: 3}}}
		start := make(chan struct{})
		errs := make(chan error, 16)
		var ready sync.WaitGroup
		// The schema of the session, which some of them name.
		here := map[*sqlstore.Dialect]string{sqlstore.PostgreSQL: `SELECT current_schema()`, sqlstore.MySQL: `SELECT DATABASE()`}[e.dialect]
		for i := range cap(errs) {
			// A pool of its own: as another process would have it.
			db := e.open(t, dsn)
			opts := *opts
			if here != "" && i%2 == 1 {
				if err := db.QueryRowContext(t.Context(), here).Scan(&opts.Schema); err != nil {
					t.Fatal(err)
				}
			}
			s := e.store(t, db, &opts)
			ready.Add(1)
			go func() {
				ready.Done()
				<-start
				errs <- s.Migrate(t.Context())
			}()
		}
		ready.Wait()
		close(start)
		for range cap(errs) {
			if err := <-errs; err != nil {
				t.Errorf("Migrate: %v", err)
			}
		}
		db := e.open(t, dsn)
		s := e.store(t, db, opts)
		if err := s.Check(t.Context()); err != nil {
			t.Errorf("Check: %v", err)
		}
		if n := number(t, db, `SELECT count(*) FROM postrider_lanes`); n != 29 {
			t.Errorf("lanes: got %d, want 29", n)
		}
		if n := number(t, db, `SELECT count(*) FROM postrider_lane_marks`); n != 29 {
			t.Errorf("lane marks: got %d, want 29", n)
		}
		if n := number(t, db, `SELECT count(*) FROM postrider_meta WHERE name = 'schema'`); n != 1 {
			t.Errorf("versions: got %d, want 1", n)
		}
	})
}

// TestMigratePlainSQLiteFile: a file without WAL and DSNs without a waiting
// time are no obstacle for many starters.
func TestMigratePlainSQLiteFile(t *testing.T) {
	t.Parallel()
	e := sqlite
	dsn, _, _ := strings.Cut(e.dsn(t), "?")
	errs := make(chan error, 8)
	for range cap(errs) {
		s := e.store(t, e.open(t, dsn), nil)
		go func() { errs <- s.Migrate(t.Context()) }()
	}
	for range cap(errs) {
		if err := <-errs; err != nil {
			t.Errorf("Migrate: %v", err)
		}
	}
	db := e.open(t, dsn)
	var mode string
	if err := db.QueryRowContext(t.Context(), `PRAGMA journal_mode`).Scan(&mode); err != nil || mode != "wal" {
		t.Errorf("journal mode: got %s, %v, want wal", mode, err)
	}
	s := e.store(t, db, nil)
	enlist(t, s, db, record("k"), record(""))
}

func TestSchemaThatDoesNotFit(t *testing.T) {
	onEngines(t, func(t *testing.T, e engine) {
		db, _ := e.database(t)
		s := e.store(t, db, nil)
		ctx := t.Context()
		missing := func(when string) {
			t.Helper()
			wantSchemaError(t, when+": Check", s.Check(ctx), "no tables", "postrider migrate", `"postrider_"`)
			wantSchemaError(t, when+": Enlist", tryEnlist(ctx, s, db, record("k")), "postrider migrate")
			_, err := s.PendingCount(ctx, record("").CreatedAt)
			wantSchemaError(t, when+": PendingCount", err, "postrider migrate")
			var native interface{ Error() string }
			if !errors.As(err, &native) {
				t.Errorf("%s: the driver's error is gone from %v", when, err)
			}
			_, err = s.TryClaim(ctx, outbox.Claim{ID: outbox.NewID(), Token: outbox.NewToken()}, record("").CreatedAt, record("").CreatedAt.AddDate(1, 0, 0))
			wantSchemaError(t, when+": TryClaim", err, "postrider migrate")
		}
		missing("no tables")
		if err := s.Migrate(ctx); err != nil {
			t.Fatalf("Migrate: %v", err)
		}
		if err := s.Check(ctx); err != nil {
			t.Errorf("Check after Migrate: %v", err)
		}
		exec(t, db, `UPDATE postrider_meta SET value = '99' WHERE name = 'schema'`)
		wantSchemaError(t, "newer: Check", s.Check(ctx), "version 99", "upgrade the program")
		wantSchemaError(t, "newer: Migrate", s.Migrate(ctx), "version 99", "upgrade the program")
		exec(t, db, `UPDATE postrider_meta SET value = 'x' WHERE name = 'schema'`)
		wantSchemaError(t, "damaged: Check", s.Check(ctx), `"x"`)
		wantSchemaError(t, "damaged: Migrate", s.Migrate(ctx), `"x"`)
		exec(t, db, `DELETE FROM postrider_meta WHERE name = 'schema'`)
		wantSchemaError(t, "foreign: Migrate", s.Migrate(ctx), "no version")
		exec(t, db, `INSERT INTO postrider_meta (name, value) VALUES ('schema', '1')`)
		exec(t, db, `UPDATE postrider_meta SET value = 'claims' WHERE name = 'dispatch'`)
		wantSchemaError(t, "other mode: Check", s.Check(ctx), `"claims"`, `"lanes"`)
		wantSchemaError(t, "other mode: Migrate", s.Migrate(ctx), `"claims"`)
	})
}

// TestMigrateIntoNoSchema: that tables are missing is no error of the program that makes
// them.
func TestMigrateIntoNoSchema(t *testing.T) {
	onPostgres(t, func(t *testing.T, e engine) {
		db := e.open(t, withParam(e.dsn(t), "search_path", "nowhere"))
		err := e.store(t, db, nil).Migrate(t.Context())
		wantSchemaError(t, "Migrate", err, "no schema to create tables in", "Options.Schema")
		if strings.Contains(err.Error(), "postrider migrate") {
			t.Errorf("Migrate asks for itself: %v", err)
		}
		if err := e.store(t, db, &sqlstore.Options{Schema: "own"}).Migrate(t.Context()); err != nil {
			t.Errorf("Migrate into a schema of its own: %v", err)
		}
	})
}

func TestRouteCountsAreFixed(t *testing.T) {
	onEngines(t, func(t *testing.T, e engine) {
		_, db, _ := e.migrated(t, &sqlstore.Options{Routes: []outbox.Route{{Name: "default", Ordered: 4, Unordered: 2}}})
		ctx := t.Context()
		other := e.store(t, db, &sqlstore.Options{Routes: []outbox.Route{{Name: "new"}, {Name: "default", Ordered: 5}}})
		wantSchemaError(t, "other counts: Migrate", other.Migrate(ctx), `"default"`, "4 ordered and 2 unordered", "5 and 2")
		if n := number(t, db, `SELECT count(*) FROM postrider_routes`); n != 1 {
			t.Errorf("a refused Migrate left %d routes, want 1", n)
		}
		wantSchemaError(t, "missing route: Check", other.Check(ctx), `no route "new", the store has "default"`, "postrider migrate --routes new", "Options.Routes")
		more := e.store(t, db, &sqlstore.Options{Routes: []outbox.Route{{Name: "new", Ordered: 1, Unordered: 1}, {Name: "default"}}})
		if err := more.Migrate(ctx); err != nil {
			t.Fatalf("Migrate with another route: %v", err)
		}
		want := []outbox.Route{{Name: "default", First: 1, Ordered: 4, Unordered: 2}, {Name: "new", First: 7, Ordered: 1, Unordered: 1}}
		got, err := more.Routes(ctx)
		if err != nil || len(got) != 2 || got[0] != want[0] || got[1] != want[1] {
			t.Errorf("routes: got %v, %v, want %v", got, err, want)
		}
		wantSchemaError(t, "other counts: Check", other.Check(ctx), `"default"`, "4 ordered and 2 unordered", "5 and 2")
	})
}

// TestRouteOfAnotherProcess: a route that appeared after the store was opened is
// found; one that does not exist is an error that names the known ones.
func TestRouteOfAnotherProcess(t *testing.T) {
	onEngines(t, func(t *testing.T, e engine) {
		s, db, dsn := e.migrated(t, nil)
		r := record("k")
		r.Transport = "mail"
		err := tryEnlist(t.Context(), s, db, r)
		if !errors.Is(err, outbox.ErrUnknownRoute) || !strings.Contains(err.Error(), `"mail"`) || !strings.Contains(err.Error(), `"default"`) {
			t.Fatalf("unknown route: got %v", err)
		}
		second := e.store(t, e.open(t, dsn), &sqlstore.Options{Routes: []outbox.Route{{Name: "mail"}}})
		if err := second.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		enlist(t, s, db, r)
	})
}

func TestScriptIsWhatMigrateDoes(t *testing.T) {
	onEngines(t, func(t *testing.T, e engine) {
		db, dsn := e.database(t)
		opts := &sqlstore.Options{Prefix: "Other_", Routes: []outbox.Route{{Name: "it's", Ordered: 2, Unordered: 1}, {Name: "default"}}}
		switch e.dialect {
		case sqlstore.PostgreSQL:
			opts.Schema = "Space"
		case sqlstore.MySQL:
			// A database, of which there is one of a name on the whole server.
			opts.Schema = testenv.Name("Space_")
			plain := db
			db = e.open(t, withSetting(dsn, "multiStatements", "true"))
			t.Cleanup(func() {
				if _, err := plain.ExecContext(context.Background(), "DROP DATABASE "+opts.Schema); err != nil {
					t.Error(err)
				}
			})
		}
		text, err := sqlstore.Script(e.dialect, opts)
		if err != nil {
			t.Fatal(err)
		}
		exec(t, db, text)
		s := e.store(t, db, opts)
		if err := s.Check(t.Context()); err != nil {
			t.Errorf("Check after the script: %v", err)
		}
		if err := s.Migrate(t.Context()); err != nil {
			t.Errorf("Migrate after the script: %v", err)
		}
		r := record("k")
		r.Transport = "it's"
		enlist(t, s, db, r, record(""))
		g, err := s.AcquireLanes(t.Context(), outbox.LaneRequest{Owner: outbox.NewID(), Routes: []string{"it's", "default"}, Want: 100, TTL: 1e9})
		if err != nil || len(g.Leases) != 27 {
			t.Errorf("lanes: got %d, %v, want 27", len(g.Leases), err)
		}
	})
}

// TestNamesCannotInject: names are refused that could end a quote or a
// statement, before anything is sent.
func TestNamesCannotInject(t *testing.T) {
	onEngines(t, func(t *testing.T, e engine) {
		db, _ := e.database(t)
		for _, bad := range []string{
			`x"; DROP TABLE victim; --`, `x"`, `x'`, "x\x00", "x y", "x;", "1x", "x-y", "ü", "x.y", "{meta}", strings.Repeat("x", 129),
		} {
			for _, opts := range []*sqlstore.Options{{Prefix: bad}, {Schema: bad}} {
				if _, err := stores.New(db, e.dialect, opts); !errors.Is(err, outbox.ErrInvalidArgument) {
					t.Errorf("New with %+v: got %v, want outbox.ErrInvalidArgument", opts, err)
				}
				if _, err := sqlstore.Script(e.dialect, opts); !errors.Is(err, outbox.ErrInvalidArgument) {
					t.Errorf("Script with %+v: got %v, want outbox.ErrInvalidArgument", opts, err)
				}
			}
		}
		// Route names are data.
		name := `x'); DROP TABLE "postrider_meta"; --`
		s := e.store(t, db, &sqlstore.Options{Routes: []outbox.Route{{Name: name}}})
		if err := s.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		r := record("k")
		r.Transport = name
		enlist(t, s, db, r)
		if got, err := s.Routes(t.Context()); err != nil || len(got) != 1 || got[0].Name != name {
			t.Errorf("routes: got %v, %v", got, err)
		}
	})
}

// TestLongestNames: the longest prefix still leaves every name distinct.
func TestLongestNames(t *testing.T) {
	onEngines(t, func(t *testing.T, e engine) {
		db, _ := e.database(t)
		for _, last := range []string{"a_", "b_"} {
			s := e.store(t, db, &sqlstore.Options{Prefix: strings.Repeat("x", schema.MaxPrefix-2) + last})
			if err := s.Migrate(t.Context()); err != nil {
				t.Fatal(err)
			}
			enlist(t, s, db, record("k"), record(""))
		}
	})
}

// TestDialectOfAnotherEngine is found without a connection.
func TestDialectOfAnotherEngine(t *testing.T) {
	t.Parallel()
	pg, err := sql.Open("pgx", "postgres://127.0.0.1:1/none")
	if err != nil {
		t.Fatal(err)
	}
	defer pg.Close()
	lite, err := sql.Open("sqlite", "file::memory:")
	if err != nil {
		t.Fatal(err)
	}
	defer lite.Close()
	my, err := sql.Open("mysql", "root@tcp(127.0.0.1:1)/none")
	if err != nil {
		t.Fatal(err)
	}
	defer my.Close()
	for _, tc := range []struct {
		db   *sql.DB
		d    *sqlstore.Dialect
		opts *sqlstore.Options
		says string
	}{
		{my, sqlstore.PostgreSQL, nil, "MySQL"},
		{pg, sqlstore.MySQL, nil, "PostgreSQL"},
		{pg, sqlstore.SQLite, nil, "PostgreSQL"},
		{lite, sqlstore.PostgreSQL, nil, "SQLite"},
		{lite, sqlstore.SQLite, &sqlstore.Options{RelayDB: pg}, "PostgreSQL"},
	} {
		if _, err := sqlstore.New(tc.db, tc.d, tc.opts); !errors.Is(err, outbox.ErrInvalidArgument) || !strings.Contains(err.Error(), "sqlstore."+tc.says) {
			t.Errorf("New with dialect %s: got %v", tc.d, err)
		}
	}
	// A server that is not there is for later: New does not fail, Check does.
	s, err := sqlstore.New(pg, sqlstore.PostgreSQL, nil)
	if err != nil {
		t.Fatalf("New without a server: %v", err)
	}
	if err := s.Check(t.Context()); err == nil || errors.Is(err, outbox.ErrSchema) {
		t.Errorf("Check without a server: got %v", err)
	}
}

// TestDialectOfAnotherServer: a driver in a wrapper does not tell what it speaks.
// The server does.
func TestDialectOfAnotherServer(t *testing.T) {
	onSQL(t, func(t *testing.T, e engine) {
		db, _ := e.counted(t)
		var server string
		switch e.dialect {
		case sqlstore.PostgreSQL:
			server = "PostgreSQL"
		case sqlstore.MySQL:
			if err := db.QueryRowContext(t.Context(), `SELECT VERSION()`).Scan(&server); err != nil {
				t.Fatal(err)
			}
		default:
			server = "SQL logic error" // a library: it speaks for itself
		}
		for _, d := range []*sqlstore.Dialect{sqlstore.PostgreSQL, sqlstore.SQLite, sqlstore.MySQL} {
			if d == e.dialect {
				continue
			}
			s, err := sqlstore.New(db, d, nil)
			if err != nil {
				t.Fatalf("New with dialect %s: %v", d, err)
			}
			for what, err := range map[string]error{"Check": s.Check(t.Context()), "Migrate": s.Migrate(t.Context())} {
				if err == nil || !strings.Contains(err.Error(), d.String()) || !strings.Contains(err.Error(), server) {
					t.Errorf("%s with dialect %s: got %v, want both named, %q", what, d, err, server)
				}
				if !e.single && !errors.Is(err, outbox.ErrInvalidArgument) {
					t.Errorf("%s with dialect %s: got %v, want outbox.ErrInvalidArgument", what, d, err)
				}
			}
		}
	})
}

// TestServerTooOld: the error names the version and the least that is needed, before
// anything is created.
func TestServerTooOld(t *testing.T) {
	onSQL(t, func(t *testing.T, e engine) {
		ask, old := `SELECT version()`, map[string]string{"PostgreSQL 12.22 on x86_64-pc-linux-gnu": "PostgreSQL 13"}
		switch e.dialect {
		case sqlstore.SQLite:
			ask, old = `SELECT sqlite_version()`, map[string]string{"3.34.1": "3."}
		case sqlstore.MySQL:
			ask = `SELECT CONCAT_WS(' ', VERSION(), @@version_comment, CASE WHEN DATABASE() IS NULL THEN '(no schema)' WHEN DATABASE() IS NULL THEN '(no database)' END)`
			old = map[string]string{"10.5.23-MariaDB-log mariadb.org": "MariaDB 10.6", "5.7.44-log MySQL Community Server (GPL)": "8.0.19"}
		}
		for version, least := range old {
			db, c := e.counted(t)
			c.instead = map[string]string{ask: `SELECT '` + version + `'`}
			s := e.store(t, db, nil)
			wantSchemaError(t, "Check", s.Check(t.Context()), `"`+version+`"`, "needs is "+least, "upgrade")
			wantSchemaError(t, "Migrate", s.Migrate(t.Context()), `"`+version+`"`, "needs is "+least, "upgrade")
			c.instead = nil
			wantSchemaError(t, "Check after a refused Migrate", s.Check(t.Context()), "no tables")
		}
	})
}

// TestTablesOfAnotherCommit: tables of this version that lack an index which statements
// name, or a column, are no outage to wait out.
func TestTablesOfAnotherCommit(t *testing.T) {
	on(t, func(t *testing.T, e engine) {
		for _, change := range []string{
			map[string]string{"mysql": `DROP INDEX postrider_outbox_lane ON postrider_outbox`, "sqlite": `DROP INDEX postrider_outbox_lane`}[e.name],
			`ALTER TABLE postrider_outbox DROP COLUMN tracestate`,
		} {
			s, db, _ := e.migrated(t, nil)
			exec(t, db, change)
			_, err := s.ReadLanes(t.Context(), []outbox.LaneRead{{Lane: 1}}, make([]outbox.LaneRow, 32))
			wantSchemaError(t, change, err, "postrider schema", "postrider migrate")
		}
	}, mysql, sqlite)
}

// D3: a table that somebody has dropped is one clear error at the start, not an
// outage later.
func TestCheckFindsADroppedTable(t *testing.T) {
	onEngines(t, func(t *testing.T, e engine) {
		s, db, _ := e.migrated(t, nil)
		exec(t, db, `DROP TABLE postrider_parked_keys`)
		exec(t, db, `DROP TABLE postrider_audit`)
		err := s.Check(t.Context())
		if !errors.Is(err, outbox.ErrSchema) || !strings.Contains(err.Error(), "parked_keys, audit") {
			t.Errorf("D3: got %v, want ErrSchema with the names of the tables", err)
		}
	})
}
