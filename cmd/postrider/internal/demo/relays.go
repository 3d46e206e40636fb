package demo

import (
	"bufio"
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"github.com/postrider/postrider/cmd/postrider/internal/app"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/relay"
	"github.com/postrider/postrider/transport"
)

// route is the outbox route of the demo, the one that exists by default.
const route = "default"

// relaySpec is all that a relay needs; a child process gets it on its standard
// input, where no list of processes shows it.
type relaySpec struct {
	Number int    `json:"number"`
	Shop   engine `json:"shop"`
	NATS   string `json:"nats"`
	Stream string `json:"stream"`
}

// runRelay delivers until ctx is done. wake gets the relay's Wake when it is
// there.
func runRelay(ctx context.Context, spec relaySpec, log io.Writer, wake func(func())) error {
	store, err := spec.Shop.open(ctx, 0)
	if err != nil {
		return err
	}
	defer store.Close()
	broker, err := app.OpenNATS(ctx, spec.NATS, &app.NATSOptions{Stream: spec.Stream})
	if err != nil {
		return err
	}
	defer broker.Close()
	say := func(format string, args ...any) {
		fmt.Fprintf(log, "%s relay %d: %s\n", time.Now().Format("15:04:05.000"), spec.Number, fmt.Sprintf(format, args...))
	}
	r, err := relay.New(store, map[string]transport.Transport{route: broker}, &relay.Options{
		TTL:     relayTTL,
		PollMax: 50 * time.Millisecond,
		// A relay that is killed while it sends a suspect leaves an attempt
		// behind. That is the demo's doing, not the message's.
		MaxAttempts:  100,
		RequireOrder: true,
		Hooks: relay.Hooks{
			Store: func(err error) { say("store: %v", err) },
			Route: func(route string, err error) { say("route %s: %v", route, err) },
			Lanes: func(held []outbox.LaneLease) { say("holds %d lanes", len(held)) },
			Dead:  func(_ string, id outbox.ID, reason string) { say("gave up %s: %s", id, reason) },
			LeaseLost: func(l outbox.LaneLease, reason string) {
				say("lost lane %d at epoch %d: %s", l.Lane, l.Epoch, reason)
			},
			Attempt: func(a relay.Attempt) {
				if a.Outcome != transport.Accepted {
					say("lane %d position %d: %s: %v", a.Lane, a.Pos, a.Outcome, a.Err)
				}
			},
			Trouble: func(err error) { say("trouble: %v", err) },
		},
	})
	if err != nil {
		return err
	}
	if wake != nil {
		wake(r.Wake)
	} else { // the producers are another process
		defer store.Listen(ctx, r.Wake, func(err error) { say("%v", err) })()
	}
	return r.Run(ctx)
}

// RunRelay is a child process of a demo with Crash: a relay that reads its
// orders from in. It stops cleanly at a line "stop". At the end of in, which
// comes when the parent has gone in any way, it ends at once.
func RunRelay(ctx context.Context, in io.Reader, log io.Writer) error {
	input := bufio.NewReader(in)
	line, err := input.ReadBytes('\n')
	if err != nil {
		return usage("this command is for the demo itself: use postrider demo --crash")
	}
	var spec relaySpec
	if err := json.Unmarshal(line, &spec); err != nil {
		return usage("this command is for the demo itself: use postrider demo --crash: %w", err)
	}
	ctx, stop := context.WithCancel(ctx)
	defer stop()
	go func() {
		if s, err := input.ReadString('\n'); err == nil && s == "stop\n" {
			stop()
			input.ReadByte()
		}
		os.Exit(1)
	}()
	return runRelay(ctx, spec, log, nil)
}

// fleet is the demo's relays.
type fleet interface {
	// wake tells the relays of a commit, where they can be told.
	wake()
	// failed yields the error of a relay that ended by itself.
	failed() <-chan error
	// stop ends the relays cleanly and returns when they have ended.
	stop(ctx context.Context) error
}

// local is a fleet in this process.
type local struct {
	cancel context.CancelFunc
	errs   chan error
	wg     sync.WaitGroup
	wakes  []func()
}

func startLocal(ctx context.Context, specs []relaySpec, log io.Writer) (*local, error) {
	l := &local{errs: make(chan error, len(specs))}
	ctx, l.cancel = context.WithCancel(context.WithoutCancel(ctx))
	ready := make(chan func(), len(specs))
	for _, spec := range specs {
		l.wg.Go(func() {
			if err := runRelay(ctx, spec, log, func(wake func()) { ready <- wake }); err != nil {
				l.errs <- fmt.Errorf("relay %d: %w", spec.Number, err)
			} else if ctx.Err() == nil {
				l.errs <- fmt.Errorf("relay %d ended by itself", spec.Number)
			}
		})
	}
	for range specs {
		select {
		case w := <-ready:
			l.wakes = append(l.wakes, w)
		case err := <-l.errs:
			l.cancel()
			l.wg.Wait()
			return nil, err
		}
	}
	return l, nil
}

func (l *local) wake() {
	for _, w := range l.wakes {
		w()
	}
}

func (l *local) failed() <-chan error { return l.errs }

func (l *local) stop(ctx context.Context) error {
	l.cancel()
	done := make(chan struct{})
	go func() { l.wg.Wait(); close(done) }()
	select {
	case <-done:
	case <-ctx.Done():
		return fmt.Errorf("the relays did not stop: %w", context.Cause(ctx))
	}
	select {
	case err := <-l.errs:
		return err
	default:
		return nil
	}
}
