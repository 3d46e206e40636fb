package pgxstore_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/inbox/inboxtest"
	"github.com/postrider/postrider/integration/testenv"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/pgxstore"
)

// trips counts round trips: statements, and batches of them.
type trips struct {
	mu   sync.Mutex
	made []string
}

func (t *trips) add(what string) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.made = append(t.made, what)
}

func (t *trips) since(fn func()) []string {
	t.mu.Lock()
	t.made = nil
	t.mu.Unlock()
	fn()
	t.mu.Lock()
	defer t.mu.Unlock()
	return t.made
}

func (t *trips) TraceQueryStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceQueryStartData) context.Context {
	t.add(d.SQL)
	return ctx
}

func (t *trips) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData) {}

func (t *trips) TraceBatchStart(ctx context.Context, _ *pgx.Conn, d pgx.TraceBatchStartData) context.Context {
	t.add(fmt.Sprintf("batch of %d", d.Batch.Len()))
	return ctx
}

func (t *trips) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (t *trips) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// migrated is a store over new, empty tables.
func migrated(tb testing.TB, opts *pgxstore.Options) (*pgxstore.Store, *pgxpool.Pool) {
	tb.Helper()
	pool := open(tb, testenv.Postgres(tb))
	s := newStore(tb, pool, opts)
	if err := s.Migrate(tb.Context()); err != nil {
		tb.Fatal(err)
	}
	return s, pool
}

func number(tb testing.TB, pool *pgxpool.Pool, text string, args ...any) (n int64) {
	tb.Helper()
	if err := pool.QueryRow(tb.Context(), text, args...).Scan(&n); err != nil {
		tb.Fatalf("%s: %v", text, err)
	}
	return n
}

func records(n int, key string) []outbox.Record {
	list := make([]outbox.Record, n)
	for i := range list {
		list[i] = record(key)
	}
	return list
}

