package sqlcore

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/schema"
)

// Options are what the stores' Options have in common; see there.
type Options struct {
	Schema   string
	Prefix   string
	Routes   []outbox.Route
	MaxBytes int
}

const (
	maxLanes     = 1024 // of one kind and route
	routeTimeout = 5 * time.Second
)

func (o Options) withDefaults() Options {
	if o.Prefix == "" {
		o.Prefix = schema.DefaultPrefix
	}
	if o.MaxBytes == 0 {
		o.MaxBytes = outbox.DefaultSize
	}
	o.Routes = slices.Clone(o.Routes)
	return o
}

func (o Options) names() schema.Names { return schema.Names{Schema: o.Schema, Prefix: o.Prefix} }

func (o *Options) validate(d *Dialect) error {
	if err := o.names().Validate(d.engine); err != nil {
		return invalid("%w", err)
	}
	if o.MaxBytes < 0 {
		return invalid("MaxBytes %d is negative: use a positive number of bytes", o.MaxBytes)
	}
	seen := map[string]bool{}
	for _, r := range o.Routes {
		switch {
		case r.Name == "" || len(r.Name) > outbox.MaxName:
			return invalid("route name %.80q has %d bytes, limit 1 to %d", r.Name, len(r.Name), outbox.MaxName)
		case strings.ContainsFunc(r.Name, func(c rune) bool { return c < 0x20 || c == 0x7f || c == '\uFFFD' }):
			return invalid("route name %q has a control or invalid character: remove it", r.Name)
		case seen[r.Name]:
			return invalid("route %q stands twice: names are unique", r.Name)
		case r.Ordered < 0 || r.Ordered > maxLanes || r.Unordered < 0 || r.Unordered > maxLanes:
			return invalid("route %q has %d ordered and %d unordered lanes, limit 1 to %d of each (0 for the default)", r.Name, r.Ordered, r.Unordered, maxLanes)
		}
		seen[r.Name] = true
	}
	return nil
}

// Config is a store as its package makes it.
type Config struct {
	// Package is the name of the package, which its errors begin with.
	Package string
	Dialect *Dialect
	// Pool serves everything but sessions, Sessions those. They may be one.
	Pool, Sessions Pool
	// MorePool says how to allow more connections, in the imperative.
	MorePool string
	// Rows makes a table parameter of so many columns. Defaults to the
	// dialect's.
	Rows    func(columns int) RowWriter
	Options Options
}

// Store is the outbox and the inbox of one database: all that the stores do,
// but for their users' transactions.
type Store struct {
	Config
	d      *Dialect
	q      *texts
	names  schema.Names
	script map[string]script // by text; nil where texts are no scripts
	shared bool              // sessions take connections of the pool that everybody uses

	routes   atomic.Pointer[routeTable]
	sessions atomic.Int32 // connections pinned for a relay
	handle                // lane statements on connections of the pool
}

// New returns a store after checking the options. It reads the routes if the
// tables are there and a connection is to be had within a second.
func New(c Config) (*Store, error) {
	c.Options = c.Options.withDefaults()
	if err := c.Options.validate(c.Dialect); err != nil {
		return nil, err
	}
	if c.Rows == nil {
		c.Rows = c.Dialect.rows
	}
	names := c.Options.names()
	s := &Store{Config: c, d: c.Dialect, q: c.Dialect.expand(names), names: names, shared: c.Pool == c.Sessions}
	if s.d.scripts {
		s.script = s.q.scripts(s.d.begin, s.d.beginRead)
	}
	s.handle = handle{s: s}
	ctx, cancel := context.WithTimeout(context.Background(), time.Second)
	defer cancel()
	// Now rather than in the first Enlist, whose caller may hold the only
	// connection. Without tables or server this is for later.
	_, _ = s.loadRoutes(ctx)
	return s, nil
}

// ServerTime implements outbox.ServerClock.
func (s *Store) ServerTime(ctx context.Context) (t time.Time, err error) {
	// Nothing but this one statement between the caller and the clock.
	err = s.single(ctx, "server time", func(q Querier) error {
		var us int64
		if err := queryRow(ctx, q, s.q.Now, nil, &us); err != nil {
			return err
		}
		t = time.UnixMicro(us).UTC()
		return nil
	})
	return t, err
}

