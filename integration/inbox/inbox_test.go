package inbox_test

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postrider/postrider/inbox"
	"github.com/postrider/postrider/inbox/inboxtest"
	"github.com/postrider/postrider/integration/testenv"
	"github.com/postrider/postrider/store/sqlstore"
)

func TestMain(m *testing.M) { testenv.Main(m) }

// engine is where the tests run: each gets a database of its own.
type engine struct {
	name    string
	driver  string
	dsn     func(testing.TB) string
	dialect *sqlstore.Dialect
}

var engines = []engine{
	{"postgres", "pgx", testenv.Postgres, sqlstore.PostgreSQL},
	{"sqlite", "sqlite", testenv.SQLite, sqlstore.SQLite},
	{"mysql", "mysql", testenv.MySQL, sqlstore.MySQL},
	{"oracle", "oracle", testenv.Oracle, sqlstore.Oracle},
	{"sqlserver", "sqlserver", testenv.SQLServer, sqlstore.SQLServer},
}

func onEngines(t *testing.T, run func(t *testing.T, e engine)) {
	for _, e := range engines {
		t.Run(e.name, func(t *testing.T) {
			t.Parallel()
			run(t, e)
		})
	}
}

func (e engine) open(t *testing.T) (*sql.DB, *sqlstore.Store) {
	t.Helper()
	return e.openAt(t, e.dsn(t), 8)
}

func (e engine) openAt(t *testing.T, dsn string, conns int) (*sql.DB, *sqlstore.Store) {
	t.Helper()
	db, err := sql.Open(e.driver, dsn)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { db.Close() })
	db.SetMaxOpenConns(conns)
	db.SetMaxIdleConns(conns)
	s, err := sqlstore.New(db, e.dialect, nil)
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	return db, s
}

func TestConformance(t *testing.T) {
	t.Parallel()
	onEngines(t, func(t *testing.T, e engine) {
		db, s := e.open(t)
		table := "postrider_inbox"
		if e.dialect == sqlstore.Oracle {
			table = `"postrider_inbox"` // or it would be one in capitals
		}
		inboxtest.Run(t, func(t *testing.T) inboxtest.Fixture[sqlstore.Tx] {
			if _, err := db.Exec(`DELETE FROM ` + table); err != nil {
				t.Fatal(err)
			}
			return inboxtest.Fixture[sqlstore.Tx]{
				Store:    s,
				Begin:    func(ctx context.Context) (sqlstore.Tx, error) { return db.BeginTx(ctx, nil) },
				Commit:   sqlstore.Tx.Commit,
				Rollback: sqlstore.Tx.Rollback,
				Lost:     isDeadlock,
			}
		})
	})
}

// A broker delivers a message 64 times at once, handlers fail now and then;
// the business table tells how often it had an effect.
func TestOneEffectInTheBusinessTable(t *testing.T) {
	t.Parallel()
	onEngines(t, func(t *testing.T, e engine) {
		db, s := e.open(t)
		in, err := inbox.New[sqlstore.Tx](s, nil)
		if err != nil {
			t.Fatal(err)
		}
		if _, err := db.Exec(`CREATE TABLE effects (message VARCHAR(50) NOT NULL)`); err != nil {
			t.Fatal(err)
		}
		refused := errors.New("refused")
		var tries atomic.Int64
		deliver := func(id string) error {
			tx, err := db.BeginTx(t.Context(), nil)
			if err != nil {
				return err
			}
			_, err = in.Process(t.Context(), tx, id, "billing", func(ctx context.Context) error {
				if _, err := tx.ExecContext(ctx, `INSERT INTO effects (message) VALUES ('`+id+`')`); err != nil {
					return err
				}
				if tries.Add(1)%3 == 0 {
					return refused // after the write
				}
				return nil
			})
			if err != nil {
				return errors.Join(err, tx.Rollback())
			}
			return tx.Commit()
		}
		var wg sync.WaitGroup
		for i := range 64 {
			wg.Go(func() {
				for {
					err := deliver(fmt.Sprintf("m%d", i%4))
					if errors.Is(err, refused) || isDeadlock(err) {
						continue
					}
					if err != nil {
						t.Errorf("delivery: %v", err)
					}
					return
				}
			})
		}
		wg.Wait()
		var effects, distinct int
		if err := db.QueryRow(`SELECT count(*), count(DISTINCT message) FROM effects`).Scan(&effects, &distinct); err != nil {
			t.Fatal(err)
		}
		if effects != 4 || distinct != 4 {
			t.Errorf("%d effects of %d messages, want 4 of 4", effects, distinct)
		}
	})
}

