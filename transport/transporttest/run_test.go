package transporttest_test

import (
	"testing"
	"time"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/transport"
	"github.com/postrider/postrider/transport/transporttest"
)

func TestRecorderConforms(t *testing.T) {
	t.Parallel()
	for name, o := range map[string]transporttest.Options{
		"at once":   {},
		"pipelined": {Pipelined: true},
	} {
		t.Run(name, func(t *testing.T) {
			o.Script = func(d *transport.Delivery, _ int) transporttest.Reply {
				switch d.Record.Message.Destination {
				case "nowhere":
					return transporttest.Reply{Outcome: transport.Unroutable}
				case "never":
					return transporttest.Reply{Outcome: transport.Permanent, After: time.Millisecond}
				}
				return transporttest.Reply{Outcome: transport.Accepted}
			}
			transporttest.Run(t, func(t *testing.T) transporttest.Fixture {
				r := transporttest.NewRecorder(&o)
				return transporttest.Fixture{
					Transport: r, Destination: "somewhere", Unroutable: "nowhere",
					Permanent: func(rec *outbox.Record) { rec.Message.Destination = "never" },
					Received: func(testing.TB) []transporttest.Message {
						var out []transporttest.Message
						for _, s := range r.Accepted() {
							out = append(out, transporttest.Message{ID: s.Record.ID.String(), Body: s.Record.Message.Body})
						}
						return out
					},
				}
			})
		})
	}
}
