//go:build prove

package crashpoints_test

import (
	"bytes"
	"context"
	"encoding/binary"
	"errors"
	"io"
	"net"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/jackc/pgx/v5"
	"github.com/jackc/pgx/v5/pgconn"
	"github.com/jackc/pgx/v5/pgproto3"
	"github.com/jackc/pgx/v5/pgxpool"

	"github.com/postrider/postrider/integration/stores"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/pgxstore"
)

// openNative opens a pgxstore whose connections are sockets.
func openNative(p *process, dsn string) (stores.Store, func(), error) {
	cfg, err := pgxpool.ParseConfig(dsn)
	if err != nil {
		return nil, nil, err
	}
	cfg.MaxConns = conns
	cfg.ConnConfig.TLSConfig = nil // what is encrypted cannot be told apart
	cfg.ConnConfig.Tracer = namer{}
	cfg.ConnConfig.DialFunc = func(ctx context.Context, network, addr string) (net.Conn, error) {
		if p.dead.Load() {
			return nil, errDead
		}
		base, err := (&net.Dialer{}).DialContext(ctx, network, addr)
		if err != nil {
			return nil, err
		}
		return newSocket(p, base), nil
	}
	pool, err := pgxpool.NewWithConfig(context.Background(), cfg)
	if err != nil {
		return nil, nil, err
	}
	s, err := pgxstore.New(pool, &pgxstore.Options{Routes: routes})
	return s, pool.Close, err
}

// namer tells a socket which call of the store's the next statement belongs to.
type namer struct{}

func (namer) name(ctx context.Context, c *pgx.Conn) context.Context {
	if s, ok := c.PgConn().Conn().(*socket); ok {
		s.mu.Lock()
		s.call = callOf(ctx)
		s.mu.Unlock()
	}
	return ctx
}

func (n namer) TraceQueryStart(ctx context.Context, c *pgx.Conn, _ pgx.TraceQueryStartData) context.Context {
	return n.name(ctx, c)
}

func (n namer) TraceBatchStart(ctx context.Context, c *pgx.Conn, _ pgx.TraceBatchStartData) context.Context {
	return n.name(ctx, c)
}

func (namer) TraceQueryEnd(context.Context, *pgx.Conn, pgx.TraceQueryEndData)     {}
func (namer) TraceBatchQuery(context.Context, *pgx.Conn, pgx.TraceBatchQueryData) {}
func (namer) TraceBatchEnd(context.Context, *pgx.Conn, pgx.TraceBatchEndData)     {}

// socket is a connection on which what runs together, up to a Sync, passes the
// run before it is written and after the server has answered. The answer is in
// memory when it is handed out, so that between two groups nothing is under way.
// It has no word for what the server says unasked.
type socket struct {
	net.Conn
	line
	call *call // that the statements belong to

	greeted bool              // the session has begun
	out     []byte            // what was written of a group that is not complete
	texts   map[string]string // of prepared statements
	group   []string          // the texts that the group runs
	in      *pgproto3.Frontend

	heard  sync.Mutex
	more   *sync.Cond
	answer bytes.Buffer // what the server said and the client has not read
	over   error        // nothing comes after that
}

func newSocket(p *process, base net.Conn) *socket {
	s := &socket{Conn: base, texts: map[string]string{}, call: callOf(context.Background())}
	s.more = sync.NewCond(&s.heard)
	s.line = line{p: p, hang: s.shut}
	s.in = pgproto3.NewFrontend(io.TeeReader(base, hearer{s}), nil)
	p.adopt(&s.line)
	return s
}

// shut closes it, and wakes who reads.
func (s *socket) shut() {
	_ = s.Conn.Close() // the peer is not asked
	s.heard.Lock()
	defer s.heard.Unlock()
	s.answer.Reset()
	s.over = errCut
	s.more.Broadcast()
}

// Close first interrupts a statement that is under way, which holds the lock.
func (s *socket) Close() error {
	s.shut()
	s.mu.Lock()
	defer s.mu.Unlock()
	s.end()
	return nil
}

// hearer keeps what the server says.
type hearer struct{ s *socket }

func (h hearer) Write(b []byte) (int, error) {
	h.s.heard.Lock()
	defer h.s.heard.Unlock()
	return h.s.answer.Write(b)
}

// Read implements net.Conn. It reads nothing by itself: a background reader of
// the client's would take what hear waits for.
func (s *socket) Read(b []byte) (int, error) {
	s.heard.Lock()
	defer s.heard.Unlock()
	for s.answer.Len() == 0 && s.over == nil {
		s.more.Wait()
	}
	if s.answer.Len() == 0 {
		return 0, s.over
	}
	return s.answer.Read(b)
}

// Write implements net.Conn. A fault before a group is an error of its own, one
// after it is left to the read of the answer.
func (s *socket) Write(b []byte) (int, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.greeted = s.greeted || b[0] == 'Q' || b[0] == 'P'
	if !s.greeted { // the start of a session and its passwords, or a request to cancel
		_, _ = s.exchange(b) // the client reads what is wrong
		return len(b), nil
	}
	s.out = append(s.out, b...)
	for at := 0; ; {
		rest := s.out[at:]
		if len(rest) < 5 {
			return len(b), nil
		}
		size := 1 + int(binary.BigEndian.Uint32(rest[1:]))
		if len(rest) < size {
			return len(b), nil
		}
		at += size
		ends, err := s.note(rest[0], rest[5:size])
		if err != nil {
			return 0, err
		}
		if !ends {
			continue
		}
		if asked, err := s.run(s.out[:at]); !asked {
			return 0, err
		}
		s.out, at, s.group = s.out[at:], 0, nil
	}
}

