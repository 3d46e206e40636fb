package sqlstore

import (
	"context"
	"database/sql"
	"fmt"
	"sync"
	"time"

	"github.com/postrider/postrider/outbox"
)

// LaneSession implements outbox.LaneSessioner: it takes a connection out of the
// pool (Options.RelayDB if set) and readies it. Settings that cannot be taken
// back are never given back to the pool: closing such a session closes the
// connection.
//
// A pool whose limit leaves no connection for anybody else is
// outbox.ErrInvalidArgument with the limit that is needed.
func (s *Store) LaneSession(ctx context.Context, purpose string) (outbox.LaneSession, error) {
	open := int(s.sessions.Add(1))
	ses, err := s.openSession(ctx, purpose, open)
	if err != nil {
		s.sessions.Add(-1)
		return nil, s.wrap("open lane session", err)
	}
	return ses, nil
}

func (s *Store) openSession(ctx context.Context, purpose string, open int) (*session, error) {
	need := open
	if s.relay == s.db {
		need++ // producers and operators use the pool as well
	}
	if limit := s.relay.Stats().MaxOpenConnections; limit > 0 && limit < need {
		return nil, invalid("the pool allows %d connections, the relay pins %d of them and needs %d in all: raise SetMaxOpenConns, or give the relay a pool of its own in Options.RelayDB", limit, open, need)
	}
	c, err := s.relay.Conn(ctx)
	if err != nil {
		return nil, err
	}
	undo, err := s.d.prepare(ctx, c, purpose)
	if err != nil {
		discard(c)
		return nil, err
	}
	return &session{handle: handle{s: s, pin: c}, undo: undo}, nil
}

// session is lane statements on one pinned connection.
type session struct {
	handle
	undo func(context.Context) error
	once sync.Once
}

// Close implements outbox.LaneSession. It does not wait for a server that does
// not answer, and may be called again.
func (c *session) Close() (err error) {
	c.once.Do(func() {
		defer c.s.sessions.Add(-1)
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if c.undo == nil || c.undo(ctx) != nil {
			discard(c.pin)
		}
		if cerr := c.pin.Close(); cerr != nil && cerr != sql.ErrConnDone {
			err = fmt.Errorf("sqlstore: close lane session: %w", cerr)
		}
	})
	return err
}
