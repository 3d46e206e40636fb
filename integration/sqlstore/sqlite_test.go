package sqlstore_test

import (
	"database/sql"
	"errors"
	"maps"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/sqlstore"
	"github.com/postrider/postrider/store/storetest"
)

// TestSQLiteTypes: SQLite stores a value of any type in any column. Of what other
// programs write, one that would stop a lane or never be found is refused, as STRICT
// tables would.
func TestSQLiteTypes(t *testing.T) {
	t.Parallel()
	s, db, _ := sqlite.migrated(t, nil)
	insert := func(table string, row map[string]any) error {
		names := slices.Sorted(maps.Keys(row))
		var args []any
		for _, name := range names {
			args = append(args, row[name])
		}
		_, err := db.ExecContext(t.Context(), `INSERT INTO postrider_`+table+` (`+strings.Join(names, ", ")+`) VALUES (?`+strings.Repeat(", ?", len(names)-1)+`)`, args...)
		return err
	}
	message := func() map[string]any {
		r := record("k")
		key := r.Message.Key
		return map[string]any{
			"id": r.ID[:], "lane": int64(outbox.LaneOf(outbox.Route{First: 1, Ordered: 16, Unordered: 8}, r.ID, key)), "key_hash": outbox.KeyHash(key), "ordering_key": key,
			"transport": "default", "message_type": "t.v1", "destination": "d", "body": []byte("{}"), "ce_source": "/s", "created_at": int64(1),
			"headers": nil, "ce_extensions": nil, "ce_time": nil, "deliver_at": nil, "envelope": int64(0), "attempts": int64(0),
			"retry_at": nil, "first_failed_at": nil, "claim_until": nil,
		}
	}
	deferred := func() map[string]any {
		row := message()
		row["deliver_at"], row["due_at"], row["pos"] = int64(1), int64(1), int64(0)
		return row
	}
	processed := func() map[string]any {
		return map[string]any{"consumer": "c", "message_id": outbox.NewID().String(), "processed_at": int64(1), "expires_at": int64(2)}
	}
	numbers := []string{"lane", "key_hash", "created_at", "ce_time", "deliver_at", "envelope", "attempts", "retry_at", "first_failed_at", "claim_until"}
	bytes := []string{"id", "ordering_key", "headers", "body", "ce_extensions"}
	for _, tc := range []struct {
		table                string
		row                  func() map[string]any
		numbers, bytes, text []string
	}{
		{"outbox", message, numbers, bytes, []string{"transport"}},
		{"deferred", deferred, append([]string{"due_at", "pos"}, numbers...), bytes, []string{"transport"}},
		{"inbox", processed, []string{"processed_at", "expires_at"}, nil, []string{"consumer", "message_id"}},
	} {
		if err := insert(tc.table, tc.row()); err != nil {
			t.Fatalf("%s: a good row: %v", tc.table, err)
		}
		wrong := func(column string, values ...any) {
			for _, v := range values {
				row := tc.row()
				row[column] = v
				if err := insert(tc.table, row); err == nil || !strings.Contains(err.Error(), "CHECK constraint failed: typeof("+column+")") {
					t.Errorf("%s with %s = %T %[3]v: got %v, want an error of the CHECK of that column", tc.table, column, v, err)
				}
			}
		}
		for _, column := range tc.numbers {
			wrong(column, "2026-01-02 03:04:05", 1.5, []byte{1})
		}
		for _, column := range tc.bytes {
			wrong(column, "sixteen letters!", 1)
		}
		for _, column := range tc.text {
			wrong(column, []byte("default"))
		}
	}
	// What was taken is there to be read.
	rows := make([]outbox.LaneRow, 8)
	lane := outbox.LaneOf(outbox.Route{First: 1, Ordered: 16, Unordered: 8}, outbox.ID{}, []byte("k"))
	if n, err := s.ReadLanes(t.Context(), []outbox.LaneRead{{Lane: lane}}, rows); err != nil || n != 1 {
		t.Errorf("ReadLanes: got %d, %v, want 1", n, err)
	}
}

// TestSQLiteStrictTables: files whose tables an earlier commit has made STRICT go on
// working.
func TestSQLiteStrictTables(t *testing.T) {
	t.Parallel()
	script := must(sqlstore.Script(sqlstore.SQLite, nil))
	script = regexp.MustCompile(` CHECK \(typeof\(\w+\) [^)]*\)+`).ReplaceAllString(strings.ReplaceAll(script, "typeof(id) = 'blob' AND ", ""), "")
	tables := strings.Count(script, "CREATE TABLE")
	script = strings.ReplaceAll(script, "\n);", "\n) STRICT;")
	if n := strings.Count(script, ") STRICT;"); n != tables || strings.Contains(script, "typeof") {
		t.Fatalf("%d of %d tables are STRICT:\n%s", n, tables, script)
	}
	e := sqlite
	plain := e.dsn
	e.dsn = func(tb testing.TB) string {
		dsn := plain(tb)
		exec(tb, e.open(tb, dsn), script)
		return dsn
	}
	storetest.Model(t, harness(t, e), &storetest.ModelOptions{Seed: *modelSeed, Rounds: 2, Ops: 250})
}

// TestSQLiteInUTF16: the digits of a table parameter would be other numbers there, and
// what was delivered would never be deleted.
func TestSQLiteInUTF16(t *testing.T) {
	t.Parallel()
	for _, encoding := range []string{"UTF-16le", "UTF-16be"} {
		db, dsn := sqlite.database(t)
		exec(t, db, `PRAGMA encoding = '`+encoding+`'; CREATE TABLE theirs (id INTEGER)`)
		s := sqlite.store(t, sqlite.open(t, dsn), nil)
		for what, err := range map[string]error{"Migrate": s.Migrate(t.Context()), "Check": s.Check(t.Context())} {
			if !errors.Is(err, outbox.ErrSchema) || !strings.Contains(err.Error(), "UTF-16") {
				t.Errorf("%s, %s: got %v, want outbox.ErrSchema that names UTF-16", encoding, what, err)
			}
		}
	}
}

// TestSQLiteBusyTransaction: a transaction that was begun without the write lock fails
// at once beside another writer, and the error says what its DSN lacks.
func TestSQLiteBusyTransaction(t *testing.T) {
	t.Parallel()
	_, db, dsn := sqlite.migrated(t, nil)
	path, _, _ := strings.Cut(dsn, "?")
	bare, err := sql.Open(sqlite.driver, path)
	if err != nil {
		t.Fatal(err)
	}
	defer bare.Close()
	s, err := sqlstore.New(bare, sqlstore.SQLite, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Check(t.Context()); err != nil { // knows the routes from then on
		t.Fatal(err)
	}
	writer, err := db.BeginTx(t.Context(), nil)
	if err != nil {
		t.Fatal(err)
	}
	defer writer.Rollback()
	for what, write := range map[string]func(*sql.Tx) error{
		"Enlist": func(tx *sql.Tx) error { return s.Enlist(t.Context(), tx, record("k")) },
		"Reserve": func(tx *sql.Tx) error {
			_, err := s.Reserve(t.Context(), tx, inbox.Record{Consumer: "c", MessageID: "1", ProcessedAt: time.Now()})
			return err
		},
	} {
		tx, err := bare.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := write(tx); err == nil || !strings.Contains(err.Error(), "_txlock=immediate") || !strings.Contains(err.Error(), "busy_timeout") {
			t.Errorf("%s: error %v, want one with the remedy", what, err)
		}
		tx.Rollback()
	}
}
