package meter

import (
	"context"
	"encoding/binary"
	"net"
	"sync/atomic"
)

// Wire counts what PostgreSQL clients send, whatever library they use: each
// Execute and each simple query is a statement, each Sync and each simple query
// a round trip. Safe for concurrent use.
type Wire struct {
	Statements, RoundTrips atomic.Int64
	opaque                 atomic.Bool
}

// Readable is false once a connection was encrypted: then nothing is known.
func (w *Wire) Readable() bool { return !w.opaque.Load() }

// Dial fits pgconn.Config.DialFunc.
func (w *Wire) Dial(ctx context.Context, network, addr string) (net.Conn, error) {
	c, err := (&net.Dialer{}).DialContext(ctx, network, addr)
	if err != nil {
		return nil, err
	}
	return &counted{Conn: c, wire: w}, nil
}

const sslRequest = 80877103

// counted follows the frontend's messages: a type byte, except in the first
// one, and a length that counts itself.
type counted struct {
	net.Conn
	wire    *Wire
	head    [8]byte
	have    int  // bytes of the head so far
	skip    int  // bytes of the body left
	started bool // the start-up message is through
}

func (c *counted) Write(p []byte) (int, error) {
	n, err := c.Conn.Write(p)
	if c.wire.Readable() {
		c.follow(p[:n])
	}
	return n, err
}

func (c *counted) follow(p []byte) {
	for len(p) > 0 {
		if c.skip > 0 {
			k := min(c.skip, len(p))
			c.skip -= k
			p = p[k:]
			continue
		}
		want := 5
		if !c.started {
			want = 8
		}
		k := copy(c.head[c.have:want], p)
		c.have += k
		p = p[k:]
		if c.have < want {
			return
		}
		c.have = 0
		if !c.started {
			c.started = true
			if binary.BigEndian.Uint32(c.head[4:]) == sslRequest {
				c.wire.opaque.Store(true)
				return
			}
			c.skip = int(binary.BigEndian.Uint32(c.head[:])) - 8
			continue
		}
		switch c.head[0] {
		case 'E':
			c.wire.Statements.Add(1)
		case 'Q':
			c.wire.Statements.Add(1)
			c.wire.RoundTrips.Add(1)
		case 'S':
			c.wire.RoundTrips.Add(1)
		}
		c.skip = int(binary.BigEndian.Uint32(c.head[1:])) - 4
	}
}
