// Package natstransport delivers to NATS JetStream.
//
// A message's Destination is its subject. Every message is published with its
// record id as Nats-Msg-Id, in every envelope, and waits for a PubAck of its
// own; the binary envelope follows the CloudEvents NATS binding (headers
// "ce-...", "content-type").
//
// # Connection
//
// nats.go keeps what is published during a lost connection and sends it after
// the next connect, possibly long after the relay has lost its lanes to
// another. [New] therefore refuses a connection that buffers: connect with
// [ConnectOptions]. The transport does not close the connection.
//
// A NATS user with restricted permissions needs: publish on the destinations,
// on $JS.API.INFO, $JS.API.STREAM.NAMES and $JS.API.STREAM.INFO.<stream>;
// subscribe on _INBOX.>.
//
// Create the stream before messages are sent: one whose subject no stream takes
// is [transport.Unroutable], and the relay parks its key. Where the server cannot
// be asked (no leader of JetStream, no right to ask) the route is held back
// instead, as by a stream that is full and discards new messages, until there is
// room: no attempt is spent. [Transport.Check] tells at the start, for the stream
// and subjects of [Options].
//
// # What "accepted" means
//
// The stream's leader has stored the message, and with replicas a majority
// has. A server acknowledges before its disk has: it calls fsync every
// sync_interval, two minutes by default, so that a machine (not a process)
// that loses power can lose what was acknowledged. Replicas on machines that do
// not fail together, or sync_interval: always for a single one, close this. A
// stream in memory, or one whose limits discard old messages, keeps what it
// says it keeps.
//
// An acknowledged duplicate (same Nats-Msg-Id within the stream's duplicate
// window, two minutes by default) is accepted: the first copy is in the stream.
// Outside the window a message sent again stands in the stream twice, and the
// consumer's inbox drops the second. A dead letter replayed within the window
// of an earlier delivery is swallowed by the stream, which has it: to have it
// delivered anew, wait for the window to pass.
//
// # Order
//
// Order within a key rests on the dispatcher, which keeps one message of a key
// in flight. The transport does not declare [transport.Pipeliner]: JetStream
// judges each message alone, and would store a key's second message after
// refusing its first.
//
// The lease is checked immediately before each publish. What can still go out
// later is what was handed to the operating system, and up to nats.go's write
// buffer (32 KiB) where the process is stopped between publish and write: an
// old message after a newer one, under an older Postrider-Epoch, and dropped by
// the stream within its duplicate window.
//
// # Headers
//
// NATS carries headers as a map: values of one name keep their order, names
// among each other do not. Names keep their case. What NATS cannot carry
// unchanged (CR, LF, NUL, leading or trailing space in a value; anything but
// letters, digits and !#$%&'*+-.^_`|~ in a name) makes the message permanently
// undeliverable instead of being altered, as do a Nats-Msg-Id and the
// Nats-Batch- headers, which would change what is acknowledged.
package natstransport
