package pgxstore_test

import (
	"context"
	"errors"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/integration/testenv"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/pgxstore"
)

// keeper keeps the records that it passes on.
type keeper struct {
	outbox.Enlister[*pgx.Batch]
	recs []outbox.Record
}

func (k *keeper) Enlist(ctx context.Context, b *pgx.Batch, recs ...outbox.Record) error {
	k.recs = append(k.recs, recs...)
	return k.Enlister.Enlist(ctx, b, recs...)
}

// TestPublishInBatch: an outbox publishes into a batch, one message and many, and
// what is fresh is refused all the same when it comes again.
func TestPublishInBatch(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"cache_statement", "describe_exec", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			publishInBatch(t, open(t, withParam(t, testenv.Postgres(t), "default_query_exec_mode", mode)))
		})
	}
}

func publishInBatch(t *testing.T, pool *pgxpool.Pool) {
	s := newStore(t, pool, nil)
	ctx := t.Context()
	if err := s.Migrate(ctx); err != nil {
		t.Fatal(err)
	}
	k := &keeper{Enlister: pgxstore.InBatch(s)}
	out, err := outbox.New(k, &outbox.Options{Transport: "default", Source: "/test"})
	if err == nil {
		err = outbox.Register(out.Types(), "note", 1, outbox.Bytes(""))
	}
	if err != nil {
		t.Fatal(err)
	}
	send := func(fill func(b *pgx.Batch) error) error {
		return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
			b := &pgx.Batch{}
			if err := fill(b); err != nil {
				return err
			}
			return tx.SendBatch(ctx, b).Close()
		})
	}
	note := func(key string) outbox.Publication {
		return outbox.Publication{Value: []byte("x"), Message: outbox.Message{Destination: "notes", Key: []byte(key)}}
	}
	for _, ps := range [][]outbox.Publication{{note("a")}, {note("a"), note("b"), note("a")}} {
		k.recs = nil
		if err := send(func(b *pgx.Batch) error { _, err := out.PublishAll(ctx, b, ps); return err }); err != nil {
			t.Fatal(err)
		}
		for _, r := range k.recs {
			if !r.Fresh() {
				t.Errorf("%s is not fresh", r.ID)
			}
		}
		again := k.recs
		if err := send(func(b *pgx.Batch) error { return s.Queue(ctx, b, again...) }); !errors.Is(err, outbox.ErrDuplicateID) {
			t.Errorf("%d messages again: got %v, want outbox.ErrDuplicateID", len(ps), err)
		}
	}
	if n := number(t, pool, `SELECT count(*) FROM postrider_outbox`); n != 4 {
		t.Errorf("%d rows, want 4", n)
	}
}
