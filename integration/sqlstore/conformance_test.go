package sqlstore_test

import (
	"context"
	"fmt"
	"testing"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/sqlstore"
	"github.com/postrider/postrider/store/storetest"
)

// harness gives each subtest a database of its own, so that no test sees
// another one's rows.
func harness(e engine) storetest.Harness[sqlstore.Tx] {
	return storetest.Harness[sqlstore.Tx]{
		SingleWriter: e.single,
		New: func(tb testing.TB) storetest.Instance[sqlstore.Tx] {
			s, db, dsn := e.migrated(tb, nil)
			begin := sqlstore.Begin(db, nil)
			return storetest.Instance[sqlstore.Tx]{
				Store: s, Enlister: s, Begin: begin.Begin, Commit: begin.Commit, Rollback: begin.Rollback, Migrate: s.Migrate,
				Corrupt: func(ctx context.Context, id outbox.ID) error {
					var arg any = id[:]
					if !e.single {
						arg = id.String()
					}
					changed := int64(0)
					for _, table := range []string{"outbox", "deferred", "dead"} {
						text := fmt.Sprintf(`UPDATE "postrider_%s" SET headers = %s WHERE id = $1`, table, map[bool]string{true: "x'09ff'", false: `'\x09ff'::bytea`}[e.single])
						res, err := db.ExecContext(ctx, text, arg)
						if err != nil {
							return err
						}
						n, _ := res.RowsAffected()
						changed += n
					}
					if changed != 1 {
						return fmt.Errorf("%d rows have the id %s", changed, id)
					}
					return nil
				},
				Open: func(tb testing.TB, zone string) outbox.Store {
					if zone != "" {
						dsn = e.timeZone(dsn, zone)
					}
					return e.store(tb, e.open(tb, dsn), nil)
				},
				NotTx: []any{db},
			}
		},
	}
}

func TestConformance(t *testing.T) {
	onEngines(t, func(t *testing.T, e engine) { storetest.Run(t, harness(e)) })
}

func TestModel(t *testing.T) {
	onEngines(t, func(t *testing.T, e engine) {
		storetest.Model(t, harness(e), &storetest.ModelOptions{Rounds: 6, Ops: 250})
	})
}
