package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"regexp"
	"runtime/debug"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/alecthomas/kong"

	"github.com/postrider/postrider/outbox"
)

// cli is the grammar of the command line: a field per command, whose Run
// method gets the *program.
type cli struct {
	Demo    demoCmd    `cmd:"" help:"Watch a shop, relays and a consumer at work, and get a verdict. Needs nothing but this program."`
	Run     runCmd     `cmd:"" help:"Relay the messages of one outbox to NATS JetStream until a signal comes."`
	Migrate migrateCmd `cmd:"" help:"Create or upgrade the tables and create the routes. Safe to run many times and at once."`
	Schema  schemaCmd  `cmd:"" help:"Print the SQL that migrate would run on an empty database."`
	Status  statusCmd  `cmd:"" help:"Show what waits, what died and which relays are alive."`

	Park   parkCmd   `cmd:"" help:"Stop an ordering key: its messages wait, in order. Other keys go on."`
	Unpark unparkCmd `cmd:"" help:"Let parked keys go on, in order."`
	Dead   deadCmd   `cmd:"" help:"List, show, retry or discard dead letters."`

	DemoRelay demoRelayCmd `cmd:"" hidden:"" help:"A relay of the demo."`

	Version kong.VersionFlag `help:"Print the version and exit."`
}

const description = `Postrider delivers the messages that services write in their own database transactions.

Settings come from flags, then POSTRIDER_ environment variables, then the YAML file of --config: --max-attempts is POSTRIDER_MAX_ATTEMPTS and max_attempts.

Exit status: 0 done, or stopped cleanly by a signal; 1 failed; 2 wrong command line or configuration; 3 the tables are missing, older or newer than this program, or their routes differ from the settings; 4 done, but a relay has not confirmed it within --wait.`

// program is what a command works with.
type program struct {
	ctx            context.Context
	stdout, stderr io.Writer
	environ        []string
	parsed         *kong.Context
}

// Exit codes, as the help text explains them.
const (
	exitFailed      = 1
	exitUsage       = 2
	exitSchema      = 3
	exitUnconfirmed = 4
)

// usageError is a command line or configuration that cannot work. Nothing was
// done.
type usageError struct{ err error }

func (e *usageError) Error() string { return e.err.Error() }
func (e *usageError) Unwrap() error { return e.err }
func (e *usageError) ExitCode() int { return exitUsage }

func usagef(format string, args ...any) error { return &usageError{fmt.Errorf(format, args...)} }

// Run runs the command line and returns the exit status. It reads no global
// state, so that tests can call it.
func Run(ctx context.Context, args []string, stdout, stderr io.Writer, environ []string) int {
	var c cli
	exited, status := false, 0
	parser, err := kong.New(&c,
		kong.Name("postrider"), kong.Description(description),
		kong.ConfigureHelp(kong.HelpOptions{Compact: true, WrapUpperBound: 100}),
		kong.Writers(stdout, stderr), kong.Vars{"version": version()},
		kong.Exit(func(code int) { exited, status = true, code }))
	if err != nil {
		fmt.Fprintln(stderr, "postrider:", err)
		return exitFailed
	}
	// Kong would read it with other characters in their place: another key, or file.
	if i := slices.IndexFunc(args, func(arg string) bool { return !utf8.ValidString(arg) }); i >= 0 {
		fmt.Fprintf(stderr, "postrider: argument %d is not valid UTF-8: name a key of such bytes by --key-hex, and set anything else by its environment variable or in the file of --config\n", i+1)
		return exitUsage
	}
	parsed, err := parser.Parse(args)
	if exited { // --help, --version
		return status
	}
	if err != nil {
		of := "postrider"
		var parse *kong.ParseError
		if errors.As(err, &parse) && parse.Context != nil && parse.Context.Selected() != nil {
			of = parse.Context.Selected().FullPath()
		}
		fmt.Fprintf(stderr, "postrider: %s\nRun \"%s --help\".\n", message(err), of)
		return exitUsage
	}
	p := &program{ctx: ctx, stdout: stdout, stderr: stderr, environ: environ, parsed: parsed}
	if err := parsed.Run(p); err != nil {
		fmt.Fprintln(stderr, "postrider:", message(err))
		return exitCode(err)
	}
	return 0
}

func exitCode(err error) int {
	var coder interface{ ExitCode() int }
	switch {
	case errors.As(err, &coder):
		return coder.ExitCode()
	case errors.Is(err, outbox.ErrSchema):
		return exitSchema
	case errors.Is(err, outbox.ErrInvalidArgument):
		return exitUsage
	}
	return exitFailed
}

// password is what stands between user and host of a URL, in whatever text.
var password = regexp.MustCompile(`(://[^\s/@:]*):\S*@`)

// message is an error as people and logs get it: on one line, since drivers
// report each address they tried on a line of its own, without what a terminal
// would obey, and without passwords of URLs that somebody put where none belongs.
func message(err error) string {
	var parts []string
	for line := range strings.Lines(err.Error()) {
		if line = strings.TrimSpace(line); line != "" {
			parts = append(parts, line)
		}
	}
	return safe(password.ReplaceAllString(strings.Join(parts, " "), "$1:xxxxx@"))
}

func version() string {
	bi, ok := debug.ReadBuildInfo()
	if !ok || bi.Main.Version == "" {
		return "(devel)"
	}
	return bi.Main.Version
}
