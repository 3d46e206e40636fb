//go:build cgo && sqlite_json

package sqlite335

import (
	"context"
	"database/sql"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/postrider/postrider/inbox/inboxtest"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/sqlstore"
	"github.com/postrider/postrider/store/storetest"
)

// migrated is a store over new tables.
func migrated(tb testing.TB) (db *sql.DB, s *sqlstore.Store, path string) {
	tb.Helper()
	path = filepath.Join(tb.TempDir(), "outbox.db")
	db, s = open(tb, path)
	if err := s.Migrate(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	return db, s, path
}

func TestConformance(t *testing.T) {
	t.Parallel()
	storetest.Run(t, harness())
}

func TestModel(t *testing.T) {
	t.Parallel()
	storetest.Model(t, harness(), &storetest.ModelOptions{Seed: 1, Rounds: 6, Ops: 250})
}

func harness() storetest.Harness[sqlstore.Tx] {
	return storetest.Harness[sqlstore.Tx]{
		SingleWriter: true,
		New: func(tb testing.TB) storetest.Instance[sqlstore.Tx] {
			db, s, path := migrated(tb)
			begin := sqlstore.Begin(db, nil)
			return storetest.Instance[sqlstore.Tx]{
				Store: s, Enlister: s, Begin: begin.Begin, Commit: begin.Commit, Rollback: begin.Rollback, Migrate: s.Migrate,
				Corrupt: func(ctx context.Context, id outbox.ID) error {
					for _, table := range []string{"outbox", "deferred", "dead"} {
						if _, err := db.ExecContext(ctx, fmt.Sprintf(`UPDATE postrider_%s SET headers = x'09ff' WHERE id = ?`, table), id[:]); err != nil {
							return err
						}
					}
					return nil
				},
				Open: func(tb testing.TB, _ string) outbox.Store {
					_, s := open(tb, path)
					return s
				},
				NotTx: []any{db},
			}
		},
	}
}

func TestInbox(t *testing.T) {
	t.Parallel()
	db, s, _ := migrated(t)
	inboxtest.Run(t, func(t *testing.T) inboxtest.Fixture[sqlstore.Tx] {
		if _, err := db.ExecContext(t.Context(), `DELETE FROM postrider_inbox`); err != nil {
			t.Fatal(err)
		}
		return inboxtest.Fixture[sqlstore.Tx]{
			Store:    s,
			Begin:    func(ctx context.Context) (sqlstore.Tx, error) { return db.BeginTx(ctx, nil) },
			Commit:   sqlstore.Tx.Commit,
			Rollback: sqlstore.Tx.Rollback,
		}
	})
}

// TestPlans: every statement finds its rows by an index, as the planner of 3.35 sees it.
func TestPlans(t *testing.T) {
	t.Parallel()
	db, _, _ := migrated(t)
	files, err := filepath.Glob(filepath.Join("..", "..", "store", "internal", "sqlcore", "testdata", "sqlite", "*.sql"))
	if err != nil || len(files) == 0 {
		t.Fatalf("no statements: %v", err)
	}
	scan := regexp.MustCompile(`SCAN TABLE postrider_(outbox|deferred|dead)\b`)
	for _, f := range files {
		name := strings.TrimSuffix(filepath.Base(f), ".sql")
		text, err := os.ReadFile(f)
		if err != nil {
			t.Fatal(err)
		}
		plan := explain(t, db, regexp.MustCompile(`\?\d+`).ReplaceAllString(string(text), "'[]'"))
		if scan.MatchString(plan) && name != "CountDead" {
			t.Errorf("%s scans a table:\n%s", name, plan)
		}
	}
}

func explain(t *testing.T, db *sql.DB, text string) string {
	t.Helper()
	rows, err := db.QueryContext(t.Context(), "EXPLAIN QUERY PLAN "+text)
	if err != nil {
		t.Fatalf("%s: %v", text, err)
	}
	defer rows.Close()
	var b strings.Builder
	for rows.Next() {
		var id, parent, unused int
		var detail string
		if err := rows.Scan(&id, &parent, &unused, &detail); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintln(&b, detail)
	}
	if err := rows.Err(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}
