//go:build prove

package crashpoints_test

import (
	"context"
	"errors"
	"fmt"
	"sync"
	"time"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/transport"
	"github.com/postrider/postrider/transport/transporttest"
)

// broker takes every message as often as it is sent: it knows no duplicates.
type broker struct {
	r   *run
	rec *transporttest.Recorder

	mu    sync.Mutex
	open  map[string]*process // by key: whose message of it is on its way
	took  map[string]bool     // by body
	freed map[string]bool     // parked keys that an operator has let go
	wrong []string
}

func newBroker(r *run) *broker {
	b := &broker{r: r, open: map[string]*process{}, took: map[string]bool{}, freed: map[string]bool{}}
	b.rec = transporttest.NewRecorder(&transporttest.Options{Script: b.answer})
	return b
}

// answer is the script of the broker: b2 is refused twice, c2 for ever, and q1
// finds its queue at the second try.
func (b *broker) answer(d *transport.Delivery, nth int) transporttest.Reply {
	switch body := string(d.Record.Message.Body); {
	case body == "b2" && nth <= 2:
		return transporttest.Reply{Outcome: transport.Refused, Err: fmt.Errorf("busy, come again (%d)", nth)}
	case body == "c2":
		return transporttest.Reply{Outcome: transport.Permanent, Err: errors.New("too large")}
	case body == "q1" && nth == 1:
		return transporttest.Reply{Outcome: transport.Unroutable, Err: errors.New("no such queue")}
	}
	return transporttest.Reply{Outcome: transport.Accepted}
}

// begin notes that a message is about to go out.
func (b *broker) begin(p *process, rec *outbox.Record) {
	b.mu.Lock()
	defer b.mu.Unlock()
	key := string(rec.Message.Key)
	if key == "" {
		return
	}
	if other := b.open[key]; other != nil {
		b.wrong = append(b.wrong, fmt.Sprintf("%s of %s sent while a message of its key is on its way from %s", rec.Message.Body, p.name, other.name))
	}
	if key == "p" && !b.freed[key] {
		b.wrong = append(b.wrong, fmt.Sprintf("%s was sent while its key was parked", rec.Message.Body))
	}
	b.open[key] = p
}

func (b *broker) finish(p *process, rec *outbox.Record, o transport.Outcome) {
	b.mu.Lock()
	defer b.mu.Unlock()
	if key := string(rec.Message.Key); b.open[key] == p {
		delete(b.open, key)
	}
	if body := string(rec.Message.Body); o == transport.Accepted && !b.took[body] {
		b.took[body] = true
		b.r.mu.Lock()
		b.r.messages++
		b.r.mu.Unlock()
	}
}

// forget is the end of a process with what it had on its way.
func (b *broker) forget(p *process) {
	b.mu.Lock()
	defer b.mu.Unlock()
	for key, other := range b.open {
		if other == p {
			delete(b.open, key)
		}
	}
}

// free is an operator who lets a parked key go.
func (b *broker) free(key string) {
	b.mu.Lock()
	defer b.mu.Unlock()
	b.freed[key] = true
}

func (b *broker) accepted(body string) bool {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.took[body]
}

// wire is one process's connection to the broker.
type wire struct {
	p      *process
	breach breach
}

// Send implements transport.Transport.
func (w *wire) Send(ctx context.Context, ds []*transport.Delivery) {
	for _, d := range ds {
		if ctx.Err() != nil || w.p.dead.Load() {
			return
		}
		if err := d.Begin(); err != nil {
			d.Report(transport.Unsent, err)
			continue
		}
		w.one(ctx, d)
	}
}

// one sends a message past its point: before the broker has it, and after that
// before the answer is heard.
func (w *wire) one(ctx context.Context, d *transport.Delivery) {
	p, r := w.p, w.p.r
	body := string(d.Record.Message.Body)
	rec := d.Record
	if w.breach.early {
		own := *rec // theirs no longer once it is reported
		own.Message = rec.Message.Clone()
		rec = &own
		d.Report(transport.Accepted, nil)
		time.Sleep(50 * time.Millisecond)
	}
	fault := r.at(p, "send "+body, true)
	switch fault {
	case killBefore:
		p.kill()
		return
	case cutBefore:
		if w.breach.blind {
			d.Report(transport.Accepted, nil)
		}
		d.Report(transport.Unreachable, errCut)
		return
	}
	r.broker.begin(p, rec)
	sent := &transport.Delivery{Record: rec, Lane: d.Lane, Epoch: d.Epoch, Pos: d.Pos}
	r.broker.rec.Send(context.WithoutCancel(ctx), []*transport.Delivery{sent})
	o, err := sent.Outcome()
	r.log("%s: broker says %s to %s (position %d, epoch %d, %d attempts)", p.name, o, body, d.Pos, d.Epoch, rec.Attempts)
	r.moved()
	r.broker.finish(p, rec, o)
	switch {
	case fault == killAfter:
		p.kill()
	case p.dead.Load():
	case fault == cutAfter:
		d.Report(transport.Unknown, errCut)
	default:
		d.Report(o, err)
	}
}
