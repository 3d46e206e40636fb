package contest

import (
	"context"
	"errors"
	"sync"
	"time"

	"github.com/postrider/postrider/transport"
)

// Publisher stands for a broker: it checks and counts what it is handed, and
// answers after Latency. It is safe for concurrent use, for one run.
type Publisher struct {
	*Check
	// Latency is how long an answer takes; zero answers at once.
	Latency time.Duration
	// PerBatch answers a batch as a whole. Else each message is answered by
	// itself, Latency after it was handed over, as by an asynchronous client.
	PerBatch bool
	// Refuse, if set, tells by its number whether a message is refused.
	Refuse func(n int) bool
	// Taken, if set, is told the number of each message that is accepted.
	Taken func(n int)

	start sync.Once
	acks  chan ack
}

type ack struct {
	due    time.Time
	answer func()
}

// NewPublisher returns a publisher for the messages of a load.
func NewPublisher(l *Load) *Publisher { return &Publisher{Check: NewCheck(l)} }

// take is the broker's side of one message.
func (p *Publisher) take(body []byte) (accepted bool) {
	if p.Refuse != nil && p.Refuse(Number(body)) {
		return false
	}
	if n := p.Take(body); n >= 0 && p.Taken != nil {
		p.Taken(n)
	}
	return true
}

// Hand hands one message over and returns; answer is called when the broker has
// answered.
func (p *Publisher) Hand(body []byte, answer func(accepted bool)) {
	accepted := p.take(body)
	if p.Latency == 0 {
		answer(accepted)
		return
	}
	p.start.Do(func() {
		p.acks = make(chan ack, 1<<16)
		go p.answers()
	})
	p.acks <- ack{time.Now().Add(p.Latency), func() { answer(accepted) }}
}

// answers sends the answers in the order in which they fall due. It lives as
// long as the process.
func (p *Publisher) answers() {
	for a := range p.acks {
		if wait := time.Until(a.due); wait > 0 {
			time.Sleep(wait)
		}
		a.answer()
	}
}

// One hands one message over and waits for the answer.
func (p *Publisher) One(body []byte) {
	p.take(body)
	if p.Latency > 0 {
		time.Sleep(p.Latency)
	}
}

// Batch hands messages over, waits until all are answered, and returns which
// were refused.
func (p *Publisher) Batch(bodies [][]byte) (refused []int) {
	if p.PerBatch || p.Latency == 0 {
		for i, b := range bodies {
			if !p.take(b) {
				refused = append(refused, i)
			}
		}
		if p.Latency > 0 {
			time.Sleep(p.Latency)
		}
		return refused
	}
	var wg sync.WaitGroup
	var mu sync.Mutex
	wg.Add(len(bodies))
	for i, b := range bodies {
		p.Hand(b, func(accepted bool) {
			if !accepted {
				mu.Lock()
				refused = append(refused, i)
				mu.Unlock()
			}
			wg.Done()
		})
	}
	wg.Wait()
	return refused
}

// Transport is the publisher as Postrider's relay sees it.
func (p *Publisher) Transport() transport.Transport { return sender{p} }

type sender struct{ p *Publisher }

func (s sender) Send(_ context.Context, ds []*transport.Delivery) {
	if s.p.PerBatch {
		s.batch(ds)
		return
	}
	var wg sync.WaitGroup
	for _, d := range ds {
		if err := d.Begin(); err != nil {
			d.Report(transport.Unsent, err)
			continue
		}
		if s.p.Latency == 0 {
			report(d, s.p.take(d.Record.Message.Body))
			continue
		}
		wg.Add(1)
		s.p.Hand(d.Record.Message.Body, func(accepted bool) {
			report(d, accepted)
			wg.Done()
		})
	}
	wg.Wait()
}

func (s sender) batch(ds []*transport.Delivery) {
	accepted := make([]bool, len(ds))
	for i, d := range ds {
		if err := d.Begin(); err != nil {
			d.Report(transport.Unsent, err)
			continue
		}
		accepted[i] = s.p.take(d.Record.Message.Body)
	}
	time.Sleep(s.p.Latency)
	for i, d := range ds {
		report(d, accepted[i]) // of a delivery's reports the first one counts
	}
}

var errRefused = errors.New("refused by the publisher")

func report(d *transport.Delivery, accepted bool) {
	if accepted {
		d.Report(transport.Accepted, nil)
	} else {
		d.Report(transport.Refused, errRefused)
	}
}
