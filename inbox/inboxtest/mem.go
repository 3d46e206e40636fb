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
	rec    *inbox.Record // committed; nil: none
	next   *inbox.Record // written by holder
	holder *MemTx        // has written the row and not ended
}

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

var _ inbox.Store[*MemTx] = (*Mem)(nil)

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

func (tx *MemTx) write(r *row, rec inbox.Record) {
	if r.holder == nil {
		r.holder = tx
		tx.written = append(tx.written, r)
	}
	r.next = &rec
}

func (r *row) seenBy(tx *MemTx) *inbox.Record {
	if r != nil && r.holder == tx {
		return r.next
	}
	if r == nil {
		return nil
	}
	return r.rec
}

func live(rec *inbox.Record, now time.Time) bool {
	return rec != nil && (rec.ExpiresAt.IsZero() || rec.ExpiresAt.After(now))
}

// Reserve implements [inbox.Store].
func (m *Mem) Reserve(ctx context.Context, tx *MemTx, rec inbox.Record) (bool, error) {
	r, err := m.lock(ctx, tx, key{rec.Consumer, rec.MessageID})
	if err != nil {
		return false, err
	}
	defer m.mu.Unlock()
	if live(r.seenBy(tx), rec.ProcessedAt) {
		return false, nil
	}
	tx.write(r, rec)
	return true, nil
}

// Processed implements [inbox.Store].
func (m *Mem) Processed(ctx context.Context, tx *MemTx, consumer, messageID string, now time.Time) (bool, error) {
	m.mu.Lock()
	defer m.mu.Unlock()
	if tx == nil || tx.over {
		return false, ErrTxDone
	}
	return live(m.rows[key{consumer, messageID}].seenBy(tx), now), ctx.Err()
}

// Mark implements [inbox.Store].
func (m *Mem) Mark(ctx context.Context, tx *MemTx, rec inbox.Record) error {
	r, err := m.lock(ctx, tx, key{rec.Consumer, rec.MessageID})
	if err != nil {
		return err
	}
	defer m.mu.Unlock()
	tx.write(r, rec)
	return nil
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