// TestRoundTrips: enlisting, reading and settling cost round trips by the call.
func TestRoundTrips(t *testing.T) {
	t.Parallel()
	cfg, err := pgxpool.ParseConfig(withParam(t, testenv.Postgres(t), "pool_max_conns", "8"))
	if err != nil {
		t.Fatal(err)
	}
	c := &trips{}
	cfg.ConnConfig.Tracer = c
	pool, err := pgxpool.NewWithConfig(t.Context(), cfg)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	s := newStore(t, pool, &pgxstore.Options{Routes: []outbox.Route{{Name: "default"}, {Name: "mail"}}})
	ctx := t.Context()
	if err := s.Migrate(ctx); err != nil {
		t.Fatal(err)
	}
	budget := func(what string, limit int, fn func() error) {
		t.Helper()
		var err error
		if made := c.since(func() { err = fn() }); len(made) > limit || len(made) == 0 {
			t.Errorf("%s cost %d round trips, limit %d: %q", what, len(made), limit, made)
		}
		if err != nil {
			t.Fatalf("%s: %v", what, err)
		}
	}
	tx, err := pool.Begin(ctx)
	if err != nil {
		t.Fatal(err)
	}
	defer tx.Rollback(ctx)
	mixed := records(200, "k")
	for i := range mixed {
		if i%2 == 1 {
			mixed[i].Transport = "mail"
		}
		if i%4 > 1 {
			mixed[i].Message.DeliverAt = time.Now().Add(time.Hour)
		}
	}
	budget("enlisting a message", 1, func() error { return s.Enlist(ctx, tx, record("k")) })
	budget("enlisting 1,000 messages", 1, func() error { return s.Enlist(ctx, tx, records(1000, "k")...) })
	budget("enlisting 3,000 messages", 1, func() error { return s.Enlist(ctx, tx, records(3000, "k")...) })
	budget("enlisting for two routes, now and later", 1, func() error { return s.Enlist(ctx, tx, mixed...) })
	if err := tx.Commit(ctx); err != nil {
		t.Fatal(err)
	}

	ses, err := s.LaneSession(ctx, "settle")
	if err != nil {
		t.Fatal(err)
	}
	defer ses.Close()
	owner := outbox.NewID()
	g, err := ses.AcquireLanes(ctx, outbox.LaneRequest{Owner: owner, Routes: []string{"default"}, Want: 100, TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	lane := outbox.LaneOf(outbox.Route{First: 1, Ordered: 16, Unordered: 8}, outbox.ID{}, []byte("k"))
	rows, after := make([]outbox.LaneRow, 1024), int64(0)
	r := outbox.SettleRequest{Owner: owner}
	for len(r.Settlements) < 3500 {
		n := 0
		budget("reading 1,024 rows", 1, func() (err error) {
			n, err = ses.ReadLanes(ctx, []outbox.LaneRead{{Lane: lane, After: after}}, rows)
			return err
		})
		if n == 0 {
			t.Fatalf("%d rows in the lane", len(r.Settlements))
		}
		for _, row := range rows[:n] {
			after = row.Pos
			r.Settlements = append(r.Settlements, outbox.Settlement{Lane: row.Lane, Epoch: g.Leases[lane-1].Epoch, Pos: row.Pos, ID: row.Record.ID, Outcome: outbox.SettleAccepted})
		}
	}
	r.TriedTo = []outbox.LaneMark{{Lane: lane, Epoch: g.Leases[lane-1].Epoch, Pos: after}}
	// One of them twice, one that is not there.
	r.Settlements = append(r.Settlements, r.Settlements[7], outbox.Settlement{Lane: lane, Epoch: 1, Pos: after + 1, ID: outbox.NewID(), Outcome: outbox.SettleAccepted})
	var res []outbox.SettleResult
	budget("settling 3,500 rows and a mark", 6, func() (err error) {
		res, err = ses.SettleLanes(ctx, r)
		return err
	})
	gone := 0
	for _, got := range res {
		if got == outbox.Gone {
			gone++
		}
	}
	if gone != 2 {
		t.Errorf("settlements gone: %d of %d, want the repeated and the missing one", gone, len(res))
	}
	if n := number(t, pool, `SELECT tried_to FROM postrider_lane_marks WHERE lane = $1`, lane); n != after {
		t.Errorf("tried to: %d, want %d", n, after)
	}
}

// TestPipelinedSettleIsAllOrNothing: an error in the second thousand leaves the
// first where it was.
func TestPipelinedSettleIsAllOrNothing(t *testing.T) {
	t.Parallel()
	s, pool := migrated(t, nil)
	ctx := t.Context()
	if err := pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error { return s.Enlist(ctx, tx, records(1500, "k")...) }); err != nil {
		t.Fatal(err)
	}
	ses, err := s.LaneSession(ctx, "settle")
	if err != nil {
		t.Fatal(err)
	}
	defer ses.Close()
	lane := outbox.LaneOf(outbox.Route{First: 1, Ordered: 16, Unordered: 8}, outbox.ID{}, []byte("k"))
	r := outbox.SettleRequest{Owner: outbox.NewID()}
	for after := int64(0); len(r.Settlements) < 1500; {
		rows := make([]outbox.LaneRow, 1024)
		n, err := ses.ReadLanes(ctx, []outbox.LaneRead{{Lane: lane, After: after}}, rows)
		if err != nil || n == 0 {
			t.Fatal(n, err)
		}
		for _, row := range rows[:n] {
			after = row.Pos
			r.Settlements = append(r.Settlements, outbox.Settlement{Lane: lane, Pos: row.Pos, ID: row.Record.ID, Outcome: outbox.SettleAccepted})
		}
	}
	last := r.Settlements[1499].ID
	if _, err := pool.Exec(ctx, `CREATE FUNCTION refuse() RETURNS trigger LANGUAGE plpgsql AS $$ BEGIN IF OLD.id = '`+last.String()+`' THEN RAISE 'refused'; END IF; RETURN OLD; END $$;
		CREATE TRIGGER refuse BEFORE DELETE ON postrider_outbox FOR EACH ROW EXECUTE FUNCTION refuse()`); err != nil {
		t.Fatal(err)
	}
	if _, err := ses.SettleLanes(ctx, r); err == nil || !strings.Contains(err.Error(), "refused") {
		t.Fatalf("got %v", err)
	}
	if n := number(t, pool, `SELECT count(*) FROM postrider_outbox`); n != 1500 {
		t.Errorf("%d rows are left of 1,500", n)
	}
}

// TestQueue: the statements go with the caller's own, and what they say is
// checked when the batch is closed.
func TestQueue(t *testing.T) {
	t.Parallel()
	for _, mode := range []string{"cache_statement", "cache_describe", "describe_exec", "exec", "simple_protocol"} {
		t.Run(mode, func(t *testing.T) {
			t.Parallel()
			pool := open(t, withParam(t, testenv.Postgres(t), "default_query_exec_mode", mode))
			s := newStore(t, pool, nil)
			ctx := t.Context()
			if err := s.Migrate(ctx); err != nil {
				t.Fatal(err)
			}
			if _, err := pool.Exec(ctx, `CREATE TABLE orders (id integer PRIMARY KEY)`); err != nil {
				t.Fatal(err)
			}
			place := func(order int, recs ...outbox.Record) error {
				return pgx.BeginFunc(ctx, pool, func(tx pgx.Tx) error {
					b := &pgx.Batch{}
					b.Queue(`INSERT INTO orders VALUES ($1)`, order)
					if err := s.Queue(ctx, b, recs...); err != nil {
						return err
					}
					for i := range recs {
						clear(recs[i].Message.Body) // lent until Queue returns
					}
					return tx.SendBatch(ctx, b).Close()
				})
			}
			one, many := record("k"), records(5, "k")
			one.Message.Body = []byte("body")
			many[3].Message.DeliverAt = time.Now().Add(time.Hour)
			if err := place(1, one); err != nil {
				t.Fatal(err)
			}
			if err := place(2, many...); err != nil {
				t.Fatal(err)
			}
			if n := number(t, pool, `SELECT count(*) FROM postrider_outbox WHERE body = 'body'::bytea OR length(body) = 1024`); n != 5 {
				t.Errorf("hot rows: %d, want 5", n)
			}
			for i, recs := range [][]outbox.Record{{one}, {record("k"), many[1], record("k")}, {record("k"), many[3]}} {
				err := place(3+i, recs...)
				if !errors.Is(err, outbox.ErrDuplicateID) {
					t.Errorf("duplicates %d: got %v, want outbox.ErrDuplicateID", i, err)
				}
			}
			if n := number(t, pool, `SELECT count(*) FROM orders`); n != 2 {
				t.Errorf("orders: %d, want 2", n)
			}
			bad := record("k")
			bad.Transport = "unknown"
			b := &pgx.Batch{}
			if err := s.Queue(ctx, b, record("k"), bad); !errors.Is(err, outbox.ErrUnknownRoute) || b.Len() != 0 {
				t.Errorf("an unknown route: got %v and %d statements", err, b.Len())
			}
			if err := s.Queue(ctx, nil, record("k")); !errors.Is(err, outbox.ErrInvalidArgument) {
				t.Errorf("no batch: got %v", err)
			}
		})
	}
}

// TestTransactionsThatCannotServe is refused before any statement.
func TestTransactionsThatCannotServe(t *testing.T) {
	t.Parallel()
	s, pool := migrated(t, nil)
	ctx := t.Context()
	for _, tx := range []pgx.Tx{nil, (*pgxpool.Tx)(nil)} {
		if err := s.Enlist(ctx, tx, record("k")); !errors.Is(err, outbox.ErrInvalidArgument) {
			t.Errorf("enlist in %#v: got %v, want outbox.ErrInvalidArgument", tx, err)
		}
	}
	for _, v := range []any{pool, (*pgxpool.Conn)(nil), (*pgx.Conn)(nil)} {
		if _, ok := v.(pgx.Tx); ok {
			t.Errorf("%T passes as a transaction: it would commit alone", v)
		}
	}
	for _, end := range []func(pgx.Tx, context.Context) error{pgx.Tx.Commit, pgx.Tx.Rollback} {
		tx, err := pool.Begin(ctx)
		if err != nil {
			t.Fatal(err)
		}
		if err := end(tx, ctx); err != nil {
			t.Fatal(err)
		}
		later := record("")
		later.Message.DeliverAt = time.Now().Add(time.Hour)
		for _, recs := range [][]outbox.Record{{record("k")}, {record("k"), record("")}, {record("k"), later}} {
			if err := s.Enlist(ctx, tx, recs...); !errors.Is(err, outbox.ErrTxDone) || !errors.Is(err, pgx.ErrTxClosed) {
				t.Errorf("enlist of %d in an ended transaction: got %v, want outbox.ErrTxDone and pgx.ErrTxClosed", len(recs), err)
			}
		}
	}
	if n := number(t, pool, `SELECT count(*) FROM postrider_outbox`); n != 0 {
		t.Errorf("%d rows were written outside of a transaction", n)
	}
}

func TestPoolTooSmall(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t)
	pool, err := pgxpool.New(t.Context(), withParam(t, dsn, "pool_max_conns", "3"))
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(pool.Close)
	s := newStore(t, pool, nil)
	for range 2 {
		ses, err := s.LaneSession(t.Context(), "read")
		if err != nil {
			t.Fatal(err)
		}
		defer ses.Close()
	}
	_, err = s.LaneSession(t.Context(), "read")
	if !errors.Is(err, outbox.ErrInvalidArgument) || !strings.Contains(err.Error(), "pool_max_conns") || !strings.Contains(err.Error(), "needs 5") {
		t.Errorf("a session too many: got %v", err)
	}
}

