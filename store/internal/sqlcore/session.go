package sqlcore

import (
	"context"
	"fmt"
	"sync"
	"time"

	"github.com/postrider/postrider/outbox"
)

// LaneSession implements outbox.LaneSessioner: it takes a connection out of
// Sessions and readies it. Settings that cannot be taken back are never given
// back to the pool: closing such a session closes the connection.
//
// A pool whose limit leaves no connection for anybody else is
// outbox.ErrInvalidArgument with the limit that is needed. Over a transaction
// pooler a session pins nothing: each call is a transaction with the settings in
// it.
func (s *Store) LaneSession(ctx context.Context, purpose string) (outbox.LaneSession, error) {
	open := int(s.sessions.Add(1))
	ses, err := s.openSession(ctx, purpose, open)
	if err != nil {
		s.sessions.Add(-1)
		return nil, s.wrap(ctx, "open lane session", err)
	}
	return ses, nil
}

func (s *Store) openSession(ctx context.Context, purpose string, open int) (*session, error) {
	transient, err := s.Sessions.Transient(ctx)
	if err != nil {
		return nil, err
	}
	if transient {
		return &session{handle: handle{s: s}}, nil
	}
	need := open
	if s.shared {
		need++ // producers and operators use the pool as well
	}
	if limit := s.Sessions.Limit(); limit > 0 && limit < need {
		whole := max(open, relayPins) + need - open
		return nil, invalid("the pool allows %d connections, a relay needs %d: %s", limit, whole, s.MorePool)
	}
	c, err := s.Sessions.Conn(ctx)
	if err != nil {
		return nil, err
	}
	undo, err := s.d.prepare(ctx, c, purpose)
	if err != nil {
		c.Discard()
		c.Release()
		return nil, err
	}
	return &session{handle: handle{s: s, pin: c, impatient: purpose == settlePurpose}, undo: undo}, nil
}

// relayPins are the sessions that a relay keeps.
const relayPins = 4

// settlePurpose is that of the session that writes outcomes. A producer's
// transaction can hold a row for as long as it is open, and the outcomes of all
// others are not to wait for that one.
const settlePurpose = "settle"

// session is lane statements on one pinned connection, or on none.
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
		if c.pin == nil {
			return
		}
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		if c.undo == nil || c.undo(ctx) != nil {
			c.pin.Discard()
		}
		if cerr := c.pin.Release(); cerr != nil {
			err = fmt.Errorf("%s: close lane session: %w", c.s.Package, cerr)
		}
	})
	return err
}
