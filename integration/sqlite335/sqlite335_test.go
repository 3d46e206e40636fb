//go:build cgo

package sqlite335

import (
	"database/sql"
	"net/url"
	"path/filepath"
	"strings"
	"testing"

	_ "github.com/mattn/go-sqlite3"

	"github.com/postrider/postrider/store/sqlstore"
)

// open is a store over a file.
func open(tb testing.TB, path string) (*sql.DB, *sqlstore.Store) {
	tb.Helper()
	dsn := "file:" + (&url.URL{Path: path}).EscapedPath() + "?_journal_mode=WAL&_synchronous=NORMAL&_busy_timeout=5000&_txlock=immediate"
	db, err := sql.Open("sqlite3", dsn)
	if err != nil {
		tb.Fatal(err)
	}
	tb.Cleanup(func() { db.Close() })
	db.SetMaxOpenConns(8)
	s, err := sqlstore.New(db, sqlstore.SQLite, nil)
	if err != nil {
		tb.Fatal(err)
	}
	return db, s
}

func TestVersion(t *testing.T) {
	t.Parallel()
	db, _ := open(t, filepath.Join(t.TempDir(), "outbox.db"))
	var version string
	if err := db.QueryRowContext(t.Context(), `SELECT sqlite_version()`).Scan(&version); err != nil {
		t.Fatal(err)
	}
	if !strings.HasPrefix(version, "3.35.") {
		t.Errorf("this is SQLite %s: the suites are to run on 3.35", version)
	}
}
