// Command postrider runs, migrates and inspects outboxes.
package main

import (
	_ "github.com/alecthomas/kong"
	_ "github.com/jackc/pgx/v5/stdlib"
	_ "github.com/knadh/koanf/parsers/yaml"
	_ "github.com/knadh/koanf/providers/confmap"
	_ "github.com/knadh/koanf/providers/rawbytes"
	_ "github.com/knadh/koanf/v2"
	_ "github.com/nats-io/nats-server/v2/server"
	_ "github.com/nats-io/nats.go/jetstream"
	_ "github.com/postrider/postrider/outbox"
	_ "github.com/postrider/postrider/transport/natstransport"
	_ "modernc.org/sqlite"
)

func main() {}
