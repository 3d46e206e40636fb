package sqlstore_test

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"slices"
	"sync"
	"testing"
	"time"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/sqlstore"
)

// counter is a connector that counts the statements sent to the database.
type counter struct {
	base driver.Driver
	dsn  string

	// instead are texts that are sent in the place of others.
	instead map[string]string
	// around runs each statement, where it is set, and may put an error in the place of
	// its result.
	around func(c driver.Conn, run func()) error

	mu    sync.Mutex
	texts []string
}

func (c *counter) Driver() driver.Driver { return counted{} }

func (c *counter) Connect(context.Context) (driver.Conn, error) {
	conn, err := c.base.Open(c.dsn)
	if err != nil {
		return nil, err
	}
	return &countedConn{conn, c}, nil
}

// since returns what was sent during fn.
func (c *counter) since(fn func()) []string {
	c.mu.Lock()
	c.texts = nil
	c.mu.Unlock()
	fn()
	c.mu.Lock()
	defer c.mu.Unlock()
	return c.texts
}

// count returns how often that text was sent.
func (c *counter) count(text string) (n int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, sent := range c.texts {
		if sent == text {
			n++
		}
	}
	return n
}

func (c *counter) add(text string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.texts = append(c.texts, text)
}

type counted struct{}

func (counted) Open(string) (driver.Conn, error) { panic("opened by its connector") }

type countedConn struct {
	driver.Conn
	c *counter
}

func (c *countedConn) ExecContext(ctx context.Context, text string, args []driver.NamedValue) (res driver.Result, err error) {
	c.c.add(text)
	run := func() { res, err = c.Conn.(driver.ExecerContext).ExecContext(ctx, text, args) }
	if c.c.around == nil {
		run()
	} else if lost := c.c.around(c.Conn, run); lost != nil {
		return nil, lost
	}
	return res, err
}

func (c *countedConn) QueryContext(ctx context.Context, text string, args []driver.NamedValue) (rows driver.Rows, err error) {
	c.c.add(text)
	if other, ok := c.c.instead[text]; ok {
		text = other
	}
	run := func() { rows, err = c.Conn.(driver.QueryerContext).QueryContext(ctx, text, args) }
	if c.c.around == nil {
		run()
	} else if lost := c.c.around(c.Conn, run); lost != nil {
		return nil, lost
	}
	return rows, err
}

func (c *countedConn) BeginTx(ctx context.Context, opts driver.TxOptions) (driver.Tx, error) {
	return c.Conn.(driver.ConnBeginTx).BeginTx(ctx, opts)
}

func (c *countedConn) CheckNamedValue(v *driver.NamedValue) error {
	if n, ok := c.Conn.(driver.NamedValueChecker); ok {
		return n.CheckNamedValue(v)
	}
	return driver.ErrSkip
}

// counted opens a pool without tables whose statements are counted. Where a
// driver may send arguments in a round trip of their own, it is told not to.
func (e engine) counted(tb testing.TB) (*sql.DB, *counter) {
	tb.Helper()
	dsn := e.dsn(tb)
	if e.dialect == sqlstore.MySQL {
		dsn = withSetting(dsn, "interpolateParams", "true")
	}
	c := &counter{base: e.open(tb, dsn).Driver(), dsn: dsn}
	db := sql.OpenDB(c)
	tb.Cleanup(func() { db.Close() })
	return db, c
}

