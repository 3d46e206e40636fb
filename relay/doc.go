// Package relay delivers what was committed to the outbox: read, send, settle.
//
// A relay leases lanes of its routes and is, while it holds a lease, the only
// one that sends their rows. It reads a lane by position without claiming
// anything, sends many keys at once, and within a key the next message only
// when the one before it is out. Several relays share the lanes; one that dies
// loses them when its lease runs out.
//
// Delivery is at least once. A message is sent again when its acknowledgement
// was lost, when the process ended between acknowledgement and settle, or when
// a lease ended while it was on the wire.
//
// The decisions (core.go, key.go) are plain data under one lock; the loops
// (run.go, lease.go, read.go, send.go, settle.go) do the waiting and the I/O.
package relay
