package sqlstore_test

import (
	"database/sql"
	"errors"
	"strings"
	"testing"
	"time"

	"github.com/postrider/postrider/integration/stores"
	"github.com/postrider/postrider/integration/testenv"
	"github.com/postrider/postrider/outbox"
)

// TestStandby: what only reads is told from a primary before a relay tries for ever,
// and before anything is created. To look on it is all right.
func TestStandby(t *testing.T) {
	t.Parallel()
	cluster := testenv.PrivatePostgres(t)
	for _, e := range []engine{postgres, native} {
		db := e.open(t, cluster.URL)
		if err := e.store(t, db, nil).Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		stores.Close(db)
	}
	if err := errors.Join(cluster.Stop(t.Context(), "fast"), cluster.Standby(), cluster.Start(t.Context())); err != nil {
		t.Fatal(err)
	}
	for _, e := range []engine{postgres, native} {
		t.Run(e.name, func(t *testing.T) {
			db := e.open(t, cluster.URL)
			onlyReads(t, e.store(t, db, nil), db, "cannot execute INSERT in a read-only transaction")
		})
	}
}

// TestMySQLReplica: a server that takes no writes of others than its administrators is
// a replica to them as well: what they wrote there, nobody else would have.
func TestMySQLReplica(t *testing.T) {
	t.Parallel()
	server := testenv.PrivateMySQL(t)
	db := mysql.open(t, server.DSN)
	if err := mysql.store(t, db, nil).Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	limited := mysql.as(t, db, server.DSN, "limited")
	exec(t, db, `GRANT SELECT, INSERT, UPDATE, DELETE ON postrider_test.* TO limited`)
	exec(t, db, `SET GLOBAL read_only = 1`)
	onlyReads(t, mysql.store(t, limited, nil), limited, "read-only option")
	wantRefused(t, "CheckRelay of an administrator", mysql.store(t, db, nil).CheckRelay(t.Context()), "name the primary")
	exec(t, db, `SET GLOBAL read_only = 0`)
	if err := mysql.store(t, limited, nil).CheckRelay(t.Context()); err != nil {
		t.Errorf("CheckRelay of what is a primary now: %v", err)
	}
}

// onlyReads holds the tables of a server that does not write.
func onlyReads(t *testing.T, s stores.Store, db *sql.DB, refusal string) {
	t.Helper()
	if err := s.Check(t.Context()); err != nil {
		t.Errorf("Check: %v", err)
	}
	if n, err := s.PendingCount(t.Context(), time.Now()); err != nil || n != 0 {
		t.Errorf("pending: got %d, %v", n, err)
	}
	wantRefused(t, "CheckRelay", s.CheckRelay(t.Context()), "the server only reads", "name the primary")
	wantRefused(t, "Migrate", s.Migrate(t.Context()), "the server only reads", "name the primary")
	err := tryEnlist(t.Context(), s, db, record("k"))
	if err == nil || !strings.Contains(err.Error(), refusal) {
		t.Errorf("Enlist: got %v, want an error that says %q", err, refusal)
	}
	if _, err := s.AcquireLanes(t.Context(), outbox.LaneRequest{Owner: outbox.NewID(), Routes: []string{"default"}, Want: 1, TTL: time.Second}); err == nil {
		t.Error("AcquireLanes on a server that only reads")
	}
}

// TestSQLiteReadOnly: a file that is opened to read can be looked at, and no relay
// starts on it.
func TestSQLiteReadOnly(t *testing.T) {
	t.Parallel()
	_, _, dsn := sqlite.migrated(t, nil)
	db := sqlite.open(t, dsn+"&mode=ro")
	s := sqlite.store(t, db, nil)
	if err := s.Check(t.Context()); err != nil {
		t.Errorf("Check: %v", err)
	}
	if n, err := s.PendingCount(t.Context(), time.Now()); err != nil || n != 0 {
		t.Errorf("pending: got %d, %v", n, err)
	}
	wantRefused(t, "CheckRelay", s.CheckRelay(t.Context()), "readonly database")
	if err := tryEnlist(t.Context(), s, db, record("k")); err == nil || !strings.Contains(err.Error(), "readonly database") {
		t.Errorf("Enlist: got %v, want an error about a readonly database", err)
	}
}
