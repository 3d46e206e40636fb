package meter

import (
	"context"
	"encoding/binary"
	"net"
	"sync/atomic"
)

// MySQLWire counts what clients of MySQL and MariaDB send, and how often the
// server refuses it for the sake of another transaction: deadlocks and lock wait
// timeouts, those that a library passes over in silence too. Connections are not
// encrypted. Safe for concurrent use.
type MySQLWire struct {
	Statements, RoundTrips, Refusals atomic.Int64
}

// Dial fits mysql.Config.DialFunc.
func (w *MySQLWire) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &countedMySQL{Conn: c, wire: w}, nil
}

type countedMySQL struct {
	net.Conn
	wire      *MySQLWire
	sent, got packets
}

func (c *countedMySQL) Write(b []byte) (int, error) {
	n, err := c.Conn.Write(b)
	c.sent.follow(b[:n], c.wire.command)
	return n, err
}

func (c *countedMySQL) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.got.follow(b[:n], c.wire.answer)
	return n, err
}

// Commands, by their first byte.
const (
	comQuit        = 0x01
	comQuery       = 0x03
	comStmtExecute = 0x17
	comSendLong    = 0x18
	comStmtClose   = 0x19
)

func (w *MySQLWire) command(number byte, body []byte) {
	if number != 0 || len(body) == 0 {
		return // of the handshake, or the rest of a large one
	}
	switch body[0] {
	case comQuit, comSendLong, comStmtClose:
		return // nobody answers
	case comQuery, comStmtExecute:
		w.Statements.Add(1)
	}
	w.RoundTrips.Add(1)
}

func (w *MySQLWire) answer(_ byte, body []byte) {
	const failed, lockWaitTimeout, deadlock = 0xff, 1205, 1213
	if len(body) < 3 || body[0] != failed {
		return
	}
	if code := binary.LittleEndian.Uint16(body[1:]); code == deadlock || code == lockWaitTimeout {
		w.Refusals.Add(1)
	}
}

// packets follows one direction: three bytes of length, a number, a body.
type packets struct {
	start [7]byte // the head and as much of the body as anybody asks for
	have  int     // bytes of it so far
	skip  int     // bytes of the body left
}

func (p *packets) follow(b []byte, packet func(number byte, body []byte)) {
	for len(b) > 0 {
		if p.skip > 0 {
			k := min(p.skip, len(b))
			p.skip -= k
			b = b[k:]
			continue
		}
		k := copy(p.start[p.have:p.want()], b)
		p.have += k
		b = b[k:]
		if p.have < p.want() {
			continue
		}
		packet(p.start[3], p.start[4:p.have])
		p.skip = p.size() - (p.have - 4)
		p.have = 0
	}
}

func (p *packets) want() int {
	if p.have < 4 {
		return 4
	}
	return 4 + min(p.size(), len(p.start)-4)
}

func (p *packets) size() int { return int(p.start[0]) | int(p.start[1])<<8 | int(p.start[2])<<16 }
