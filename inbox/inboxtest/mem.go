package inboxtest

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/postrider/postrider/inbox"
)

// ErrTxDone is returned for a transaction of [Mem] that has ended.
var ErrTxDone = errors.New("transaction has already ended")

type key struct{ consumer, messageID string }

type row struct {
	rec    *entry // committed; nil: none
	next   *entry // written by holder; nil: deleted
	holder *MemTx // has written the row and not ended
}

// entry is a record, or a claim if it has a token.
type entry struct {
	inbox.Record
	token inbox.Token
}

func (e *entry) claim() bool { return e.token != inbox.Token{} }

// Mem is an inbox store in memory, at READ COMMITTED: whoever writes a record
// that another transaction has written waits for that one's end. It is safe
// for concurrent use and works under testing/synctest.
type Mem struct {
	mu   sync.Mutex
	rows map[key]*row
}

// MemTx is a transaction of a [Mem]. Like a database's it belongs to one
// goroutine at a time.
type MemTx struct {
	m       *Mem
	written []*row
	ended   chan struct{}
	over    bool
}

var (
	_ inbox.Store[*MemTx] = (*Mem)(nil)
	_ inbox.ClaimStore    = (*Mem)(nil)
)

// NewMem returns an empty store.
func NewMem() *Mem { return &Mem{rows: map[key]*row{}} }

// Begin starts a transaction, to be ended by Commit or Rollback.
func (m *Mem) Begin() *MemTx { return &MemTx{m: m, ended: make(chan struct{})} }

// Commit makes what was written visible and lets the waiting go on.
func (tx *MemTx) Commit() error { return tx.end(true) }

// Rollback undoes what was written and lets the waiting go on. After Commit it
// returns ErrTxDone and changes nothing.
func (tx *MemTx) Rollback() error { return tx.end(false) }

func (tx *MemTx) end(commit bool) error {
	tx.m.mu.Lock()
	defer tx.m.mu.Unlock()
	if tx.over {
		return ErrTxDone
	}
	tx.over = true
	for _, r := range tx.written {
		if commit {
			r.rec = r.next
		}
		r.next, r.holder = nil, nil
	}
	close(tx.ended)
	return nil
}

// lock returns the row of k for writing, with m.mu held; the caller unlocks.
func (m *Mem) lock(ctx context.Context, tx *MemTx, k key) (*row, error) {
	for {
		m.mu.Lock()
		if tx == nil || tx.m != m || tx.over {
			m.mu.Unlock()
			return nil, ErrTxDone
		}
		r := m.rows[k]
		if r == nil {
			r = &row{}
			m.rows[k] = r
		}
		if r.holder == nil || r.holder == tx {
			return r, nil
		}
		other := r.holder.ended
		m.mu.Unlock()
		select {
		case <-other:
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for another transaction: %w", context.Cause(ctx))
		}
	}
}

// write sets the row; nil deletes it.
func (tx *MemTx) write(r *row, e *entry) {
	if r.holder == nil {
		r.holder = tx
		tx.written = append(tx.written, r)
	}
	r.next = e
}

func (r *row) seenBy(tx *MemTx) *entry {
	if r != nil && r.holder == tx {
		return r.next
	}
	if r == nil {
		return nil
	}
	return r.rec
}

func live(rec *entry, now time.Time) bool {
	return rec != nil && (rec.ExpiresAt.IsZero() || rec.ExpiresAt.After(now))
}

// Reserve implements [inbox.Store].
func (m *Mem) Reserve(ctx context.Context, tx *MemTx, rec inbox.Record) (bool, error) {
	r, err := m.lock(ctx, tx, key{rec.Consumer, rec.MessageID})
	if err != nil {
		return false, err
	}
	defer m.mu.Unlock()
	if e := r.seenBy(tx); live(e, rec.ProcessedAt) {
		if e.claim() {
			return false, inbox.ErrInProgress
		}
		return false, nil
	}
	tx.write(r, &entry{Record: rec})
	return true, nil
}

// Processed implements [inbox.Store].
func (m *Mem) Processed(ctx context.Context, tx *MemTx, consumer, messageID string, now time.Time) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if tx == nil || tx.over {
		return false, ErrTxDone
	}
	e := m.rows[key{consumer, messageID}].seenBy(tx)
	return live(e, now) && !e.claim(), ctx.Err()
}

// Mark implements [inbox.Store].
func (m *Mem) Mark(ctx context.Context, tx *MemTx, rec inbox.Record) error {
	r, err := m.lock(ctx, tx, key{rec.Consumer, rec.MessageID})
	if err != nil {
		return err
	}
	defer m.mu.Unlock()
	tx.write(r, &entry{Record: rec})
	return nil
}

// change runs fn on what is recorded of a message, in a transaction of its own;
// fn returns what is to be recorded and whether that is a change.
func (m *Mem) change(ctx context.Context, consumer, messageID string, fn func(e *entry) (*entry, bool)) (changed bool, err error) {
	tx := m.Begin()
	r, err := m.lock(ctx, tx, key{consumer, messageID})
	if err != nil {
		return false, err
	}
	next, changed := fn(r.seenBy(tx))
	if changed {
		tx.write(r, next)
	}
	m.mu.Unlock()
	return changed, tx.Commit()
}

// ClaimMessage implements [inbox.ClaimStore].
func (m *Mem) ClaimMessage(ctx context.Context, rec inbox.Record, t inbox.Token) (state inbox.State, err error) {
	_, err = m.change(ctx, rec.Consumer, rec.MessageID, func(e *entry) (*entry, bool) {
		switch {
		case !live(e, rec.ProcessedAt):
			state = inbox.Claimed
			return &entry{rec, t}, true
		case e.claim():
			state = inbox.InProgress
		default:
			state = inbox.Done
		}
		return nil, false
	})
	return state, err
}

// RenewMessage implements [inbox.ClaimStore].
func (m *Mem) RenewMessage(ctx context.Context, rec inbox.Record, t inbox.Token) (bool, error) {
	return m.change(ctx, rec.Consumer, rec.MessageID, func(e *entry) (*entry, bool) {
		if !live(e, rec.ProcessedAt) || e.token != t {
			return nil, false
		}
		longer := *e
		if rec.ExpiresAt.After(e.ExpiresAt) {
			longer.ExpiresAt = rec.ExpiresAt
		}
		return &longer, true
	})
}

// CompleteMessage implements [inbox.ClaimStore].
func (m *Mem) CompleteMessage(ctx context.Context, rec inbox.Record, t inbox.Token) (bool, error) {
	return m.change(ctx, rec.Consumer, rec.MessageID, func(e *entry) (*entry, bool) {
		return &entry{Record: rec}, e != nil && e.token == t
	})
}

// ReleaseMessage implements [inbox.ClaimStore].
func (m *Mem) ReleaseMessage(ctx context.Context, consumer, messageID string, t inbox.Token) (bool, error) {
	return m.change(ctx, consumer, messageID, func(e *entry) (*entry, bool) {
		return nil, e != nil && e.token == t
	})
}

// Purge implements [inbox.Store]. Records that an open transaction has written
// are passed over.
func (m *Mem) Purge(ctx context.Context, now time.Time, limit int) (int, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	n := 0
	for _, r := range m.rows {
		if n == limit {
			break
		}
		if r.holder == nil && r.rec != nil && !live(r.rec, now) {
			r.rec = nil
			n++
		}
	}
	return n, ctx.Err()
}