// note takes a message down and tells whether the group ends with it.
func (s *socket) note(kind byte, body []byte) (ends bool, err error) {
	switch kind {
	case 'Q':
		var m pgproto3.Query
		err = m.Decode(body)
		s.group = append(s.group, m.String)
		return true, err
	case 'P':
		var m pgproto3.Parse
		err = m.Decode(body)
		s.texts[m.Name] = m.Query
	case 'B':
		var m pgproto3.Bind
		err = m.Decode(body)
		s.group = append(s.group, s.texts[m.PreparedStatement])
	}
	return kind == 'S' || kind == 'X', err
}

// errRefused: the server answered with an error, which the client will read.
var errRefused = errors.New("refused by the server")

// run takes a group past its point. asked tells whether the server may have it.
func (s *socket) run(group []byte) (asked bool, err error) {
	exchange := func() (int64, error) {
		asked = true
		return s.exchange(group)
	}
	switch {
	case s.gone || s.p.dead.Load():
		s.end()
		return false, net.ErrClosed
	case group[0] == 'X':
		asked = true
		_, err = s.Conn.Write(group)
	case len(s.group) == 0: // only prepares
		_, err = exchange()
	default:
		err = s.pass(s.call, together(s.group), exchange)
	}
	return asked, err
}

// exchange writes what the server answers, and hears the answer to its end. It
// tells how many rows it is about.
func (s *socket) exchange(b []byte) (rows int64, err error) {
	if _, err = s.Conn.Write(b); err == nil {
		rows, err = s.hear()
	}
	s.heard.Lock()
	defer s.heard.Unlock()
	if err != nil && !errors.Is(err, errRefused) {
		s.over = err
	}
	s.more.Broadcast()
	return rows, err
}

func (s *socket) hear() (rows int64, err error) {
	for {
		m, failed := s.in.Receive()
		if failed != nil {
			return 0, failed
		}
		switch m := m.(type) {
		case *pgproto3.CommandComplete:
			rows += pgconn.NewCommandTag(string(m.CommandTag)).RowsAffected()
		case *pgproto3.ErrorResponse:
			err = errRefused
		case *pgproto3.ReadyForQuery, *pgproto3.AuthenticationCleartextPassword, *pgproto3.AuthenticationMD5Password,
			*pgproto3.AuthenticationSASL, *pgproto3.AuthenticationSASLContinue:
			return rows, err
		}
	}
}

// together describes statements that run as one.
func together(texts []string) statement {
	all := describe(texts[0])
	for _, text := range texts[1:] {
		s := describe(text)
		all.kind = max(all.kind, s.kind)
		all.matters = all.matters || s.matters
		if !strings.Contains(all.name, s.name) {
			all.name += ", " + s.name
		}
	}
	return all
}

// TestPipelinedGroup: statements that share a Sync are one point, and lost with
// the connection together or not at all.
func TestPipelinedGroup(t *testing.T) {
	t.Parallel()
	e := engines[slices.IndexFunc(engines, func(e engine) bool { return e.native })]
	for _, tc := range []struct {
		fault fault
		left  int
	}{{cutBefore, 1500}, {cutAfter, 0}} {
		t.Run(tc.fault.String(), func(t *testing.T) {
			t.Parallel()
			b := newBed(t, e, &sync.WaitGroup{})
			r := newRun(b, aim{point{name: "settle/DELETE outbox"}, tc.fault}, breach{})
			bodies := make([]string, 1500) // of which a statement takes 1,000
			for i := range bodies {
				bodies[i] = "u1"
			}
			if err := r.produce(bodies...); err != nil {
				t.Fatal(err)
			}
			rows, err := b.db.QueryContext(t.Context(), `SELECT lane, pos, id FROM postrider_outbox`)
			if err != nil {
				t.Fatal(err)
			}
			defer rows.Close()
			req := outbox.SettleRequest{Owner: outbox.NewID()}
			for rows.Next() {
				s := outbox.Settlement{Outcome: outbox.SettleAccepted}
				if err := rows.Scan(&s.Lane, &s.Pos, &s.ID); err != nil {
					t.Fatal(err)
				}
				req.Settlements = append(req.Settlements, s)
			}
			if err := rows.Err(); err != nil {
				t.Fatal(err)
			}

			p := newProcess(r, func() {})
			store, hang, err := openNative(p, b.dsn)
			if err != nil {
				t.Fatal(err)
			}
			defer hang()
			ses, err := tapped{store, p}.LaneSession(t.Context(), "settle")
			if err != nil {
				t.Fatal(err)
			}
			defer ses.Close()
			if _, err := ses.SettleLanes(t.Context(), req); err == nil || !r.fired {
				t.Errorf("the settle ended with %v, fault met: %v", err, r.fired)
			}
			var left int
			if err := b.db.QueryRowContext(t.Context(), `SELECT count(*) FROM postrider_outbox`).Scan(&left); err != nil || left != tc.left {
				t.Errorf("%d rows are left, %v, want %d", left, err, tc.left)
			}
		})
	}
}
