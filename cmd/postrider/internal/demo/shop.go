package demo

import (
	"context"
	"database/sql"
	"errors"
	"fmt"
	"math"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"github.com/postrider/postrider/cmd/postrider/internal/app"
	"github.com/postrider/postrider/outbox"
)

// placed is the order as the shop tells it to the world.
type placed struct {
	Customer int64 `json:"customer"`
	Number   int64 `json:"number"` // among the customer's orders
	Cents    int64 `json:"cents"`
}

// orderType is the wire type of placed.
const orderType = "shop.order.placed"

func orderTypes() (*outbox.Types, error) {
	types := outbox.NewTypes()
	return types, outbox.Register(types, orderType, 1, outbox.JSON[placed]())
}

// shop is the business: its database, its outbox and its producers.
type shop struct {
	engine
	opts    Options
	db      *app.Store // the producers' transactions
	read    *app.Store // everything that only looks
	begin   func(context.Context) (orderTx, error)
	subject string
	wake    func()       // after a commit
	arrived func() int64 // messages that the consumer has applied

	// turn is taken by every transaction on SQLite, where only one can write:
	// waiting in a queue of the program is fairer than polling for the file's
	// lock, and the pause that follows a transaction falls to the relays.
	turn sync.Mutex

	tickets   atomic.Int64 // orders begun
	placed    atomic.Int64 // for the progress line only
	committed atomic.Int64 // for the progress line only
}

func openShop(ctx context.Context, e engine, opts Options, subject string) (s *shop, err error) {
	s = &shop{engine: e, opts: opts, subject: subject, wake: func() {}, arrived: func() int64 { return 0 }}
	defer func() {
		if err != nil {
			s.close()
		}
	}()
	conns := opts.Producers + 1
	if !e.server() {
		conns = 1
	}
	if s.db, err = e.open(ctx, conns); err != nil {
		return s, err
	}
	if s.read, err = e.open(ctx, 2); err != nil {
		return s, err
	}
	if err := s.db.Migrate(ctx); err != nil {
		return s, fmt.Errorf("create the outbox in %s: %w", e, err)
	}
	if s.begin, err = orders(s.db); err != nil {
		return s, err
	}
	err = e.tables(ctx, s.db.DB,
		`CREATE TABLE {customers} (id BIGINT PRIMARY KEY, orders BIGINT NOT NULL)`,
		`CREATE TABLE {orders} (message VARCHAR(36) PRIMARY KEY, customer BIGINT NOT NULL, number BIGINT NOT NULL, cents BIGINT NOT NULL, UNIQUE (customer, number))`,
		// The diary is written after the fact, outside the order's own
		// transaction: what was rolled back stands there too. Nanoseconds
		// since 1970.
		`CREATE TABLE {diary} (message VARCHAR(36) PRIMARY KEY, began BIGINT NOT NULL, committing BIGINT NOT NULL, committed BIGINT NOT NULL)`,
		`CREATE TABLE {kills} (at BIGINT NOT NULL, relay BIGINT NOT NULL, undelivered BIGINT NOT NULL)`,
	)
	if err != nil {
		return s, err
	}
	return s, s.insert(ctx, "customers", 2, opts.Customers, func(i int) []any { return []any{i + 1, 0} })
}

func (s *shop) close() {
	for _, db := range []*app.Store{s.db, s.read} {
		if db != nil {
			db.Close()
		}
	}
}

// insert writes rows of so many columns in one transaction.
func (s *shop) insert(ctx context.Context, table string, columns, rows int, row func(int) []any) error {
	const chunk = 100
	defer s.take()()
	tx, err := s.db.DB.BeginTx(ctx, nil)
	if err != nil {
		return fmt.Errorf("begin a transaction in %s: %w", s.engine, err)
	}
	defer tx.Rollback()
	marks := "(?" + strings.Repeat(", ?", columns-1) + ")"
	for from := 0; from < rows; from += chunk {
		n := min(chunk, rows-from)
		args := make([]any, 0, n*columns)
		for i := range n {
			args = append(args, row(from+i)...)
		}
		q := s.text("INSERT INTO {" + table + "} VALUES " + marks + strings.Repeat(", "+marks, n-1))
		if _, err := tx.ExecContext(ctx, q, args...); err != nil {
			return fmt.Errorf("write %s in %s: %w", table, s.engine, err)
		}
	}
	if err := tx.Commit(); err != nil {
		return fmt.Errorf("write %s in %s: %w", table, s.engine, err)
	}
	return nil
}

