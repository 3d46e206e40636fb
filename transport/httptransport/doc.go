// Package httptransport receives CloudEvents over HTTP.
//
// [NewHandler] is an http.Handler for a [receiver.Receiver]: it takes events in
// the binary and the structured content mode of the CloudEvents HTTP binding,
// handles each once, and answers when the transaction has ended.
package httptransport
