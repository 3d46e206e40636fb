// Package relay delivers what was committed to the outbox: read, send, settle.
//
// A relay leases lanes of its routes and is, while it holds a lease, the only
// one that sends their rows. It reads a lane by position without claiming
// anything, sends many keys at once, and within a key the next message only
// when the one before it is out. Several relays share the lanes; one that dies
// loses them when its lease runs out.
//
// A relay writes no log. Hang yours on [Options].Hooks, and look at what
// [Relay.Run] returns.
//
// # Order
//
// The messages of a key reach the broker in the order in which they were
// written, within their route, under these conditions:
//
//   - They were written after the lock that serialises the key was taken, or by
//     an [outbox.UnitOfWork] that holds it at the commit.
//   - The store has lanes: [Relay.Ordered] tells, Options.RequireOrder insists.
//     Those of store/sqlstore have.
//   - They are not scheduled: [outbox.Message].DeliverAt does not hold back the
//     key, and the message takes its place when it falls due.
//   - None of them became a dead letter. The key goes on without it, and
//     replayed it comes after messages that were written later. The policy
//     [ParkKey] stops the key instead.
//
// One case no outbox can exclude: a process that is stopped between its lease
// check and the socket may send an old message late. It carries an older
// Postrider-Epoch (see package transport).
//
// # Duplicates
//
// Delivery is at least once. A message is sent again, under the same id, when
// its acknowledgement was lost, when the process ended between acknowledgement
// and settle, or when a lease ended while it was on the wire. Package inbox
// drops the repeat.
//
// # Outages
//
// While its broker is away a route pauses: the rows stay in their table, no
// attempt is spent, and one message at a time tries the broker, every few
// seconds. Afterwards everything goes out, in order. While the database is away
// nothing new is sent. An outage may last any time; it costs the space of the
// rows, and no more memory than Options.BufferRows and BufferBytes.
//
// # Messages that cannot be delivered
//
//	outcome of the send            attempt   then
//	Refused                        counts    a retry after a while; after
//	Unknown, others are accepted   counts    MaxAttempts Options.Poison
//	Permanent                      counts    Options.Poison at once
//	Unroutable                     -         the key is parked at once, whatever
//	                                         Poison says; without a key a dead
//	                                         letter
//	Unreachable, Unknown           -         the route pauses
//
// A row that cannot be decoded is a dead letter. A message during whose send
// the process ended, time after time, spends its attempts too.
//
// A forgotten stream is Unroutable: have the transport checked at the start
// ([transport.Checker]). Dead letters and parked keys wait for an operator:
// [outbox.DeadLetters] lists and replays the ones, [outbox.Parker] lists and
// unparks the others.
//
// # Resources
//
// Options.BufferRows and BufferBytes hold for each route. A read is sized by
// what is free and by the size of recent rows, or of the first ones of lanes just
// taken, at most 1,024 rows: a burst of large rows after small ones goes over
// BufferBytes by what one read returns.
//
// Over a store of store/sqlstore a relay pins four connections.
package relay
