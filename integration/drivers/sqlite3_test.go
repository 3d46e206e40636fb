//go:build cgo

package drivers_test

import (
	"net/url"
	"path/filepath"
	"testing"

	_ "github.com/mattn/go-sqlite3"

	"github.com/postrider/postrider/integration/testenv"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/sqlstore"
)

func init() {
	drivers = append(drivers, driver{
		name: "sqlite3", dialect: sqlstore.SQLite,
		dsn: func(tb testing.TB) string {
			testenv.SQLite(tb) // says that the suite ran
			path := (&url.URL{Path: filepath.Join(tb.TempDir(), "outbox.db")}).EscapedPath()
			return "file:" + path + "?_journal_mode=WAL&_synchronous=NORMAL&_busy_timeout=5000&_txlock=immediate"
		},
		timeZone: func(dsn, _ string) string { return dsn + "&_loc=auto" },
		corrupt:  `UPDATE postrider_%s SET headers = x'09ff' WHERE id = ?`,
		id:       func(id outbox.ID) any { return id[:] },
	})
}