// take waits for the turn to write, and gives it back when the returned
// function is called.
func (s *shop) take() (release func()) {
	if s.server() {
		return func() {}
	}
	s.turn.Lock()
	return s.turn.Unlock
}

// produce places orders by all producers until next says no or one fails.
func (s *shop) produce(ctx context.Context, next func(context.Context, int64) bool) error {
	ctx, cancel := context.WithCancelCause(ctx)
	defer cancel(nil)
	var wg sync.WaitGroup
	for range s.opts.Producers {
		wg.Go(func() {
			var diary []Entry
			for ctx.Err() == nil {
				ticket := s.tickets.Add(1) - 1
				if !next(ctx, ticket) {
					break
				}
				e, err := s.place(ctx, ticket)
				if e.Message != "" {
					diary = append(diary, e)
				}
				if err != nil {
					cancel(err)
					break
				}
				if len(diary) == 100 {
					if err := s.write(ctx, diary); err != nil {
						cancel(err)
					}
					diary = diary[:0]
				}
			}
			if err := s.write(ctx, diary); err != nil {
				cancel(err)
			}
		})
	}
	wg.Wait()
	return context.Cause(ctx)
}

func (s *shop) write(ctx context.Context, diary []Entry) error {
	ns := func(t time.Time) int64 {
		if t.IsZero() {
			return 0
		}
		return t.UnixNano()
	}
	return s.insert(ctx, "diary", 4, len(diary), func(i int) []any {
		e := diary[i]
		return []any{e.Message, ns(e.Began), ns(e.Committing), ns(e.Committed)}
	})
}

// plan is what happens to one order, chosen by seed and ticket alone.
type plan struct {
	customer int64
	cents    int64
	open     time.Duration // how long the transaction stays open after Publish
	rollback bool
	last     bool // it commits after later orders have arrived, if they do soon
}

func (s *shop) plan(ticket int64) plan {
	r := rand.New(rand.NewPCG(s.opts.Seed, uint64(ticket)))
	p := plan{
		customer: r.Int64N(int64(s.opts.Customers)) + 1,
		cents:    r.Int64N(50_000) + 1,
		rollback: r.IntN(100) < s.opts.Rollback,
	}
	switch {
	case ticket%200 == 100:
		p.open = 500 * time.Millisecond
		p.last = s.server() && ticket+100 <= int64(s.opts.Orders)
	case r.IntN(3) == 0:
		// 1 to 30 ms, short ones more often, as in life.
		p.open = time.Duration(float64(time.Millisecond) * math.Pow(30, r.Float64()))
	}
	return p
}

// orderTimeout turns a database that hangs into an error.
const orderTimeout = time.Minute

var errRollback = errors.New("rolled back on purpose")

// place runs one order. The entry is empty if the order was not placed.
func (s *shop) place(ctx context.Context, ticket int64) (Entry, error) {
	ctx, cancel := context.WithTimeoutCause(ctx, orderTimeout, fmt.Errorf("an order took more than %v in %s", orderTimeout, s.engine))
	defer cancel()
	p := s.plan(ticket)
	id := outbox.NewID()
	e := Entry{Message: id.String()}

	release := s.take()
	e.Began = time.Now()
	err := s.transaction(ctx, p, id, &e)
	if !s.server() {
		// A relay that waits for SQLite's lock looks for it in steps that grow
		// to 100 ms: the longer it was kept waiting, the longer the pause that
		// it needs to get in.
		pause(ctx, 500*time.Microsecond+min(p.open/3, 100*time.Millisecond))
	}
	release()

	switch {
	case errors.Is(err, errRollback):
		s.placed.Add(1)
		return e, nil
	case err != nil && ctx.Err() != nil:
		return Entry{}, context.Cause(ctx)
	case err != nil:
		var refused *pgconn.PgError
		if errors.As(err, &refused) && refused.Code == "53300" {
			err = fmt.Errorf("%w: use fewer --producers or --relays, or raise max_connections of the server", err)
		}
		return Entry{}, fmt.Errorf("place an order in %s: %w", s.engine, err)
	}
	s.placed.Add(1)
	s.committed.Add(1)
	s.wake()
	return e, nil
}