// Of two concurrent duplicates at REPEATABLE READ the one that waited gets a
// serialization failure, not a second effect, and is a duplicate when it comes
// again.
func TestRepeatableReadSerializationFailure(t *testing.T) {
	t.Parallel()
	db, s := engines[0].open(t)
	in, err := inbox.New[sqlstore.Tx](s, nil)
	if err != nil {
		t.Fatal(err)
	}
	begin := func() *sql.Tx {
		tx, err := db.BeginTx(t.Context(), &sql.TxOptions{Isolation: sql.LevelRepeatableRead})
		if err != nil {
			t.Fatal(err)
		}
		return tx
	}
	ran := 0
	process := func(tx *sql.Tx) (bool, error) {
		return in.Process(t.Context(), tx, "m", "billing", func(context.Context) error { ran++; return nil })
	}
	one, two := begin(), begin()
	if _, err := two.Exec(`SELECT 1`); err != nil { // its snapshot is from before
		t.Fatal(err)
	}
	if first, err := process(one); !first || err != nil {
		t.Fatal(first, err)
	}
	if err := one.Commit(); err != nil {
		t.Fatal(err)
	}
	first, err := process(two)
	var pg *pgconn.PgError
	if first || !errors.As(err, &pg) || pg.Code != "40001" {
		t.Errorf("the duplicate: processed %t, error %v; want serialization failure 40001", first, err)
	}
	two.Rollback()
	three := begin()
	if first, err := process(three); first || err != nil {
		t.Errorf("the duplicate when it comes again: processed %t, error %v; want a skip", first, err)
	}
	three.Rollback()
	if ran != 1 {
		t.Errorf("the handler ran %d times, want 1", ran)
	}
}

// An error of the database is the caller's to see, and the rollback frees the
// message.
func TestDatabaseErrorsReachTheCaller(t *testing.T) {
	t.Parallel()
	onEngines(t, func(t *testing.T, e engine) {
		db, s := e.open(t)
		in, err := inbox.New[sqlstore.Tx](s, nil)
		if err != nil {
			t.Fatal(err)
		}
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		if err := tx.Rollback(); err != nil {
			t.Fatal(err)
		}
		if _, err := in.Process(t.Context(), tx, "m", "billing", func(context.Context) error { return nil }); !errors.Is(err, sql.ErrTxDone) {
			t.Errorf("Process in an ended transaction: %v, want sql.ErrTxDone", err)
		}
		tx, err = db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		ctx, cancel := context.WithCancelCause(t.Context())
		cancel(errors.New("stopping"))
		if _, err := in.Process(ctx, tx, "m", "billing", func(context.Context) error { return nil }); !errors.Is(err, context.Canceled) {
			t.Errorf("Process under an ended context: %v, want context.Canceled", err)
		}
	})
}

// Purge goes on while consumers work, and takes nothing that lives.
func TestPurgeBesideConsumers(t *testing.T) {
	t.Parallel()
	onEngines(t, func(t *testing.T, e engine) {
		db, s := e.open(t)
		const n = 3000
		past := time.Now().Add(-2 * time.Hour)
		tx, err := db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		for i := range n {
			r := inbox.Record{Consumer: "billing", MessageID: fmt.Sprint(i), ProcessedAt: past, ExpiresAt: past.Add(time.Hour)}
			if _, err := s.Reserve(t.Context(), tx, r); err != nil {
				t.Fatal(err)
			}
		}
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}
		in, err := inbox.New[sqlstore.Tx](s, &inbox.Options{PurgeBatch: 64})
		if err != nil {
			t.Fatal(err)
		}
		var wg sync.WaitGroup
		var taken atomic.Int64
		for c := range 4 {
			wg.Go(func() {
				for i := c; i < 400; i += 4 {
					tx, err := db.BeginTx(t.Context(), nil)
					if err != nil {
						t.Error(err)
						return
					}
					first, err := in.Process(t.Context(), tx, fmt.Sprint(i*7), "billing", func(context.Context) error { return nil })
					if err == nil {
						err = tx.Commit()
					} else {
						tx.Rollback()
					}
					if err != nil {
						t.Errorf("Process beside Purge: %v", err)
						return
					}
					if first {
						taken.Add(1)
					}
				}
			})
		}
		purged, err := in.Purge(t.Context())
		if err != nil {
			t.Errorf("Purge beside consumers: %v", err)
		}
		wg.Wait()
		more, err := in.Purge(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if taken.Load() != 400 {
			t.Errorf("%d of 400 expired messages were taken over", taken.Load())
		}
		if got := purged + more; got > n || got < n-400 {
			t.Errorf("%d records purged, want between %d and %d", got, n-400, n)
		}
		tx, err = db.BeginTx(t.Context(), nil)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		for i := range 400 {
			if ok, err := in.HasBeenProcessed(t.Context(), tx, fmt.Sprint(i*7), "billing"); err != nil || !ok {
				t.Fatalf("message %d was processed and is forgotten (error %v)", i*7, err)
			}
		}
	})
}
