//go:build prove && linux

package chaos_test

import (
	"errors"
	"net"
	"os"
	"sync"
	"testing"
	"time"
)

// proxy is the line between one relay and one server.
type proxy struct {
	ln     net.Listener
	target string
	wg     sync.WaitGroup

	mu    sync.Mutex
	down  bool
	delay time.Duration
	gate  chan struct{} // closed: bytes flow
	links map[*link]bool
	felt  map[string]int // what faults did to connections and bytes
}

// link is one connection through the proxy. In a dead one each side sends into
// nothing and hears nothing of the other's end, as after a power cut.
type link struct {
	ends [2]net.Conn // client, server
	dead bool
}

func newProxy(t *testing.T, target string) *proxy {
	t.Helper()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	p := &proxy{ln: ln, target: target, gate: make(chan struct{}), links: map[*link]bool{}, felt: map[string]int{}}
	close(p.gate)
	p.wg.Go(p.accept)
	t.Cleanup(func() {
		ln.Close()
		p.heal()
		p.cut(true)
		p.wg.Wait()
	})
	return p
}

func (p *proxy) addr() string { return p.ln.Addr().String() }

func (p *proxy) accept() {
	for {
		c, err := p.ln.Accept()
		if err != nil {
			return
		}
		s, err := net.DialTimeout("tcp", p.target, time.Second)
		if err != nil {
			c.Close()
			continue
		}
		l := &link{ends: [2]net.Conn{c, s}}
		p.mu.Lock()
		p.links[l] = true
		if p.down {
			p.felt["cut"]++
			p.drop(l)
		}
		p.mu.Unlock()
		p.wg.Go(func() { p.copy(l, 0) })
		p.wg.Go(func() { p.copy(l, 1) })
	}
}

// copy carries what the end of that number sends to the other.
func (p *proxy) copy(l *link, from int) {
	buf := make([]byte, 32<<10)
	for {
		n, err := l.ends[from].Read(buf)
		p.mu.Lock()
		gate, delay := p.gate, p.delay
		select {
		case <-gate:
		default:
			p.felt["held"]++
		}
		if delay > 0 {
			p.felt["slow"]++
		}
		p.mu.Unlock()
		<-gate
		time.Sleep(delay)
		p.mu.Lock()
		if dead := l.dead; dead || err != nil {
			switch {
			case err == nil:
				p.felt["half-open"]++
			case dead:
				l.ends[from].Close() // the other end does not learn of it
			default:
				p.drop(l)
			}
			p.mu.Unlock()
			if err != nil {
				return
			}
			continue
		}
		p.mu.Unlock()
		if _, err := l.ends[1-from].Write(buf[:n]); err != nil {
			p.mu.Lock()
			p.drop(l)
			p.mu.Unlock()
			return
		}
	}
}

func (p *proxy) drop(l *link) {
	l.ends[0].Close()
	l.ends[1].Close()
	delete(p.links, l)
}

// cut ends every connection, and new ones while down.
func (p *proxy) cut(down bool) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down = down
	for l := range p.links {
		if !l.dead {
			p.felt["cut"]++
		}
		p.drop(l)
	}
}

// hold lets no byte pass until heal; then what was held goes on.
func (p *proxy) hold() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.gate = make(chan struct{})
}

func (p *proxy) slow(d time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.delay = d
}

// halfOpen leaves the connections of now dead for ever; new ones work.
func (p *proxy) halfOpen() {
	p.mu.Lock()
	defer p.mu.Unlock()
	for l := range p.links {
		l.dead = true
	}
}

// heal ends what hold, slow and cut began.
func (p *proxy) heal() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.down, p.delay = false, 0
	select {
	case <-p.gate:
	default:
		close(p.gate)
	}
}

// happened tells how often a fault was felt so far.
func (p *proxy) happened(what string) int {
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.felt[what]
}

// The faults are what their names say: else the runs prove nothing.
func TestProxy(t *testing.T) {
	t.Parallel()
	ln, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer ln.Close()
	server := make(chan net.Conn, 10)
	go func() {
		for {
			c, err := ln.Accept()
			if err != nil {
				return
			}
			server <- c
		}
	}()
	p := newProxy(t, ln.Addr().String())
	pair := func() (c, s net.Conn) {
		c, err := net.Dial("tcp", p.addr())
		if err != nil {
			t.Fatal(err)
		}
		s = <-server
		t.Cleanup(func() { c.Close(); s.Close() })
		return c, s
	}
	// passes tells whether a byte gets through within d.
	passes := func(from, to net.Conn, d time.Duration) bool {
		if _, err := from.Write([]byte{1}); err != nil {
			return false
		}
		to.SetReadDeadline(time.Now().Add(d))
		n, _ := to.Read(make([]byte, 1))
		return n == 1
	}
	const soon, never = 10 * time.Second, 50 * time.Millisecond
	// happened tells whether the proxy says so before long: what does not pass
	// has to reach it all the same.
	happened := func(what string) bool {
		for end := time.Now().Add(soon); p.happened(what) == 0; time.Sleep(time.Millisecond) {
			if time.Now().After(end) {
				return false
			}
		}
		return true
	}
	c, s := pair()
	if !passes(c, s, soon) || !passes(s, c, soon) {
		t.Fatal("a healthy line carries nothing")
	}
	p.hold()
	if passes(c, s, never) || !happened("held") {
		t.Error("a held line carries bytes")
	}
	p.heal()
	s.SetReadDeadline(time.Now().Add(soon))
	if n, err := s.Read(make([]byte, 1)); n != 1 {
		t.Errorf("what was held does not go on: %v", err)
	}
	p.slow(100 * time.Millisecond)
	if start := time.Now(); !passes(c, s, soon) || time.Since(start) < 100*time.Millisecond || p.happened("slow") == 0 {
		t.Errorf("a slow line took %v", time.Since(start))
	}
	p.heal()
	p.halfOpen()
	if passes(c, s, never) || passes(s, c, never) || !happened("half-open") {
		t.Error("a dead connection carries bytes")
	}
	c.Close()
	s.SetReadDeadline(time.Now().Add(never))
	if _, err := s.Read(make([]byte, 1)); !errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("the far end of a dead connection hears of its end: %v", err)
	}
	c, s = pair()
	if !passes(c, s, soon) {
		t.Error("a new connection beside a dead one carries nothing")
	}
	p.cut(true)
	s.SetReadDeadline(time.Now().Add(soon))
	if _, err := s.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a cut connection goes on: %v", err)
	}
	c, _ = pair()
	c.SetReadDeadline(time.Now().Add(soon))
	if _, err := c.Read(make([]byte, 1)); err == nil || errors.Is(err, os.ErrDeadlineExceeded) {
		t.Errorf("a new connection is not cut while the line is down: %v", err)
	}
}