func (s *shop) transaction(ctx context.Context, p plan, id outbox.ID, e *Entry) error {
	tx, err := s.begin(ctx)
	if err != nil {
		return err
	}
	defer tx.rollback()
	// The customer's row is locked first: from here on the numbers, the
	// messages and the commits of one customer are in one order.
	order := placed{Customer: p.customer, Cents: p.cents}
	if order.Number, err = tx.number(ctx, s.engine, p.customer); err != nil {
		return err
	}
	err = tx.exec(ctx, s.text(`INSERT INTO {orders} VALUES (?, ?, ?, ?)`), e.Message, order.Customer, order.Number, order.Cents)
	if err != nil {
		return err
	}
	key := fmt.Appendf(nil, "customer-%d", order.Customer)
	err = tx.publish(ctx, outbox.Publication{
		ID:      id,
		Value:   order,
		Message: outbox.Message{Destination: fmt.Sprintf("%s.%d", s.subject, order.Customer), Key: key},
	})
	if err != nil {
		return err
	}
	passed := s.committed.Load() + 50 // those come later, and some of the same lane
	pause(ctx, p.open)
	if p.last {
		s.letPass(ctx, passed)
	}
	if p.rollback {
		if err := tx.rollback(); err != nil {
			return err
		}
		return errRollback
	}
	e.Committing = time.Now()
	err = tx.commit(ctx)
	e.Committed = time.Now()
	return err
}

// letPass waits until so many messages have arrived, but 5 s at most: relays on a
// busy machine may be far behind, and nothing would be committed late.
func (s *shop) letPass(ctx context.Context, messages int64) {
	for begin := time.Now(); s.arrived() < messages && time.Since(begin) < 5*time.Second && ctx.Err() == nil; {
		pause(ctx, 5*time.Millisecond)
	}
}

func pause(ctx context.Context, d time.Duration) {
	if d <= 0 {
		return
	}
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-t.C:
	case <-ctx.Done():
	}
}

// pending counts the rows in the outbox, whatever they wait for.
func (s *shop) pending(ctx context.Context) (int64, error) {
	return count(ctx, s.read.DB, s.text(`SELECT (SELECT count(*) FROM {postrider_outbox}) + (SELECT count(*) FROM {postrider_deferred})`))
}

// orders counts the committed orders.
func (s *shop) orders(ctx context.Context) (int64, error) {
	return count(ctx, s.read.DB, s.text(`SELECT count(*) FROM {orders}`))
}

// record reads what the shop's database says at the end.
func (s *shop) record(ctx context.Context, r *Recorded) (err error) {
	r.Server = s.server()
	if r.Committed, err = readOrders(ctx, s.read.DB, s.text(`SELECT message, customer, number FROM {orders}`)); err != nil {
		return err
	}
	rows, err := s.read.DB.QueryContext(ctx, s.text(`SELECT message, began, committing, committed FROM {diary}`))
	if err != nil {
		return fmt.Errorf("read the diary: %w", err)
	}
	defer rows.Close()
	at := func(ns int64) time.Time {
		if ns == 0 {
			return time.Time{}
		}
		return time.Unix(0, ns)
	}
	for rows.Next() {
		var e Entry
		var began, committing, committed int64
		if err := rows.Scan(&e.Message, &began, &committing, &committed); err != nil {
			return fmt.Errorf("read the diary: %w", err)
		}
		e.Began, e.Committing, e.Committed = at(began), at(committing), at(committed)
		r.Diary = append(r.Diary, e)
	}
	if err := rows.Err(); err != nil {
		return fmt.Errorf("read the diary: %w", err)
	}
	if r.Pending, err = s.pending(ctx); err != nil {
		return err
	}
	if r.Dead, err = count(ctx, s.read.DB, s.text(`SELECT count(*) FROM {postrider_dead}`)); err != nil {
		return err
	}
	r.Kills, err = count(ctx, s.read.DB, s.text(fmt.Sprintf(`SELECT count(*) FROM {kills} WHERE undelivered >= %d`, killBacklog)))
	return err
}

// readOrders reads rows of message, customer and number.
func readOrders(ctx context.Context, db *sql.DB, q string) (all []Order, err error) {
	rows, err := db.QueryContext(ctx, q)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", q, err)
	}
	defer rows.Close()
	for rows.Next() {
		var o Order
		if err := rows.Scan(&o.Message, &o.Customer, &o.Number); err != nil {
			return nil, fmt.Errorf("%s: %w", q, err)
		}
		all = append(all, o)
	}
	if err := rows.Err(); err != nil {
		return nil, fmt.Errorf("%s: %w", q, err)
	}
	return all, nil
}