// routeTable is what is known of the routes. Their lanes never change, new
// routes can appear.
type routeTable struct {
	list   []outbox.Route
	byName map[string]route
}

type route struct {
	outbox.Route
	lanes any // all its lanes as an argument
}

func (t *routeTable) names() string {
	names := make([]string, len(t.list))
	for i, r := range t.list {
		names[i] = strconv.Quote(r.Name)
	}
	return strings.Join(names, ", ")
}

// at is the route of a stored lane.
func (t *routeTable) at(n outbox.Lane) (outbox.Route, bool) {
	for _, r := range t.list {
		if n >= r.First && n < r.First+outbox.Lane(r.Lanes()) {
			return r, true
		}
	}
	return outbox.Route{}, false
}

// laneRows is a table parameter of the lanes, all or the unordered ones, where
// reads are per lane; else nothing.
func (s *Store) laneRows(ctx context.Context, unordered bool) ([]any, error) {
	if !s.d.perLane {
		return nil, nil
	}
	t, err := s.knownRoutes(ctx)
	if err != nil {
		return nil, err
	}
	w := s.Rows(1)
	for _, r := range t.list {
		for i := range r.Lanes() {
			if i >= r.Ordered || !unordered {
				w.Int(int64(r.First) + int64(i))
			}
		}
	}
	return w.Args(), nil
}

func (s *Store) loadRoutes(ctx context.Context) (*routeTable, error) {
	t := &routeTable{byName: map[string]route{}}
	// A read of its own also where sessions do not commit by themselves: the
	// connection would come back to the pool inside a transaction.
	err := s.read(ctx, "read routes", func(q Querier) error {
		t.list = t.list[:0]
		return q.Query(ctx, s.q.Routes, nil, func(rows Row) error {
			var r outbox.Route
			err := rows.Scan(&r.Name, &r.First, &r.Ordered, &r.Unordered)
			t.list = append(t.list, r)
			return err
		})
	})
	if err != nil {
		return nil, err
	}
	for _, r := range t.list {
		t.byName[r.Name] = route{r, s.d.lanes(int64(r.First), int64(r.Lanes()))}
	}
	if len(t.list) > 0 {
		s.routes.Store(t)
	}
	return t, nil
}

// Routes implements outbox.Router. It reads the database.
func (s *Store) Routes(ctx context.Context) ([]outbox.Route, error) {
	t, err := s.loadRoutes(ctx)
	if err != nil {
		return nil, err
	}
	return t.list, nil
}

// knownRoutes reads the routes unless that has been done.
func (s *Store) knownRoutes(ctx context.Context) (*routeTable, error) {
	if t := s.routes.Load(); t != nil {
		return t, nil
	}
	return s.freshRoutes(ctx)
}

// freshRoutes reads the routes on a connection of the store's own pool. The
// caller may be inside a transaction that holds that pool's only connection,
// so the wait is bounded.
func (s *Store) freshRoutes(ctx context.Context) (*routeTable, error) {
	short, cancel := context.WithTimeout(ctx, routeTimeout)
	defer cancel()
	t, err := s.loadRoutes(short)
	if err != nil && ctx.Err() == nil && short.Err() != nil {
		return nil, fmt.Errorf("no connection was free within %v to read the routes (the pool allows %d): call Check or Migrate before the first transaction, or allow one connection more: %w",
			routeTimeout, s.Pool.Limit(), err)
	}
	return t, err
}

// route finds a route by name; an unknown one is looked for once more in the
// database.
func (s *Store) route(ctx context.Context, name string) (route, error) {
	t, err := s.knownRoutes(ctx)
	if err != nil {
		return route{}, err
	}
	if r, ok := t.byName[name]; ok {
		return r, nil
	}
	if t, err = s.freshRoutes(ctx); err != nil {
		return route{}, err
	}
	if r, ok := t.byName[name]; ok {
		return r, nil
	}
	return route{}, fmt.Errorf("%w %.80q: the store has %s: correct the name, or create it with Options.Routes and Migrate", outbox.ErrUnknownRoute, name, t.names())
}

