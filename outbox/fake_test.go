package outbox_test

import (
	"context"
	"errors"
	"sync"
	"testing"

	"github.com/postrider/postrider/outbox"
)

// fakeDB is a database with one outbox table: an Enlister and a Beginner. Its
// log names what was done, in order.
type fakeDB struct {
	// Set before use: errors and hooks of the statements.
	beginErr, enlistErr, commitErr, rollbackErr error
	onCommit                                    func(ctx context.Context)
	onRollback                                  func(ctx context.Context)

	mu        sync.Mutex
	log       []string
	committed []outbox.Record
	business  []string
	enlists   int
}

type fakeTx struct {
	db       *fakeDB
	done     bool
	recs     []outbox.Record
	business []string
}

func (db *fakeDB) note(what string) {
	db.mu.Lock()
	defer db.mu.Unlock()
	db.log = append(db.log, what)
}

// exec is a business statement.
func (tx *fakeTx) exec(what string) {
	tx.db.note("exec")
	tx.db.mu.Lock()
	defer tx.db.mu.Unlock()
	tx.business = append(tx.business, what)
}

func (db *fakeDB) Enlist(_ context.Context, tx *fakeTx, recs ...outbox.Record) error {
	db.note("enlist")
	db.mu.Lock()
	defer db.mu.Unlock()
	db.enlists++
	if tx.done {
		return outbox.ErrTxDone
	}
	if db.enlistErr != nil {
		return db.enlistErr
	}
	for _, rec := range recs {
		if err := rec.Normalize(0); err != nil {
			return err
		}
		rec.Message = rec.Message.Clone()
		tx.recs = append(tx.recs, rec)
	}
	return nil
}

func (db *fakeDB) Begin(ctx context.Context) (*fakeTx, error) {
	db.note("begin")
	if db.beginErr != nil {
		return nil, db.beginErr
	}
	return &fakeTx{db: db}, ctx.Err()
}

func (db *fakeDB) Commit(ctx context.Context, tx *fakeTx) error {
	db.note("commit")
	if db.onCommit != nil {
		db.onCommit(ctx)
	}
	if db.commitErr != nil {
		return db.commitErr
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	if tx.done {
		return errors.New("commit of a transaction that has ended")
	}
	tx.done = true
	db.committed = append(db.committed, tx.recs...)
	db.business = append(db.business, tx.business...)
	return nil
}

func (db *fakeDB) Rollback(ctx context.Context, tx *fakeTx) error {
	db.note("rollback")
	if db.onRollback != nil {
		db.onRollback(ctx)
	}
	db.mu.Lock()
	defer db.mu.Unlock()
	tx.done = true
	return db.rollbackErr
}

// rows are the committed messages.
func (db *fakeDB) rows() []outbox.Record {
	db.mu.Lock()
	defer db.mu.Unlock()
	return append([]outbox.Record(nil), db.committed...)
}

func (db *fakeDB) history() []string {
	db.mu.Lock()
	defer db.mu.Unlock()
	return append([]string(nil), db.log...)
}

type placed struct {
	Order int    `json:"order"`
	Note  string `json:"note,omitempty"`
}

type note struct{ Text string }

// shopTypes has one type of each kind the tests need.
func shopTypes(t testing.TB) *outbox.Types {
	t.Helper()
	ts := outbox.NewTypes()
	failing := outbox.JSON[failure]()
	failing.Encode = func(f failure) ([]byte, error) { return []byte("half"), f.err }
	panicking := outbox.JSON[panicker]()
	panicking.Encode = func(p panicker) ([]byte, error) { panic(p.value) }
	err := errors.Join(
		outbox.Register(ts, "shop.order.placed", 1, outbox.JSON[placed]()),
		outbox.Register(ts, "shop.order.pointer", 1, outbox.JSON[*placed]()),
		outbox.Register(ts, "shop.note", 1, outbox.JSON[note]()),
		outbox.Register(ts, "shop.note", 2, outbox.JSON[note]()),
		outbox.Register(ts, "shop.blob", 1, outbox.Bytes("application/octet-stream")),
		outbox.Register(ts, "shop.failure", 1, failing),
		outbox.Register(ts, "shop.panic", 1, panicking),
	)
	if err != nil {
		t.Fatal(err)
	}
	return ts
}

type failure struct{ err error }

type panicker struct{ value any }

// newShop returns an outbox with the types of shopTypes over a new database.
func newShop(t testing.TB, opts outbox.Options) (*fakeDB, *outbox.Outbox[*fakeTx]) {
	t.Helper()
	db := &fakeDB{}
	if opts.Types == nil {
		opts.Types = shopTypes(t)
	}
	if opts.Transport == "" {
		opts.Transport = "orders"
	}
	if opts.Source == "" {
		opts.Source = "/shop"
	}
	ob, err := outbox.New(db, &opts)
	if err != nil {
		t.Fatal(err)
	}
	return db, ob
}

// order is a valid publication.
func order(n int) outbox.Publication {
	return outbox.Publication{Value: placed{Order: n}, Message: outbox.Message{Destination: "shop.orders"}}
}
