// Package demo is `postrider demo`: a shop that places orders through an
// outbox, relays that deliver them, a consumer that applies each one once, and
// a verdict on whether that is what happened.
//
// The verdict ([Judge]) is a pure function over what was recorded: the shop's
// database, the consumer's database and the stream, read again at the end. No
// counter of the running program enters it.
package demo