// name is compared text as an argument of its own.
func (s *Store) name(text string) any {
	if s.d.compared == nil {
		return text
	}
	return s.d.compared(text)
}

// queryRow scans the one row of a query; none is errNoRow.
func queryRow(ctx context.Context, q Querier, text string, args []any, dst ...any) error {
	found := false
	err := q.Query(ctx, text, args, func(row Row) error {
		found = true
		return row.Scan(dst...)
	})
	if err == nil && !found {
		err = errNoRow
	}
	return err
}

var errNoRow = errors.New("the query returned no row")

// handle runs statements, on one pinned connection or on those of the pool.
type handle struct {
	s   *Store
	pin Conn // nil: one of the pool for each call
	// impatient: a row that another transaction holds is refused, after a short
	// wait, instead of waited for.
	impatient bool
}

// conn lends a connection to fn.
func (h handle) conn(ctx context.Context, fn func(Conn) error) error {
	if h.pin != nil {
		return fn(h.pin)
	}
	c, err := h.s.Pool.Conn(ctx)
	if err != nil {
		return err
	}
	defer c.Release()
	return fn(c)
}

// read runs fn to read: on a pinned connection each statement for itself, on one
// of the pool in a transaction where its settings are needed. fn runs again when
// the engine asks for it: it must set its results afresh.
func (h handle) read(ctx context.Context, what string, fn func(Querier) error) error {
	if h.pin == nil && h.s.d.beginRead != "" {
		return h.within(ctx, what, h.s.d.beginRead, fn)
	}
	return h.single(ctx, what, fn)
}

// single runs the statements of fn each for itself.
func (h handle) single(ctx context.Context, what string, fn func(Querier) error) error {
	err := h.conn(ctx, func(c Conn) error {
		return h.again(ctx, func() error { return fn(h.s.dress(c)) })
	})
	return h.s.wrap(ctx, what, err)
}

// dress readies q for the store's texts.
func (s *Store) dress(q Querier) Querier {
	if s.script == nil {
		return q
	}
	return stepper{q, s.script, s.d.mark}
}

// write runs fn in a transaction that may write.
func (h handle) write(ctx context.Context, what string, fn func(Querier) error) error {
	begin := h.s.d.begin
	if h.pin != nil && (h.s.d.beginPinned != "" || h.s.d.driverBegins) {
		begin = h.s.d.beginPinned
	}
	return h.within(ctx, what, begin, fn)
}

func (h handle) within(ctx context.Context, what, begin string, fn func(Querier) error) error {
	err := h.conn(ctx, func(c Conn) error {
		return h.again(ctx, func() error { return h.s.transaction(ctx, c, begin, fn) })
	})
	return h.s.wrap(ctx, what, err)
}

// short runs fn, which writes with a single statement: by itself on a pinned
// connection.
func (h handle) short(ctx context.Context, what string, fn func(Querier) error) error {
	if h.pin == nil {
		return h.write(ctx, what, fn)
	}
	return h.single(ctx, what, fn)
}

// again repeats fn while the engine is busy, until ctx is done. The pauses are
// short and random: a competing process may hold the lock nearly all the time,
// and a lease renewal must get in.
func (h handle) again(ctx context.Context, fn func() error) error {
	for {
		err := fn()
		if err == nil || !h.s.d.busy(err) {
			return err
		}
		if h.heldUp(err) {
			return fmt.Errorf("%w: another transaction holds the row: %w", outbox.ErrRefused, err)
		}
		select {
		case <-ctx.Done():
			return fmt.Errorf("%w: %w", ctx.Err(), err)
		case <-time.After(time.Millisecond + rand.N(4*time.Millisecond)):
		}
	}
}

// heldUp tells that another transaction kept the call from a row for too long.
func (h handle) heldUp(err error) bool {
	return err != nil && h.impatient && h.s.d.held != nil && h.s.d.held(err)
}

