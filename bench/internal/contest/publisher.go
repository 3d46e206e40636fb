package contest

import (
	"context"
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
	// Taken, if set, is told the number of each message when it is answered.
	Taken func(n int)

	start sync.Once
	acks  chan ack
}

type ack struct {
	due  time.Time
	done func()
}

// NewPublisher returns a publisher for the messages of a load.
func NewPublisher(l *Load) *Publisher { return &Publisher{Check: NewCheck(l)} }

// Hand hands one message over and returns; answered is called when the broker
// has answered.
func (p *Publisher) Hand(body []byte, answered func()) {
	n := p.Take(body)
	if p.Taken != nil && n >= 0 {
		next := answered
		answered = func() { p.Taken(n); next() }
	}
	if p.Latency == 0 {
		answered()
		return
	}
	p.start.Do(func() {
		p.acks = make(chan ack, 1<<16)
		go p.answer()
	})
	p.acks <- ack{time.Now().Add(p.Latency), answered}
}

// answer sends the answers in the order in which they fall due. It ends with
// the process: a run is short.
func (p *Publisher) answer() {
	for a := range p.acks {
		if wait := time.Until(a.due); wait > 0 {
			time.Sleep(wait)
		}
		a.done()
	}
}

// One hands one message over and waits for the answer.
func (p *Publisher) One(body []byte) { p.Batch([][]byte{body}) }

// Batch hands messages over and waits until all are answered.
func (p *Publisher) Batch(bodies [][]byte) {
	if p.PerBatch || p.Latency == 0 {
		numbers := make([]int, len(bodies))
		for i, b := range bodies {
			numbers[i] = p.Take(b)
		}
		time.Sleep(p.Latency)
		p.tell(numbers)
		return
	}
	var wg sync.WaitGroup
	wg.Add(len(bodies))
	for _, b := range bodies {
		p.Hand(b, wg.Done)
	}
	wg.Wait()
}

func (p *Publisher) tell(numbers []int) {
	if p.Taken == nil {
		return
	}
	for _, n := range numbers {
		if n >= 0 {
			p.Taken(n)
		}
	}
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
		wg.Add(1)
		s.p.Hand(d.Record.Message.Body, func() {
			d.Report(transport.Accepted, nil)
			wg.Done()
		})
	}
	wg.Wait()
}

func (s sender) batch(ds []*transport.Delivery) {
	numbers := make([]int, len(ds))
	for i, d := range ds {
		if err := d.Begin(); err != nil {
			d.Report(transport.Unsent, err)
			numbers[i] = -1
			continue
		}
		numbers[i] = s.p.Take(d.Record.Message.Body)
	}
	time.Sleep(s.p.Latency)
	s.p.tell(numbers)
	for _, d := range ds {
		d.Report(transport.Accepted, nil) // the first report of a delivery counts
	}
}
