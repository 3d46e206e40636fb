package pgxstore

import (
	"context"
	"errors"
	"fmt"
	"hash/fnv"
	"math/rand/v2"
	"strconv"
	"time"

	"github.com/jackc/pgx/v5"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/internal/sqlcore"
)

// ErrPooler is what [Store.Listen] returns behind a transaction pooler, which
// forgets who listens.
var ErrPooler = errors.New("a transaction pooler stands before the server")

// ListenOptions configure [Store.Listen]. The zero value, and nil, are usable.
type ListenOptions struct {
	// Ping is how long the line may be silent before the server is asked
	// whether it is there; it has 5 s to answer. At least 1 s. Defaults to 10 s.
	Ping time.Duration
	// Trouble is called with the error of each connection that could not be
	// opened or was lost, on Listen's goroutine. Defaults to nil.
	Trouble func(error)
}

const (
	connectTimeout = 10 * time.Second
	pingTimeout    = 5 * time.Second
	retryMin       = 100 * time.Millisecond
	retryMax       = 5 * time.Second
)

// Listen calls wake when a [Notifier] of any process tells of a commit, and once
// whenever it begins to listen, for what was committed before. Give it a relay's
// Wake, and run it beside the relay:
//
//	go store.Listen(ctx, relay.Wake, nil)
//
// It keeps a connection of its own, which it takes out of the pool for good, and
// replaces it after random pauses of up to 5 s when it is lost. A relay polls
// whether it is woken or not: without Listen messages are only later.
//
// It runs until ctx ends, and returns nil then. Behind a transaction pooler it
// returns [ErrPooler] at once: give the relay a direct connection, or let it
// poll. Errors of its arguments are outbox.ErrInvalidArgument.
func (s *Store) Listen(ctx context.Context, wake func(), opts *ListenOptions) error {
	var o ListenOptions
	if opts != nil {
		o = *opts
	}
	if o.Ping == 0 {
		o.Ping = 10 * time.Second
	}
	switch {
	case wake == nil:
		return wrap("listen", fmt.Errorf("%w: wake is nil: pass a relay's Wake", outbox.ErrInvalidArgument))
	case o.Ping < time.Second:
		return wrap("listen", fmt.Errorf("%w: Ping is %v, limit 1 s", outbox.ErrInvalidArgument, o.Ping))
	}
	for wait := retryMin; ; {
		began := time.Now()
		err := s.listen(ctx, wake, o.Ping)
		if ctx.Err() != nil {
			return nil
		}
		if errors.Is(err, ErrPooler) {
			return wrap("listen", fmt.Errorf("%w: connect the relay to the server itself, or let it poll", err))
		}
		if o.Trouble != nil {
			o.Trouble(wrap("listen", err))
		}
		if time.Since(began) > retryMax {
			wait = retryMin
		}
		pause(ctx, wait/2+rand.N(wait))
		wait = min(2*wait, retryMax)
	}
}

// listen listens on one connection until it is lost or ctx ends.
func (s *Store) listen(ctx context.Context, wake func(), ping time.Duration) error {
	c, channel, err := s.subscribe(ctx)
	if err != nil {
		return err
	}
	defer func() {
		ctx, cancel := context.WithTimeout(context.Background(), time.Second)
		defer cancel()
		c.Close(ctx)
	}()
	// After the LISTEN: what commits from here on is notified, what was
	// committed before is found.
	wake()
	for {
		wait, cancel := context.WithTimeout(ctx, ping)
		n, err := c.WaitForNotification(wait)
		silent := wait.Err() != nil
		cancel()
		switch {
		case ctx.Err() != nil:
			return ctx.Err()
		case err == nil && n.Channel == channel:
			wake()
		case err != nil && !silent:
			return err
		case err != nil:
			alive, cancel := context.WithTimeout(ctx, pingTimeout)
			err := c.Ping(alive)
			cancel()
			if err != nil {
				return fmt.Errorf("no answer within %v: %w", pingTimeout, err)
			}
		}
	}
}

// subscribe takes a connection out of the pool and has it listen.
func (s *Store) subscribe(ctx context.Context) (c *pgx.Conn, channel string, err error) {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	lent, err := s.pool.Conn(ctx)
	if err != nil {
		return nil, "", err
	}
	defer lent.Release()
	if s.pool.road.Load() == pooled {
		return nil, "", ErrPooler
	}
	if channel, err = s.channel(ctx, lent); err != nil {
		return nil, "", err
	}
	_, err = lent.Exec(ctx, "SET application_name = 'postrider listen'; LISTEN "+pgx.Identifier{channel}.Sanitize())
	if err != nil {
		lent.Discard()
		return nil, "", err
	}
	return lent.(*conn).take(), channel, nil
}

// channel is the name of the tables' channel. It is made of where the tables
// are, not of what the search path calls it.
func (s *Store) channel(ctx context.Context, q sqlcore.Querier) (string, error) {
	schema, prefix, err := s.core.Where(ctx, q)
	if err != nil {
		return "", err
	}
	h := fnv.New64a()
	h.Write([]byte(schema + "\x00" + prefix))
	return "postrider_" + strconv.FormatUint(h.Sum64(), 16), nil
}

// Notifier tells relays in other processes that something was committed. Make
// it with [Store.Notifier]; it is safe for concurrent use.
type Notifier struct {
	s      *Store
	signal chan struct{}
}

// Notifier returns a Notifier, which needs [Notifier.Run].
func (s *Store) Notifier() *Notifier { return &Notifier{s: s, signal: make(chan struct{}, 1)} }

// Committed says that messages have been committed. Call it after the commit,
// never within the transaction: it is made for UnitOptions.Committed. It never
// blocks.
func (n *Notifier) Committed() {
	select {
	case n.signal <- struct{}{}:
	default: // Run has yet to take the last one, and notifies after it
	}
}

// notifyEvery is the shortest time between two notifications. The server sends
// them one commit after another, under a lock of the whole cluster: one for each
// transaction of the producers would take three quarters of their speed.
const notifyEvery = 5 * time.Millisecond

// Run notifies, at most every 5 ms, until ctx ends. It returns nil then. It uses a
// connection of the pool for each notification, and works through a pooler.
// trouble is called with the error of a notification that failed, and may be
// nil: nobody is woken then, and relays find the messages by polling.
func (n *Notifier) Run(ctx context.Context, trouble func(error)) error {
	channel := ""
	for {
		select {
		case <-ctx.Done():
			return nil
		case <-n.signal:
		}
		if err := n.notify(ctx, &channel); err != nil && ctx.Err() == nil {
			if trouble != nil {
				trouble(wrap("notify", err))
			}
			pause(ctx, time.Second)
		}
		pause(ctx, notifyEvery)
	}
}

func (n *Notifier) notify(ctx context.Context, channel *string) error {
	ctx, cancel := context.WithTimeout(ctx, connectTimeout)
	defer cancel()
	c, err := n.s.pool.Conn(ctx)
	if err != nil {
		return err
	}
	defer c.Release()
	if *channel == "" {
		if *channel, err = n.s.channel(ctx, c); err != nil {
			return err
		}
	}
	_, err = c.Exec(ctx, "SELECT pg_notify($1::text, '')", *channel)
	return err
}

func pause(ctx context.Context, d time.Duration) {
	t := time.NewTimer(d)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
}
