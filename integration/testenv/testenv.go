package testenv

import (
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/nats-io/nats-server/v2/server"
	_ "github.com/nats-io/nats.go/jetstream"
	_ "github.com/postrider/postrider/outbox"
	_ "github.com/postrider/postrider/transport/natstransport"
	_ "go.uber.org/goleak"
	_ "modernc.org/sqlite"
)