// transaction is begin, fn, commit. A connection whose transaction could not be
// ended is thrown away, so that nobody meets it open.
func (s *Store) transaction(ctx context.Context, c Conn, begin string, fn func(Querier) error) (err error) {
	q := s.dress(c)
	end := func(ctx context.Context, commit bool) error {
		text := cmp.Or(s.d.rollback, "ROLLBACK")
		if commit {
			text = "COMMIT"
		}
		_, err := c.Exec(ctx, text)
		return err
	}
	if s.d.driverBegins {
		if end, err = begun(ctx, c); err != nil {
			return err
		}
	}
	rollback := func() error {
		clean, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Second)
		defer cancel()
		return end(clean, false)
	}
	if begin != "" {
		if _, err := q.Exec(ctx, begin); err != nil {
			// It may have begun and failed at a setting; else this is refused.
			if rollback() != nil && s.d.driverBegins {
				c.Discard()
			}
			return err
		}
	}
	done := false
	defer func() {
		if !done && rollback() != nil {
			c.Discard()
		}
	}()
	if err := fn(q); err != nil {
		return err
	}
	if err := end(ctx, true); err != nil {
		return err
	}
	done = true
	return nil
}

// begun begins a transaction through the driver.
func begun(ctx context.Context, c Conn) (end func(ctx context.Context, commit bool) error, err error) {
	b, ok := c.(Beginner)
	if !ok {
		return nil, fmt.Errorf("the connection, a %T, cannot begin a transaction", c)
	}
	return b.Begin(ctx)
}

// wrap says what was being done, and what the error means.
func (s *Store) wrap(ctx context.Context, what string, err error) error {
	if err == nil {
		return nil
	}
	return fmt.Errorf("%s: %s: %w", s.Package, what, s.explain(ctx, relays|operates|consumes, err))
}

// explain gives an error of the database, met by somebody in the course of a duty, its
// meaning.
func (s *Store) explain(ctx context.Context, who duty, err error) error {
	switch {
	case err == nil || errors.Is(err, outbox.ErrSchema) || errors.Is(err, outbox.ErrRefused):
		return err
	case s.d.lacking != nil && s.d.lacking(err) != "":
		return fmt.Errorf("%w: %s: %w", outbox.ErrSchema, s.d.lacking(err), err)
	case s.d.missing(err):
		if s.q.Rights != "" {
			if list := hidden(s.askLacks(ctx, who)); len(list) > 0 {
				return fmt.Errorf("%w: %s: %w", outbox.ErrRefused, remedy(list), err)
			}
		}
		return fmt.Errorf("%w: a table is missing (%s): run `postrider migrate` or Store.Migrate: %w", outbox.ErrSchema, s.place(), err)
	case s.d.stale != nil && s.d.stale(err):
		return fmt.Errorf("%w: an index or a column is missing (%s): the tables are not those of this program: add what is missing as `postrider schema` has it, or, if no message in them is needed, drop them and run `postrider migrate` or Store.Migrate: %w",
			outbox.ErrSchema, s.place(), err)
	case s.d.tooLarge != nil && s.d.tooLarge(err):
		return fmt.Errorf("%w: it does not fit a packet: raise max_allowed_packet of the server and of its clients, or lower MaxBytes: %w", outbox.ErrRefused, err)
	case s.d.refused(err):
		return s.refusal(ctx, who, err)
	case s.d.busyTx != "" && who&(relays|operates) == 0 && s.d.busy(err):
		return fmt.Errorf("%w: %s", err, s.d.busyTx)
	}
	return err
}

// place names where the tables are expected.
func (s *Store) place() string {
	if s.names.Schema == "" {
		return fmt.Sprintf("prefix %q", s.names.Plain(""))
	}
	return fmt.Sprintf("schema %q, prefix %q", s.names.Schema, s.names.Plain(""))
}

// numbers is a list of n numbers from first on.
func numbers(open byte, first, n int64, end byte) string {
	b := []byte{open}
	for i := range n {
		if i > 0 {
			b = append(b, ',')
		}
		b = strconv.AppendInt(b, first+i, 10)
	}
	return string(append(b, end))
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{outbox.ErrInvalidArgument}, args...)...)
}
