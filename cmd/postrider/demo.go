package main

import (
	"os"
	"os/signal"
	"syscall"

	"github.com/postrider/postrider/cmd/postrider/internal/demo"
)

// demoCmd is `postrider demo`. Its flags are read from the command line alone:
// a demo must not meet a real outbox through the environment.
type demoCmd struct {
	Orders    int    `default:"2000" help:"Orders to place, 1 to 1,000,000; with --crash it may become more. Default ${default}."`
	Customers int    `default:"50" help:"Customers who place them, 1 to 100,000. Default ${default}."`
	Producers int    `default:"8" help:"Orders placed at once, 1 to 256. Default ${default}."`
	Rollback  int    `default:"5" placeholder:"PERCENT" help:"Share of the orders that is rolled back on purpose, 0 to 100. Default ${default}."`
	Relays    int    `default:"2" help:"Relays that deliver, 1 to 16. Default ${default}."`
	Crash     bool   `help:"Run the relays as child processes and kill them with SIGKILL while messages wait, until five kills have counted."`
	JSON      bool   `name:"json" help:"Print the verdict as one JSON object, the last line of the output."`
	Keep      string `placeholder:"DIR" help:"Keep the databases and the stream; DIR must be empty or missing."`
	DB        string `name:"db" placeholder:"URL" help:"Work in PostgreSQL or MySQL, in schemas made and dropped by the demo. Default: SQLite files."`
	NATS      string `name:"nats" placeholder:"URL" help:"Use this NATS server, with a stream made and deleted by the demo. Default: an embedded server."`
	Seed      uint64 `placeholder:"N" help:"Repeat the choices of an earlier demo. Default: a new one."`
}

// Run runs the demo.
func (c *demoCmd) Run(p *program) error {
	// A reader that goes away, as head does, must not end the demo before it
	// has tidied up: writes fail instead.
	signal.Ignore(syscall.SIGPIPE)
	self, err := os.Executable()
	if err != nil {
		return err
	}
	return demo.Run(p.ctx, demo.Options{
		Orders:       c.Orders,
		Customers:    c.Customers,
		Producers:    c.Producers,
		Rollback:     c.Rollback,
		Relays:       c.Relays,
		Crash:        c.Crash,
		JSON:         c.JSON,
		Keep:         c.Keep,
		DB:           c.DB,
		NATS:         c.NATS,
		Seed:         c.Seed,
		RelayCommand: []string{self, "demo-relay"},
		Stdout:       p.stdout,
		Stderr:       p.stderr,
	})
}

// demoRelayCmd is a relay of `postrider demo --crash`.
type demoRelayCmd struct{}

// Run relays until the demo says stop or is gone.
func (*demoRelayCmd) Run(p *program) error { return demo.RunRelay(p.ctx, os.Stdin, p.stderr) }
