package storetest_test

import (
	"context"
	"errors"
	"testing"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/storetest"
)

// What a database author writes to prove a store: here for Mem, in your package
// for yours.
func Example() {
	harness := storetest.Harness[*storetest.MemTx]{
		New: func(tb testing.TB) storetest.Instance[*storetest.MemTx] {
			store := storetest.NewMem(nil) // open the database, create tables of this test's own
			return storetest.Instance[*storetest.MemTx]{
				Store: store, Enlister: store,
				Begin:    func(context.Context) (*storetest.MemTx, error) { return store.Begin(), nil },
				Commit:   func(_ context.Context, tx *storetest.MemTx) error { return tx.Commit() },
				Rollback: func(_ context.Context, tx *storetest.MemTx) error { return tx.Rollback() },
				Corrupt: func(_ context.Context, id outbox.ID) error {
					store.Corrupt(id, errors.New("overwritten"))
					return nil
				},
			}
		},
	}
	_ = func(t *testing.T) { storetest.Run(t, harness) }
	_ = func(t *testing.T) { storetest.Model(t, harness, nil) }
}