// TestStatementBudget: enqueueing, reading and settling cost statements by the
// call and not by the message.
func TestStatementBudget(t *testing.T) {
	onSQL(t, func(t *testing.T, e engine) {
		db, c := e.counted(t)
		s, err := sqlstore.New(db, e.dialect, nil)
		if err != nil {
			t.Fatal(err)
		}
		ctx := t.Context()
		if err := s.Migrate(ctx); err != nil {
			t.Fatal(err)
		}
		budget := func(what string, limit int, fn func()) {
			t.Helper()
			if texts := c.since(fn); len(texts) > limit || len(texts) == 0 {
				t.Errorf("%s cost %d statements, limit %d: %q", what, len(texts), limit, texts)
			}
		}
		recs := func(n int, key string, at time.Time) []outbox.Record {
			list := make([]outbox.Record, n)
			for i := range list {
				list[i] = record(key)
				list[i].Message.DeliverAt = at
			}
			return list
		}
		tx, err := db.BeginTx(ctx, nil)
		if err != nil {
			t.Fatal(err)
		}
		defer tx.Rollback()
		put := func(list ...outbox.Record) func() {
			return func() {
				t.Helper()
				if err := s.Enlist(ctx, tx, list...); err != nil {
					t.Fatal(err)
				}
			}
		}
		looks, alone, marked, above, promoted, pending := 0, 1, 1, 1, 8, 3
		switch {
		case e.single:
			marked = 5 // a transaction, which is no round trip there
		case e.dialect == sqlstore.MySQL:
			// Ids that are the caller's own are looked for before; a transaction is
			// three statements; keys are looked for below the cursor after a read; and
			// what writes returns no rows.
			looks, alone, marked, above, promoted, pending = 1, 3, 5, 2, 10, 4
		}
		budget("enlisting 1 message", 1+looks, put(record("k")))
		budget("enlisting 100 messages", 1+looks, put(recs(99, "k", time.Time{})...))
		budget("enlisting 100 scheduled messages", 1+looks, put(recs(100, "", time.Now().Add(-time.Hour))...))
		budget("enlisting 3,000 messages", 3*(1+looks), put(recs(3000, "", time.Time{})...))
		box, err := outbox.New[sqlstore.Tx](s, &outbox.Options{Transport: "default", Source: "/test"})
		if err != nil {
			t.Fatal(err)
		}
		if err := outbox.Register(box.Types(), "note", 1, outbox.Bytes("")); err != nil {
			t.Fatal(err)
		}
		note := outbox.Publication{Value: []byte("x"), Message: outbox.Message{Destination: "notes"}}
		publish := func(n int) func() {
			return func() {
				t.Helper()
				if _, err := box.PublishAll(ctx, tx, slices.Repeat([]outbox.Publication{note}, n)); err != nil {
					t.Fatal(err)
				}
			}
		}
		budget("publishing 1 message", 1, publish(1))
		budget("publishing 100 messages", 1, publish(100))
		if err := tx.Commit(); err != nil {
			t.Fatal(err)
		}

		ses, err := s.LaneSession(ctx, "settle")
		if err != nil {
			t.Fatal(err)
		}
		defer ses.Close()
		owner := outbox.NewID()
		var g outbox.LaneGrant
		acquire := func(r outbox.LaneRequest) func() {
			return func() {
				t.Helper()
				r.Owner, r.Routes, r.TTL = owner, []string{"default"}, time.Minute
				if g, err = ses.AcquireLanes(ctx, r); err != nil {
					t.Fatal(err)
				}
			}
		}
		budget("acquiring 24 lanes", 13, acquire(outbox.LaneRequest{Want: 100}))
		budget("renewing 24 lanes", 9, acquire(outbox.LaneRequest{}))

		lane := outbox.LaneOf(outbox.Route{First: 1, Ordered: 16, Unordered: 8}, outbox.ID{}, []byte("k"))
		rows := make([]outbox.LaneRow, 128)
		n := 0
		budget("reading 100 rows", 1, func() {
			if n, err = ses.ReadLanes(ctx, []outbox.LaneRead{{Lane: lane}}, rows); err != nil || n != 100 {
				t.Fatalf("read: got %d rows, %v, want 100", n, err)
			}
		})
		budget("reading 99 rows above a cursor", above, func() {
			above := make([]outbox.LaneRow, 128)
			if n, err := ses.ReadLanes(ctx, []outbox.LaneRead{{Lane: lane, After: rows[0].Pos}}, above); err != nil || n != 99 {
				t.Fatalf("read: got %d rows, %v, want 99", n, err)
			}
		})
		settle := func(outcome outbox.SettleOutcome, rows []outbox.LaneRow, tried bool) func() {
			return func() {
				t.Helper()
				r := outbox.SettleRequest{Owner: owner}
				for _, row := range rows {
					r.Settlements = append(r.Settlements, outbox.Settlement{
						Lane: row.Lane, Epoch: 1, Pos: row.Pos, ID: row.Record.ID, Outcome: outcome, Attempts: row.Record.Attempts, Attempt: true, Reason: "no",
					})
				}
				if tried {
					r.TriedTo = []outbox.LaneMark{{Lane: lane, Epoch: 1, Pos: rows[len(rows)-1].Pos}}
				}
				res, err := ses.SettleLanes(ctx, r)
				if err != nil {
					t.Fatal(err)
				}
				for i, got := range res {
					if got != outbox.Settled {
						t.Fatalf("settlement %d of outcome %d: got %d", i, outcome, got)
					}
				}
			}
		}
		budget("settling 20 failed rows", 6, settle(outbox.SettleFailed, rows[80:100], false))
		for i := range rows[80:100] {
			rows[80+i].Record.Attempts++
		}
		budget("burying 20 rows", 8, settle(outbox.SettleDead, rows[80:100], false))
		budget("settling 40 accepted rows and a mark", marked, settle(outbox.SettleAccepted, rows[:40], true))
		budget("settling 40 accepted rows", alone, settle(outbox.SettleAccepted, rows[40:80], false))
		budget("promoting 100 rows", promoted, func() {
			if n, _, err = ses.PromoteLanes(ctx, g.Leases, rows); err != nil || n != 100 {
				t.Fatalf("promote: got %d rows, %v, want 100", n, err)
			}
		})
		recent := make([]outbox.Record, 100)
		budget("reading 100 pending rows", pending, func() {
			if n, err = s.ReadPending(ctx, outbox.ReadRequest{Now: time.Now()}, recent); err != nil || n != 100 {
				t.Fatalf("read pending: got %d rows, %v, want 100", n, err)
			}
		})
	})
}

var _ sqlstore.Tx = (*sql.Tx)(nil)
