// Package natstransport delivers to NATS JetStream.
package natstransport

import (
	_ "github.com/nats-io/nats.go/jetstream"
	_ "github.com/postrider/postrider/transport"
)
