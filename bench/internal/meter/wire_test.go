package meter

import (
	"encoding/binary"
	"testing"
)

func message(kind byte, body int) []byte {
	b := []byte{kind}
	b = binary.BigEndian.AppendUint32(b, uint32(body+4))
	return append(b, make([]byte, body)...)
}

func startup(code uint32, body int) []byte {
	b := binary.BigEndian.AppendUint32(nil, uint32(body+8))
	b = binary.BigEndian.AppendUint32(b, code)
	return append(b, make([]byte, body)...)
}

// However the bytes are cut into writes.
func TestWireCounts(t *testing.T) {
	t.Parallel()
	stream := startup(3<<16, 40)
	for _, m := range [][]byte{message('Q', 9), message('P', 100), message('B', 1500), message('E', 9), message('B', 3), message('E', 9), message('S', 0), message('X', 0)} {
		stream = append(stream, m...)
	}
	for _, size := range []int{1, 2, 7, 4096} {
		var w Wire
		c := &counted{wire: &w}
		for at := 0; at < len(stream); at += size {
			c.follow(stream[at:min(at+size, len(stream))])
		}
		if s, r := w.Statements.Load(), w.RoundTrips.Load(); s != 3 || r != 2 {
			t.Errorf("in writes of %d bytes: %d statements and %d round trips, want 3 and 2", size, s, r)
		}
	}
}

func TestWireKnowsWhatItCannotRead(t *testing.T) {
	t.Parallel()
	var w Wire
	(&counted{wire: &w}).follow(startup(sslRequest, 0))
	if w.Readable() {
		t.Error("an encrypted connection passes for readable")
	}
}
