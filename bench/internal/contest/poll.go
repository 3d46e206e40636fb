package contest

import (
	"context"
	"time"
)

// poll is how the baselines wait: as Postrider does, 5 ms after traffic and up to
// 500 ms when idle.
type poll struct{ next time.Duration }

func newPoll() *poll { return &poll{5 * time.Millisecond} }

func (p *poll) wait(ctx context.Context, found int) {
	if found > 0 {
		p.next = 5 * time.Millisecond
		return
	}
	t := time.NewTimer(p.next)
	defer t.Stop()
	select {
	case <-ctx.Done():
	case <-t.C:
	}
	p.next = min(2*p.next, 500*time.Millisecond)
}
