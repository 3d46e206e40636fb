package contest

import (
	"bytes"
	"strings"
	"testing"
	"time"
)

func keyed(n int) *Load { return &Load{Messages: n, Keys: 2} }

func TestCheckAcceptsEachMessageOnce(t *testing.T) {
	t.Parallel()
	for _, l := range []*Load{{Messages: 10}, keyed(10), {Messages: 10, Keys: 3, KeyOf: func(n int) int { return n % 2 }, Size: 4096}} {
		c := NewCheck(l)
		for n := range l.Messages {
			if got := c.Take(l.Message(n).Body); got != n {
				t.Errorf("message %d was taken for %d", n, got)
			}
		}
		select {
		case <-c.Done():
		default:
			t.Error("not done after all messages")
		}
		if err := c.Err(); err != nil || c.Got() != l.Messages || c.First().IsZero() {
			t.Errorf("%v, %d messages of %d, first at %v", err, c.Got(), l.Messages, c.First())
		}
	}
}

func TestCheckNoticesFaults(t *testing.T) {
	t.Parallel()
	l := keyed(10)
	changed := l.Message(0).Body
	changed[500] ^= 1
	for want, bodies := range map[string][][]byte{
		"twice":          {l.Message(0).Body, l.Message(0).Body},
		"was due":        {l.Message(0).Body, l.Message(4).Body},
		"another run":    {keyed(10).Message(0).Body},
		"changed":        {changed},
		"want 1024":      {l.Message(0).Body[:1000]},
		"message 9 arri": {(&Load{Messages: 10, Nonce: l.Nonce}).Message(9).Body, (&Load{Messages: 10, Nonce: l.Nonce}).Message(9).Body},
	} {
		c := NewCheck(l)
		for _, b := range bodies {
			c.Take(b)
		}
		select {
		case <-c.Done():
		default:
			t.Errorf("%s: the run goes on", want)
		}
		if err := c.Err(); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%v, want %q", err, want)
		}
	}
}

// A repeat after the last message is still a fault.
func TestCheckNoticesLateRepeat(t *testing.T) {
	t.Parallel()
	l := &Load{Messages: 1}
	c := NewCheck(l)
	c.Take(l.Message(0).Body)
	c.Take(l.Message(0).Body)
	if c.Err() == nil {
		t.Error("the repeat went unnoticed")
	}
}

func TestCheckResumed(t *testing.T) {
	t.Parallel()
	l := keyed(10)
	c := NewCheck(l)
	c.Resume()
	for _, n := range []int{4, 6, 3} { // keys 0, 0, 1
		c.Take(l.Message(n).Body)
	}
	if err := c.Err(); err != nil {
		t.Fatal(err)
	}
	c.Take(l.Message(2).Body) // before what key 0 has had
	if c.Err() == nil {
		t.Error("a step back went unnoticed")
	}
}

func TestCheckOfAnyOrder(t *testing.T) {
	t.Parallel()
	l := keyed(10)
	c := NewCheck(l)
	c.AnyOrder()
	for _, n := range []int{4, 2, 0} {
		c.Take(l.Message(n).Body)
	}
	if err := c.Err(); err != nil {
		t.Fatal(err)
	}
	c.Take(l.Message(2).Body)
	if c.Err() == nil {
		t.Error("a repeat went unnoticed")
	}
}

func TestStreamIsInOrder(t *testing.T) {
	t.Parallel()
	s := NewStream(4, 2)
	c := NewCheck(s.Load())
	for _, key := range []int{1, 1, 0, 1} {
		_, m, err := s.Take(key)
		if err != nil {
			t.Fatal(err)
		}
		if want := []byte{'k', 'e', 'y', '-', '0' + byte(key)}; !bytes.Equal(m.Key, want) {
			t.Errorf("key %q, want %q", m.Key, want)
		}
		c.Take(m.Body)
	}
	if err := c.Err(); err != nil {
		t.Error(err)
	}
	if _, _, err := s.Take(0); err != ErrUsedUp {
		t.Errorf("%v after the last message, want %v", err, ErrUsedUp)
	}
}

func TestPublisherWaitsAndRefuses(t *testing.T) {
	t.Parallel()
	for _, perBatch := range []bool{false, true} {
		l := &Load{Messages: 3}
		p := NewPublisher(l)
		p.Latency, p.PerBatch, p.Refuse = 20*time.Millisecond, perBatch, func(n int) bool { return n == 1 }
		began := time.Now()
		refused := p.Batch([][]byte{l.Message(0).Body, l.Message(1).Body, l.Message(2).Body})
		if took := time.Since(began); took < p.Latency {
			t.Errorf("answered after %v, want %v", took, p.Latency)
		}
		if len(refused) != 1 || refused[0] != 1 || p.Got() != 2 {
			t.Errorf("refused %v, got %d: want the second one and 2", refused, p.Got())
		}
	}
}
