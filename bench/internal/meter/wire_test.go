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

func packet(number byte, body ...byte) []byte {
	n := len(body)
	return append([]byte{byte(n), byte(n >> 8), byte(n >> 16), number}, body...)
}

func TestMySQLWireCounts(t *testing.T) {
	t.Parallel()
	var sent, got []byte
	for _, p := range [][]byte{
		packet(1, 3, 3, 3, 3), // the answer to the greeting
		packet(0, append([]byte{comQuery}, make([]byte, 70_000)...)...), packet(0, comQuery), packet(0, 0x0e),
		packet(0, 0x16), packet(0, comStmtExecute, 1, 2), packet(0, comSendLong), packet(0, comStmtClose), packet(0, comQuit),
	} {
		sent = append(sent, p...)
	}
	for _, p := range [][]byte{
		packet(0, 10, 0xff, 0xbd, 0x04), packet(1), packet(2, 0xff), packet(3, 0xfe, 0, 0, 0, 0),
		packet(1, 0xff, 0xbd, 0x04, '#'), packet(1, 0xff, 0xb5, 0x04), packet(1, 0xff, 0x26, 0x04), // 1213, 1205, 1062
	} {
		got = append(got, p...)
	}
	for _, size := range []int{1, 2, 3, 7, 4096} {
		var w MySQLWire
		c := &countedMySQL{wire: &w}
		for at := 0; at < len(sent); at += size {
			c.sent.follow(sent[at:min(at+size, len(sent))], w.command)
		}
		for at := 0; at < len(got); at += size {
			c.got.follow(got[at:min(at+size, len(got))], w.answer)
		}
		if s, r, n := w.Statements.Load(), w.RoundTrips.Load(), w.Refusals.Load(); s != 3 || r != 5 || n != 2 {
			t.Errorf("in pieces of %d bytes: %d statements, %d round trips and %d refusals, want 3, 5 and 2", size, s, r, n)
		}
	}
}
