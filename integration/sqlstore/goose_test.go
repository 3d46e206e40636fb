package sqlstore_test

import (
	"database/sql"
	"testing"
	"testing/fstest"

	"github.com/pressly/goose/v3"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/sqlstore"
)

// contents is how many rows the tables hold that a migration fills.
func contents(tb testing.TB, db *sql.DB) (n [4]int64) {
	tb.Helper()
	for i, table := range []string{"meta", "routes", "lanes", "lane_marks"} {
		n[i] = number(tb, db, `SELECT count(*) FROM postrider_`+table)
	}
	return n
}

// TestGoose: the script that `postrider schema` prints is a migration as goose
// takes it, and Migrate finds nothing left to do.
func TestGoose(t *testing.T) {
	onSQL(t, func(t *testing.T, e engine) {
		db, _ := e.database(t)
		opts := &sqlstore.Options{Routes: []outbox.Route{{Name: "it's; -- \\ mail", Ordered: 2, Unordered: 1}, {Name: "default"}}}
		text, err := sqlstore.Script(e.dialect, opts)
		if err != nil {
			t.Fatal(err)
		}
		dialect := map[*sqlstore.Dialect]goose.Dialect{
			sqlstore.PostgreSQL: goose.DialectPostgres, sqlstore.MySQL: goose.DialectMySQL, sqlstore.SQLite: goose.DialectSQLite3,
		}[e.dialect]
		files := fstest.MapFS{
			"00001_shop.sql":      {Data: []byte("-- +goose Up\nCREATE TABLE orders (id integer PRIMARY KEY);\n")},
			"00002_postrider.sql": {Data: []byte(text)},
			"00003_shop.sql":      {Data: []byte("-- +goose Up\nCREATE TABLE parcels (id integer PRIMARY KEY);\n")},
		}
		for range 2 { // the second time there is nothing to do
			p, err := goose.NewProvider(dialect, db, files)
			if err != nil {
				t.Fatal(err)
			}
			if _, err := p.Up(t.Context()); err != nil {
				t.Fatalf("goose: %v", err)
			}
			if v, err := p.GetDBVersion(t.Context()); err != nil || v != 3 {
				t.Errorf("goose: version %d, %v, want 3", v, err)
			}
		}
		s := e.store(t, db, opts)
		if err := s.Check(t.Context()); err != nil {
			t.Errorf("Check: %v", err)
		}
		before := contents(t, db)
		if err := s.Migrate(t.Context()); err != nil {
			t.Errorf("Migrate: %v", err)
		}
		if after := contents(t, db); after != before {
			t.Errorf("Migrate changed what goose had made: %v, then %v", before, after)
		}
		r := record("k")
		r.Transport = "it's; -- \\ mail"
		enlist(t, s, db, r, record(""))
	})
}
