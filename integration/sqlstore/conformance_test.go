package sqlstore_test

import (
	"context"
	"database/sql"
	"errors"
	"flag"
	"fmt"
	"strings"
	"testing"

	driver "github.com/go-sql-driver/mysql"

	"github.com/postrider/postrider/integration/testenv"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/sqlstore"
	"github.com/postrider/postrider/store/storetest"
)

// harness gives each subtest tables of its own: a schema where there are
// schemas, else a database, so that no test sees another one's rows.
func harness(t *testing.T, e engine) storetest.Harness[sqlstore.Tx] {
	var shared string
	if !e.databases {
		shared = e.dsn(t)
	}
	return storetest.Harness[sqlstore.Tx]{
		SingleWriter: e.single,
		New: func(tb testing.TB) storetest.Instance[sqlstore.Tx] {
			dsn, opts := shared, &sqlstore.Options{}
			if e.databases {
				dsn = e.dsn(tb)
			} else {
				opts.Schema = testenv.Name("conf_")
			}
			db := e.open(tb, dsn)
			s, err := sqlstore.New(db, e.dialect, opts)
			if err != nil {
				tb.Fatal(err)
			}
			if err := s.Migrate(tb.Context()); err != nil {
				tb.Fatalf("Migrate: %v", err)
			}
			begin := sqlstore.Begin(db, &sql.TxOptions{Isolation: e.isolation})
			return storetest.Instance[sqlstore.Tx]{
				Store: s, Enlister: s, Begin: begin.Begin, Commit: begin.Commit, Rollback: begin.Rollback, Migrate: s.Migrate,
				Corrupt: func(ctx context.Context, id outbox.ID) error {
					changed := int64(0)
					for _, table := range []string{"outbox", "deferred", "dead"} {
						text, arg := fmt.Sprintf(`UPDATE "postrider_%s" SET headers = x'09ff' WHERE id = ?1`, table), any(id[:])
						switch e.dialect {
						case sqlstore.MySQL:
							text = fmt.Sprintf("UPDATE postrider_%s SET headers = x'09ff' WHERE id = ?", table)
						case sqlstore.Oracle:
							text = fmt.Sprintf(`UPDATE "postrider_%s" SET headers = TO_BLOB(HEXTORAW('09ff')) WHERE id = :1`, table)
						case sqlstore.SQLServer:
							text = fmt.Sprintf(`UPDATE [%s].[postrider_%s] SET headers = 0x09ff WHERE id = @p1`, opts.Schema, table)
						case sqlstore.PostgreSQL:
							text, arg = fmt.Sprintf(`UPDATE "%s"."postrider_%s" SET headers = '\x09ff'::bytea WHERE id = $1::uuid`, opts.Schema, table), id.String()
						}
						res, err := db.ExecContext(ctx, text, arg)
						if err != nil {
							return err
						}
						n, err := res.RowsAffected()
						if err != nil {
							return err
						}
						changed += n
					}
					if changed != 1 {
						return fmt.Errorf("%d rows have the id %s", changed, id)
					}
					return nil
				},
				Open: func(tb testing.TB, zone string) outbox.Store {
					dsn := dsn
					if zone != "" {
						dsn = e.timeZone(dsn, zone)
					}
					return e.store(tb, e.open(tb, dsn), opts)
				},
				NotTx: []any{db},
				Lost:  recordChanged,
			}
		},
	}
}

// recordChanged: at REPEATABLE READ, from 11.6.2 on, MariaDB ends a transaction that
// meets a row which its snapshot does not show (innodb_snapshot_isolation).
func recordChanged(err error) bool {
	var my *driver.MySQLError
	return errors.As(err, &my) && my.Number == 1020
}

func TestConformance(t *testing.T) {
	on(t, func(t *testing.T, e engine) {
		if e.driver == oracle.driver {
			e.dsn(t) // the suite is skipped as a whole, or fails where it is required
		}
		storetest.Run(t, harness(t, e))
	}, postgres, sqlite, mysql, oracle, sqlserver)
}

var (
	modelSeed   = flag.Uint64("model.seed", 1, "first seed of the model test")
	modelRounds = flag.Int("model.rounds", 6, "rounds of the model test")
)

func TestModel(t *testing.T) {
	on(t, func(t *testing.T, e engine) { model(t, e, *modelRounds) }, postgres, sqlite, mysql, sqlserver)
}

// model runs the model test. On MySQL its producers work at READ COMMITTED: one
// whose snapshot is older than a row meets the row's id only in the INSERT, which
// leaves the row locked until the transaction ends, and in a list of operations
// that is one thread nobody would end it (TestProducerThatMetADuplicate).
func model(t *testing.T, e engine, rounds int) {
	if e.dialect == sqlstore.MySQL {
		e.isolation = sql.LevelReadCommitted
	}
	storetest.Model(t, harness(t, e), &storetest.ModelOptions{Seed: *modelSeed, Rounds: rounds, Ops: 250})
}

// TestModes runs with the other ways in which pgx can send arguments: poolers
// need them, and they are as close as it gets to other drivers.
func TestModes(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"exec", "simple_protocol", "describe_exec"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			e := postgres
			plain := e.dsn
			e.dsn = func(tb testing.TB) string { return withParam(plain(tb), "default_query_exec_mode", mode) }
			storetest.Model(t, harness(t, e), &storetest.ModelOptions{Rounds: 1, Ops: 250})
			storetest.Run(t, harness(t, e))
		})
	}
}

// TestBytesInEscapes: where arguments go over as text pgx reads bytes in hexadecimal
// only, and a server, a role or a database may be set to write them otherwise.
func TestBytesInEscapes(t *testing.T) {
	onPostgres(t, func(t *testing.T, e engine) {
		plain := e.dsn
		e.dsn = func(tb testing.TB) string {
			return withParam(withParam(plain(tb), "bytea_output", "escape"), "default_query_exec_mode", "exec")
		}
		awkwardValues(t, e)
	})
}

// TestArrayNulls: at this setting a message's missing tenant would be stored as "NULL".
func TestArrayNulls(t *testing.T) {
	onPostgres(t, func(t *testing.T, e engine) {
		_, _, dsn := e.migrated(t, nil)
		s := e.store(t, e.open(t, withParam(dsn, "array_nulls", "off")), nil)
		for what, err := range map[string]error{"Migrate": s.Migrate(t.Context()), "Check": s.Check(t.Context())} {
			if !errors.Is(err, outbox.ErrInvalidArgument) || !strings.Contains(err.Error(), "array_nulls") {
				t.Errorf("%s: got %v, want outbox.ErrInvalidArgument that names array_nulls", what, err)
			}
		}
	})
}
