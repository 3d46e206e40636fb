package outbox_test

import (
	"bytes"
	"testing"

	"github.com/postrider/postrider/outbox"
)

// Producers in other languages compute these: the same vectors stand in the
// documentation.
var keyVectors = []struct {
	key  []byte
	hash int64
	lane [4]int // of 1, 8, 16 and 1024 lanes
}{
	{[]byte("customer-42"), -6897848645803475147, [4]int{0, 3, 3, 819}},
	{[]byte("a"), -3848465438864589366, [4]int{0, 2, 2, 274}},
	{[]byte{0x00}, 7940984811893783192, [4]int{0, 4, 12, 924}},
	{[]byte{0xff, 0xfe}, -5488461952128164696, [4]int{0, 7, 15, 239}},
	{[]byte("Zürich"), 4778715432666969653, [4]int{0, 6, 14, 94}},
	{bytes.Repeat([]byte("k"), 1024), -350318824635445041, [4]int{0, 2, 2, 738}},
}

func TestKeyGoldenVectors(t *testing.T) {
	t.Parallel()
	for _, v := range keyVectors {
		if got := outbox.KeyHash(v.key); got != v.hash {
			t.Errorf("KeyHash(%.16q) = %d, want %d", v.key, got, v.hash)
		}
		for i, count := range [...]int{1, 8, 16, 1024} {
			if got := outbox.KeyLane(v.key, count); got != v.lane[i] {
				t.Errorf("KeyLane(%.16q, %d) = %d, want %d", v.key, count, got, v.lane[i])
			}
		}
	}
	for _, count := range []int{0, -1} {
		if got := outbox.KeyLane([]byte("a"), count); got != 0 {
			t.Errorf("KeyLane of %d lanes = %d, want 0", count, got)
		}
	}
}

func TestLaneOfGoldenVectors(t *testing.T) {
	t.Parallel()
	route := outbox.Route{Name: "second", First: 25, Ordered: 16, Unordered: 8}
	for _, c := range []struct {
		id   string
		key  []byte
		want outbox.Lane
	}{
		{"01890a5d-ac96-774b-bcce-b302099a8057", []byte("customer-42"), 25 + 3},
		{"018f5e8c-0000-7000-8000-000000000000", []byte("customer-42"), 25 + 3},
		{"01890a5d-ac96-774b-bcce-b302099a8057", []byte{0xff, 0xfe}, 25 + 15},
		{"01890a5d-ac96-774b-bcce-b302099a8057", nil, 25 + 16 + 2},
		{"018f5e8c-0000-7000-8000-000000000000", nil, 25 + 16 + 7},
	} {
		id, err := outbox.ParseID(c.id)
		if err != nil {
			t.Fatal(err)
		}
		if got := outbox.LaneOf(route, id, c.key); got != c.want {
			t.Errorf("LaneOf(%s, %q) = %d, want %d", c.id, c.key, got, c.want)
		}
	}
}

// Keyed rows stay in the ordered lanes, unkeyed ones in the others, and both
// use all of theirs.
func TestLaneOfRanges(t *testing.T) {
	t.Parallel()
	route := outbox.Route{First: 7, Ordered: 5, Unordered: 3}
	if route.Lanes() != 8 {
		t.Fatalf("the route has %d lanes, want 8", route.Lanes())
	}
	rows := map[outbox.Lane]int{}
	for range 2000 {
		id := outbox.NewID()
		if lane := outbox.LaneOf(route, id, id[:]); lane < 7 || lane >= 12 {
			t.Fatalf("a keyed row is in lane %d, want 7 to 11", lane)
		} else {
			rows[lane]++
		}
		if lane := outbox.LaneOf(route, id, nil); lane < 12 || lane >= 15 {
			t.Fatalf("an unkeyed row is in lane %d, want 12 to 14", lane)
		} else {
			rows[lane]++
		}
	}
	if len(rows) != 8 {
		t.Fatalf("rows are in %d of 8 lanes: %v", len(rows), rows)
	}
}

func TestLaneLimit(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ size, reads, want int }{
		{0, 1, 0}, {1, 1, 1}, {7, 1, 1}, {8, 1, 8}, {500, 1, 256}, {512, 1, 512}, {1 << 20, 1, 1024},
		{512, 16, 32}, {511, 16, 8}, {24, 24, 1}, {23, 24, 0}, {100, 0, 0}, {100, -1, 0}, {-5, 1, 0},
	} {
		if got := outbox.LaneLimit(c.size, c.reads); got != c.want {
			t.Errorf("LaneLimit(%d, %d) = %d, want %d", c.size, c.reads, got, c.want)
		}
	}
	for size := range 1500 {
		for reads := 1; reads < 30; reads++ {
			if n := outbox.LaneLimit(size, reads); n*reads > size {
				t.Fatalf("LaneLimit(%d, %d) = %d: the reads would not fit", size, reads, n)
			}
		}
	}
}

func TestFairShare(t *testing.T) {
	t.Parallel()
	for _, c := range []struct{ lanes, relays, want int }{{24, 1, 24}, {24, 3, 8}, {24, 5, 5}, {1, 4, 1}, {24, 0, 24}} {
		if got := (outbox.LaneShare{Lanes: c.lanes, Relays: c.relays}).Fair(); got != c.want {
			t.Errorf("%d relays of %d lanes: %d each, want %d", c.relays, c.lanes, got, c.want)
		}
	}
}
