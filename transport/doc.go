// Package transport is what the relay needs of a broker: batches in, one
// outcome per message out. It also holds what all transports share: how a
// record is laid out on the wire ([Wire]) and read back ([Wire.Parse]).
//
// # What "accepted" means
//
// Accepted is the one outcome after which the outbox forgets a message. Each
// transport reports it for the broker's own durable acknowledgement only:
//
//	NATS JetStream
//	  accepted is:       the stream's PubAck
//	  durable when:      the leader, with replicas a majority, has stored it;
//	                     fsync every sync_interval (2 min) unless "always"
//	  duplicates end:    same Nats-Msg-Id within the stream's window (2 min)
//	  unroutable is:     no stream takes the subject
//
// Delivery is at least once over every transport. The same message can reach
// the broker twice
//
//   - when its acknowledgement was lost or late (the outcome Unknown),
//   - when the relay ended between the acknowledgement and the settlement in
//     the outbox,
//   - when a relay was stopped between its lease check and the socket, and
//     another took the lane over meanwhile,
//   - when an operator replays a dead letter that was delivered after all.
//
// In all of them it keeps its id, so that the consumer's inbox drops it. Only
// the third can put an old message behind a newer one of its key; it then
// carries an older Postrider-Epoch.
//
// # Outcomes
//
// A transport sorts every failure into one of the outcomes, and when in doubt
// chooses the one that loses nothing: Unknown rather than Unreachable where
// bytes may have gone out, Refused rather than Permanent where the broker may
// change its mind.
package transport
