package contest

import (
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"math/rand/v2"
	"sync"
	"sync/atomic"
	"time"
)

// BodySize is the size of a message's body unless a load says otherwise.
const BodySize = 1024

const (
	headSize = 8 + 8 + 8 + 8 + 4
	noKey    = ^uint64(0)
)

var castagnoli = crc32.MakeTable(crc32.Castagnoli)

// Load is the messages of one run. A body carries its number, its key and its
// place within the key, and a checksum.
type Load struct {
	Messages int
	Keys     int // 0: none has a key
	Size     int // of a body; 0: BodySize
	// KeyOf gives the key of a message, in 0 to Keys-1. Defaults to turns, which
	// take no memory.
	KeyOf func(n int) int
	// Nonce tells the messages of this load from others. Defaults to a random
	// one; another process that checks the same messages needs the same.
	Nonce uint64

	once   sync.Once
	filler []byte
	keys   []uint32
	seqs   []uint32
}

func (l *Load) prepare() {
	l.once.Do(func() {
		if l.Nonce == 0 {
			l.Nonce = rand.Uint64()
		}
		if l.Size == 0 {
			l.Size = BodySize
		}
		l.filler = make([]byte, l.Size)
		r := rand.NewChaCha8([32]byte{1})
		r.Read(l.filler)
		if l.Keys == 0 || l.KeyOf == nil {
			return
		}
		l.keys, l.seqs = make([]uint32, l.Messages), make([]uint32, l.Messages)
		next := make([]uint32, l.Keys)
		for n := range l.keys {
			k := l.KeyOf(n)
			l.keys[n], l.seqs[n] = uint32(k), next[k]
			next[k]++
		}
	})
}

// place is the key of a message and its place within the key.
func (l *Load) place(n int) (key, seq uint64) {
	switch {
	case l.Keys == 0:
		return noKey, 0
	case l.KeyOf == nil:
		return uint64(n % l.Keys), uint64(n / l.Keys)
	}
	return uint64(l.keys[n]), uint64(l.seqs[n])
}

// Message is a message of the load. The memory is the caller's.
func (l *Load) Message(n int) Message {
	l.prepare()
	key, seq := l.place(n)
	return l.message(uint64(n), key, seq)
}

// Message is what a contestant delivers. A nil key is none.
type Message struct{ Key, Body []byte }

func (l *Load) message(n, key, seq uint64) Message {
	m := Message{Body: l.body(n, key, seq)}
	if key != noKey {
		m.Key = fmt.Appendf(nil, "key-%d", key)
	}
	return m
}

func (l *Load) body(n, key, seq uint64) []byte {
	b := make([]byte, l.Size)
	copy(b[headSize:], l.filler)
	binary.BigEndian.PutUint64(b, l.Nonce)
	binary.BigEndian.PutUint64(b[8:], n)
	binary.BigEndian.PutUint64(b[16:], key)
	binary.BigEndian.PutUint64(b[24:], seq)
	sum := crc32.Update(crc32.Checksum(b[:32], castagnoli), castagnoli, b[headSize:])
	binary.BigEndian.PutUint32(b[32:], sum)
	return b
}

// Stream hands out messages whose number nobody knows beforehand. A key belongs
// to one producer at a time, which commits a message before it takes the next of
// the key.
type Stream struct {
	load *Load
	seqs []uint64
	next atomic.Int64
}

// NewStream returns a stream of at most most messages with keys keys.
func NewStream(most, keys int) *Stream {
	s := &Stream{load: &Load{Messages: most, Keys: keys}, seqs: make([]uint64, keys)}
	s.load.prepare()
	return s
}

// Load is the load to check against.
func (s *Stream) Load() *Load { return s.load }

// ErrUsedUp is the end of a stream.
var ErrUsedUp = errors.New("the stream of messages is used up")

// Take returns the number of the next message, which is of the key, and the
// message.
func (s *Stream) Take(key int) (int, Message, error) {
	n := int(s.next.Add(1)) - 1
	if n >= s.load.Messages {
		return 0, Message{}, ErrUsedUp
	}
	m := s.load.message(uint64(n), uint64(key), s.seqs[key])
	s.seqs[key]++
	return n, m, nil
}

