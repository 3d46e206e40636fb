package relay

import (
	"context"
	"fmt"
	"slices"
	"sync"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/storetest"
	"github.com/postrider/postrider/transport"
)

func seenLane(often, most int) (*core, *lane) {
	opt := (&Options{}).withDefaults()
	c := newCore(&opt, nil)
	return c, &lane{
		route: &route{size: 1}, rows: map[int64]*row{}, keys: map[string]*key{}, partial: map[int64]*key{},
		seen: seenKeys{often: often, most: most},
	}
}

// admitKey admits a row and tells whether it was kept.
func admitKey(c *core, l *lane, rd outbox.LaneRead, name string, hash, pos int64) bool {
	lr := outbox.LaneRow{Pos: pos, KeyHash: hash, Record: outbox.Record{ID: outbox.NewID(), Message: outbox.Message{Key: []byte(name)}}}
	c.admit(l, &rd, &lr, time.Time{})
	return l.rows[pos] != nil
}

func read(c *core, l *lane) outbox.LaneRead { return outbox.LaneRead{After: 1, Seen: c.seenOf(l)} }

// The store looks below the cursor by hash: when it was told of one key, it did
// not look for another one with the same hash.
func TestKeysOfOneHash(t *testing.T) {
	t.Parallel()
	c, l := seenLane(2, 8)
	for pos := range int64(3) {
		if !admitKey(c, l, read(c, l), "a", 7, pos+1) {
			t.Fatalf("the row at %d was not kept", pos+1)
		}
	}
	rd := read(c, l)
	if got := rd.SeenUpTo(7); got != 3 {
		t.Fatalf("the key is named as seen up to %d, want 3", got)
	}
	if admitKey(c, l, rd, "b", 7, 4) {
		t.Error("P3: a row was taken whose key the store did not look for")
	}
	if !l.keys["b"].partial {
		t.Error("P3: its key is not read afresh")
	}
	if !admitKey(c, l, rd, "a", 7, 5) || !admitKey(c, l, rd, "c", 8, 6) {
		t.Error("rows of other keys were held up")
	}
}

// What a read said counts no more when the lane has got dead letters since: one
// that is replayed lies below what was seen.
func TestNothingIsSeenBesideDeadLetters(t *testing.T) {
	t.Parallel()
	c, l := seenLane(1, 8)
	admitKey(c, l, read(c, l), "a", 7, 1)
	rd := read(c, l)
	if rd.SeenUpTo(7) != 1 {
		t.Fatal("the key is not named as seen")
	}
	l.bury()
	if admitKey(c, l, rd, "a", 7, 2) {
		t.Error("P3: a row was taken before the dead letter of its key that was replayed")
	}
	admitKey(c, l, read(c, l), "b", 8, 3)
	if got := read(c, l).Seen; got != nil {
		t.Errorf("keys are named as seen: %v", got)
	}
}

func TestSeenKeysAreFew(t *testing.T) {
	t.Parallel()
	c, l := seenLane(3, 4)
	pos := int64(0)
	admit := func(hash int64) {
		pos++
		admitKey(c, l, outbox.LaneRead{}, string(rune('a'+hash)), hash, pos)
	}
	for range 3 {
		admit(1)
	}
	for i := range int64(100) {
		admit(2 + i)
		if i%4 == 0 {
			admit(1)
		}
		if n := len(l.seen.now) + len(l.seen.old); n > 2*4 {
			t.Fatalf("%d keys are remembered, limit 8", n)
		}
		if rd := read(c, l); rd.SeenUpTo(1) == 0 {
			t.Fatal("the key that comes again and again was forgotten")
		}
	}
	for i := range int64(8) {
		admit(200 + i)
	}
	if got := read(c, l).Seen; len(got) != 0 {
		t.Errorf("keys that do not come any more are named as seen: %v", got)
	}
}

// promoting is a store whose next promotion moves two rows of a key, between whose
// positions a producer's row of it is committed and read.
type promoting struct {
	*storetest.Mem
	mu     sync.Mutex
	next   []outbox.Record // moved, the producer's, moved
	answer time.Duration   // from the commit to the answer
}

func (p *promoting) SweepLanes(ctx context.Context, reads []outbox.LaneRead, dst []outbox.LaneSpot) (int, error) {
	time.Sleep(time.Second) // no sweep finds the rows first
	return p.Mem.SweepLanes(ctx, reads, dst)
}

func (p *promoting) PromoteLanes(ctx context.Context, _ []outbox.LaneLease, dst []outbox.LaneRow) (int, time.Time, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.next == nil {
		return 0, time.Time{}, nil
	}
	move, own := p.Begin(), p.Begin()
	for i, tx := range []*storetest.MemTx{move, own, move} {
		if err := p.Enlist(ctx, tx, p.next[i]); err != nil {
			return 0, time.Time{}, err
		}
	}
	if err := own.Commit(); err != nil {
		return 0, time.Time{}, err
	}
	time.Sleep(time.Second)
	if err := move.Commit(); err != nil {
		return 0, time.Time{}, err
	}
	time.Sleep(p.answer)
	lane := outbox.LaneOf(outbox.Route{First: 1, Ordered: 16, Unordered: 8}, outbox.ID{}, p.next[0].Message.Key)
	dst[0], dst[1] = outbox.LaneRow{Lane: lane, Record: p.next[0]}, outbox.LaneRow{Lane: lane, Record: p.next[2]}
	p.next = nil
	return 2, time.Time{}, nil
}

// A promotion draws positions without the lock of a key: what was read of the key
// above them says nothing of them.
func TestPromotedRowsAreNotSeen(t *testing.T) {
	t.Parallel()
	for _, answer := range []time.Duration{0, 2 * time.Second} {
		t.Run(fmt.Sprint("answer after ", answer), func(t *testing.T) {
			t.Parallel()
			synctest.Test(t, func(t *testing.T) {
				var mu sync.Mutex
				var sent []string
				tr := &answerer{func(d *transport.Delivery) {
					mu.Lock()
					defer mu.Unlock()
					sent = append(sent, string(d.Record.Message.Body))
				}}
				store := &promoting{Mem: storetest.NewMem(nil), answer: answer}
				_, stop := engineOver(t, store, tr, nil)
				fill(t, store.Mem, 2*seenOften, 1) // of the key k0
				time.Sleep(5 * time.Second)
				var k []outbox.Record
				for _, body := range []string{"first", "between", "last"} {
					k = append(k, outbox.Record{ID: outbox.NewID(), Transport: "default", Type: "t.v1", CreatedAt: time.Now(),
						Message: outbox.Message{Destination: "d", Key: []byte("k0"), Body: []byte(body), Event: outbox.Event{Source: "/t"}}})
				}
				store.mu.Lock()
				store.next = k
				store.mu.Unlock()
				time.Sleep(5 * time.Minute)
				stop()
				mu.Lock()
				defer mu.Unlock()
				if got := sent[min(2*seenOften, len(sent)):]; !slices.Equal(got, []string{"between", "first", "last"}) {
					t.Errorf("P3: sent %q; the promoted rows in the order of their positions, want between, first, last", got)
				}
			})
		})
	}
}

// answerer accepts all it is given, one after the other.
type answerer struct{ sent func(*transport.Delivery) }

func (a *answerer) Send(_ context.Context, ds []*transport.Delivery) {
	for _, d := range ds {
		if d.Begin() == nil {
			a.sent(d)
			d.Report(transport.Accepted, nil)
		}
	}
}
