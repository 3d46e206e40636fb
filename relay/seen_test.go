package relay

import (
	"testing"
	"time"

	"github.com/postrider/postrider/outbox"
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