// Check verifies what arrives: each message once, unchanged, and those of a key
// in order. Safe for concurrent use.
type Check struct {
	load  *Load
	seen  []atomic.Uint32
	next  []atomic.Int64 // place of the next message of each key
	got   atomic.Int64
	first atomic.Pointer[time.Time]

	resumed  bool // the first message of a key may be any
	anyOrder bool
	target   atomic.Int64
	mu       sync.Mutex
	wrong    string // the first fault
	done     chan struct{}
	ended    bool // done is closed
}

// NewCheck returns a check of the messages of a load.
func NewCheck(l *Load) *Check {
	l.prepare()
	c := &Check{
		load: l, done: make(chan struct{}),
		seen: make([]atomic.Uint32, (l.Messages+31)/32), next: make([]atomic.Int64, l.Keys),
	}
	c.target.Store(int64(l.Messages))
	return c
}

// Resume makes a check that has not seen what was delivered before: the first
// message of a key that arrives may have any place.
func (c *Check) Resume() {
	c.resumed = true
	for i := range c.next {
		c.next[i].Store(-1)
	}
}

// AnyOrder makes a check of what promises no order: the places in a key may be any.
func (c *Check) AnyOrder() { c.anyOrder = true }

// Until makes the check be done at a number of messages. Not while any arrive.
func (c *Check) Until(target int) {
	c.target.Store(int64(target))
	c.done, c.ended = make(chan struct{}), false
}

// Take checks one message and returns its number, -1 if something is wrong.
func (c *Check) Take(body []byte) int {
	n, fault := c.judge(body)
	if fault != "" {
		c.end(fault)
		return -1
	}
	got := c.got.Add(1)
	if got == 1 {
		now := time.Now()
		c.first.Store(&now)
	}
	if got == c.target.Load() {
		c.end("")
	}
	return n
}

// First is when the first message arrived; zero before.
func (c *Check) First() time.Time {
	if t := c.first.Load(); t != nil {
		return *t
	}
	return time.Time{}
}

func (c *Check) end(fault string) {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wrong == "" {
		c.wrong = fault
	}
	if !c.ended {
		c.ended = true
		close(c.done)
	}
}

// Number is the number of a message in its load, unchecked.
func Number(body []byte) int { return int(binary.BigEndian.Uint64(body[8:])) }

func (c *Check) judge(b []byte) (n int, fault string) {
	if len(b) != c.load.Size {
		return 0, fmt.Sprintf("a body of %d bytes arrived, want %d", len(b), c.load.Size)
	}
	if binary.BigEndian.Uint64(b) != c.load.Nonce {
		return 0, "a message of another run arrived"
	}
	if crc32.Update(crc32.Checksum(b[:32], castagnoli), castagnoli, b[headSize:]) != binary.BigEndian.Uint32(b[32:]) {
		return 0, "a message arrived changed"
	}
	number, key, seq := binary.BigEndian.Uint64(b[8:]), binary.BigEndian.Uint64(b[16:]), int64(binary.BigEndian.Uint64(b[24:]))
	if number >= uint64(c.load.Messages) {
		return 0, fmt.Sprintf("message %d arrived of %d", number, c.load.Messages)
	}
	n = int(number)
	if c.seen[n/32].Or(1<<(n%32))&(1<<(n%32)) != 0 {
		return 0, fmt.Sprintf("message %d arrived twice", n)
	}
	if key != noKey && !c.anyOrder && !c.next[key].CompareAndSwap(seq, seq+1) && !(c.resumed && c.next[key].CompareAndSwap(-1, seq+1)) {
		return 0, fmt.Sprintf("message %d of key %d arrived when number %d of the key was due", seq, key, c.next[key].Load())
	}
	return n, ""
}

// Got is the number of messages that arrived.
func (c *Check) Got() int { return int(c.got.Load()) }

// Done is closed when enough messages have arrived, or when something is wrong.
func (c *Check) Done() <-chan struct{} { return c.done }

// Err says what was wrong first; nil when nothing was.
func (c *Check) Err() error {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.wrong != "" {
		return errors.New(c.wrong)
	}
	return nil
}