// TestSessions: a relay's connection has settings of its own, which nobody meets
// on a connection of the pool, and it is closed, not given back.
func TestSessions(t *testing.T) {
	t.Parallel()
	s, pool := migrated(t, nil)
	ctx := t.Context()
	settings := func() string {
		var v string
		err := pool.QueryRow(ctx, `SELECT string_agg(name || '=' || setting, ' ' ORDER BY name) FROM pg_settings
 WHERE name IN ('plan_cache_mode', 'jit', 'enable_seqscan', 'enable_hashjoin', 'statement_timeout', 'application_name', 'default_transaction_isolation')`).Scan(&v)
		if err != nil {
			t.Fatal(err)
		}
		return v
	}
	before := settings()
	var open []outbox.LaneSession
	for _, purpose := range []string{"read", "sweep", "settle", "lease"} {
		ses, err := s.LaneSession(ctx, purpose)
		if err != nil {
			t.Fatal(err)
		}
		open = append(open, ses)
		n := number(t, pool, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name = $1`, "postrider "+purpose)
		if n != 1 {
			t.Errorf("connections for %q: %d, want 1", purpose, n)
		}
	}
	for _, ses := range slices.Backward(open) {
		if err := ses.Close(); err != nil {
			t.Error(err)
		}
		if err := ses.Close(); err != nil {
			t.Errorf("second Close: %v", err)
		}
	}
	for end := time.Now().Add(time.Minute); ; time.Sleep(5 * time.Millisecond) {
		n := number(t, pool, `SELECT count(*) FROM pg_stat_activity WHERE datname = current_database() AND application_name LIKE 'postrider %'`)
		if n == 0 {
			break
		}
		if time.Now().After(end) {
			t.Fatalf("connections of closed sessions: %d", n)
		}
	}
	if _, err := s.ParkKey(ctx, outbox.ParkedKey{Route: "default", Key: []byte("k")}); err != nil {
		t.Fatal(err)
	}
	if after := settings(); after != before {
		t.Errorf("settings of the pool: got %s, want %s", after, before)
	}
}

func TestInbox(t *testing.T) {
	t.Parallel()
	dsn := testenv.Postgres(t)
	inboxtest.Run(t, func(t *testing.T) inboxtest.Fixture[pgx.Tx] {
		pool := open(t, dsn)
		s := newStore(t, pool, &pgxstore.Options{Schema: testenv.Name("inbox_")})
		if err := s.Migrate(t.Context()); err != nil {
			t.Fatal(err)
		}
		return inboxtest.Fixture[pgx.Tx]{
			Store:    s,
			Begin:    func(ctx context.Context) (pgx.Tx, error) { return pool.Begin(ctx) },
			Commit:   func(tx pgx.Tx) error { return tx.Commit(context.Background()) },
			Rollback: func(tx pgx.Tx) error { return tx.Rollback(context.Background()) },
		}
	})
}
