// Package outbox is what users and store authors read: messages, the durable
// store contract, the optional capabilities, and the writing side.
//
// A service changes its database and tells the world about it, or does
// neither: it publishes inside its own transaction, and a relay delivers what
// was committed. Delivery is at least once. Messages of one ordering key are
// delivered in the order in which they were enlisted, if the transactions of
// that key are serialised by a row lock taken before the insert. Package relay
// tells the other conditions, and what becomes of messages that cannot be
// delivered.
//
//   - Users: [Outbox] with Publish and PublishAll, [Types], [UnitOfWork].
//   - Store authors: [Store] is the whole contract; [LaneStore] is what makes
//     it fast and ordered. Package storetest proves an implementation.
package outbox
