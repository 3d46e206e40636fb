package pgxstore_test

import (
	"context"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/integration/testenv"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/pgxstore"
)

// atBodyPart calls do before a part of a large body is read.
type atBodyPart struct{ do func() }

func (a *atBodyPart) TraceQueryStart(ctx context.Context, _ *pgx.Conn, q pgx.TraceQueryStartData) context.Context {
	if a.do != nil && strings.HasPrefix(q.SQL, "SELECT substr(o.body") {
		a.do()
	}
	return ctx
}

func (a *atBodyPart) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

// TestRowLeavesWhileItsBodyIsRead: the accepted row of a key is deleted while the
// key is read again. Were the read one row short, it would say that the key has no
// more of them: those behind would be left, and overtaken by the next one.
func TestRowLeavesWhileItsBodyIsRead(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t)
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		t.Fatal(err)
	}
	tracer := &atBodyPart{}
	cfg.ConnConfig.Tracer = tracer
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	s := newStore(t, pool, &pgxstore.Options{MaxBytes: 8 << 20})
	if err := s.Migrate(t.Context()); err != nil {
		t.Fatal(err)
	}
	recs := make([]outbox.Record, 4)
	for i := range recs {
		recs[i] = outbox.Record{ID: outbox.NewID(), Transport: "default", Type: "t", CreatedAt: time.Now(), Message: outbox.Message{Envelope: outbox.Raw, Destination: "d", Key: []byte("k"), Body: make([]byte, 5<<20)}}
	}
	err = pgx.BeginFunc(t.Context(), pool, func(tx pgx.Tx) error { return s.Enlist(t.Context(), tx, recs...) })
	if err != nil {
		t.Fatal(err)
	}
	parts := 0
	tracer.do = func() {
		if parts++; parts == 2 {
			if _, err := pool.Exec(context.Background(), `DELETE FROM postrider_outbox WHERE id = $1`, recs[0].ID.String()); err != nil {
				t.Error(err)
			}
		}
	}
	lane := outbox.LaneOf(outbox.Route{First: 1, Ordered: 16, Unordered: 8}, outbox.ID{}, []byte("k"))
	rows := make([]outbox.LaneRow, 1)
	read := outbox.LaneRead{Lane: lane, Keys: [][]byte{[]byte("k")}}
	n, err := s.ReadLanes(t.Context(), []outbox.LaneRead{read}, rows)
	if err != nil {
		t.Fatal(err)
	}
	if parts < 2 {
		t.Fatalf("the body was read in %d parts", parts)
	}
	if n != 1 {
		t.Fatalf("the read has %d rows of 1: as if there were no more", n)
	}
	if r := rows[0]; r.Record.ID != recs[0].ID || !r.Claimed || r.Record.Message.Body != nil {
		t.Errorf("the row that left: id %s, claimed %v, %d bytes of body; want it not to be sent", r.Record.ID, r.Claimed, len(r.Record.Message.Body))
	}
	if n, err := s.ReadLanes(t.Context(), []outbox.LaneRead{read}, rows); err != nil || n != 1 || rows[0].Record.ID != recs[1].ID || rows[0].Claimed || len(rows[0].Record.Message.Body) != 5<<20 {
		t.Errorf("the next read: got %d rows, %v", n, err)
	}
}
