package relay

import (
	"context"
	"sync/atomic"
	"time"

	"github.com/postrider/postrider/outbox"
)

// window is one span of trust in the relay's leases, under one owner id. It is
// extended by renewals and, once it has ended, never reopened: a renewal that
// was slow to answer must not revive lanes whose rows another relay may be
// sending already.
type window struct {
	owner  outbox.ID
	onEnd  func()       // told when its trust has run out
	start  time.Time    // carries the monotonic clock
	until  atomic.Int64 // trusted until, in nanoseconds after start; 0 = no renewal yet
	wall   atomic.Int64 // the same on the wall clock, in Unix nanoseconds
	ended  atomic.Bool
	ctx    context.Context // ends with the window; sends run under it
	cancel context.CancelFunc
	sends  int // Sends under way; under the engine's lock
	timer  *time.Timer
}

func newWindow(onEnd func()) *window {
	w := &window{owner: outbox.NewID(), start: time.Now(), onEnd: onEnd}
	w.ctx, w.cancel = context.WithCancel(context.Background())
	return w
}

// live is asked immediately before bytes go out. Who hears no once hears it for
// ever: a wall clock that was set forward may be set back, and a row put back in
// between would go out behind later ones of its key.
func (w *window) live() bool {
	if w.ended.Load() {
		return false
	}
	now := time.Now()
	if w.trusted(now.Sub(w.start), now.UnixNano()) {
		return true
	}
	if w.until.Load() != 0 && w.ended.CompareAndSwap(false, true) {
		w.cancel()
		w.onEnd()
	}
	return false
}

// trusted judges by both clocks. The monotonic one may stand still while a
// machine is suspended, and the relay would wake up with a lease that another
// has taken; the wall clock may be set back. A wall clock set forward only ends
// the window early.
func (w *window) trusted(since time.Duration, wall int64) bool {
	return int64(since) < w.until.Load() && wall < w.wall.Load()
}

// over tells whether the window was once trusted and is not any more.
func (w *window) over() bool { return w.until.Load() != 0 && !w.live() }

// extend trusts the leases until t after a renewal. When that trust runs out,
// the window ends, even while the next renewal hangs. false: it was over before
// the answer came.
func (w *window) extend(t time.Time) bool {
	if w.over() {
		return false
	}
	// In this order: until tells live that there is something to end.
	w.wall.Store(t.UnixNano())
	w.until.Store(max(w.until.Load(), int64(t.Sub(w.start))))
	if w.timer != nil {
		w.timer.Reset(w.left())
		return w.live()
	}
	w.timer = time.AfterFunc(w.left(), func() { w.live() })
	return w.live()
}

// left is how long the window is still trusted.
func (w *window) left() time.Duration {
	return time.Duration(w.until.Load()) - time.Since(w.start)
}

// end ends the window; under the engine's lock, as extend.
func (w *window) end() {
	w.ended.Store(true)
	w.cancel()
	if w.timer != nil {
		w.timer.Stop()
	}
}
