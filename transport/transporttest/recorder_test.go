package transporttest_test

import (
	"context"
	"errors"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/transport"
	"github.com/postrider/postrider/transport/transporttest"
)

func delivery(key string) *transport.Delivery {
	rec := &outbox.Record{ID: outbox.NewID(), Transport: "default", Type: "t.v1", CreatedAt: time.Now()}
	rec.Message = outbox.Message{Destination: "shop.orders", Body: []byte("body")}
	if key != "" {
		rec.Message.Key = []byte(key)
	}
	return &transport.Delivery{Record: rec}
}

type lease bool

func (l lease) Live() bool { return bool(l) }

func TestRecorderAnswers(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		cause := errors.New("stopped by the test")
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute, func() { cancel(cause) })
		script := map[string]transporttest.Reply{
			"slow":    {Outcome: transport.Accepted, After: time.Second},
			"refused": {Outcome: transport.Refused},
			"silent":  {Outcome: transport.Accepted, Silent: true},
			"held":    {Outcome: transport.Accepted, Until: make(chan struct{})},
			"unsent":  {},
		}
		r := transporttest.NewRecorder(&transporttest.Options{Script: func(d *transport.Delivery, nth int) transporttest.Reply {
			return script[string(d.Record.Message.Key)]
		}})
		ds := map[string]*transport.Delivery{}
		var all []*transport.Delivery
		for _, k := range []string{"slow", "refused", "silent", "held", "unsent", "ended"} {
			ds[k] = delivery(k)
			all = append(all, ds[k])
		}
		script["ended"] = transporttest.Reply{Outcome: transport.Accepted}
		ds["ended"].Lease = lease(false)
		start := time.Now()
		r.Send(ctx, all)
		if took := time.Since(start); took != time.Minute {
			t.Errorf("Send took %s, want the minute until its context ended", took)
		}
		for k, want := range map[string]transport.Outcome{
			"slow": transport.Accepted, "refused": transport.Refused, "silent": transport.Unknown,
			"held": transport.Unknown, "unsent": transport.Unsent, "ended": transport.Unsent,
		} {
			if o, _ := ds[k].Outcome(); o != want {
				t.Errorf("%s: outcome %s, want %s", k, o, want)
			}
		}
		if _, err := ds["silent"].Outcome(); !errors.Is(err, cause) {
			t.Errorf("silent: error %v, want the cause of the context", err)
		}
		if got := len(r.Sent()); got != 4 {
			t.Errorf("%d messages went out, want 4: one is unsent and one lost its lease", got)
		}
		if r.Late() != 1 {
			t.Errorf("%d sends given up for their lease, want 1", r.Late())
		}
		if now, peak := r.InFlight(); now != 0 || peak < 3 {
			t.Errorf("in flight %d, peak %d; want 0 and at least 3", now, peak)
		}
	})
}

func TestRecorderSeesTwoOfAKeyInFlight(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := transporttest.NewRecorder(&transporttest.Options{Latency: time.Second})
		r.Send(t.Context(), []*transport.Delivery{delivery("a"), delivery("b"), delivery(""), delivery("")})
		if v := r.Violations(); len(v) != 0 {
			t.Fatalf("violations %q for different keys, want none", v)
		}
		r.Send(t.Context(), []*transport.Delivery{delivery("a"), delivery("a")})
		if v := r.Violations(); len(v) != 1 {
			t.Fatalf("violations %q for two messages of one key, want one", v)
		}
	})
}

func TestRecorderPipelinedFailsTheSuffix(t *testing.T) {
	t.Parallel()
	r := transporttest.NewRecorder(&transporttest.Options{Pipelined: true, Script: func(d *transport.Delivery, nth int) transporttest.Reply {
		if d.Pos == 2 && nth == 1 {
			return transporttest.Reply{Outcome: transport.Refused}
		}
		return transporttest.Reply{Outcome: transport.Accepted}
	}})
	var ds []*transport.Delivery
	for pos := range int64(4) {
		d := delivery("k")
		d.Pos = pos + 1
		ds = append(ds, d)
	}
	r.Send(t.Context(), ds)
	for i, want := range []transport.Outcome{transport.Accepted, transport.Refused, transport.Unsent, transport.Unsent} {
		if o, _ := ds[i].Outcome(); o != want {
			t.Errorf("message %d of the key is %s, want %s", i+1, o, want)
		}
	}
	again := &transport.Delivery{Record: ds[1].Record, Pos: 2}
	r.Send(t.Context(), []*transport.Delivery{again})
	if o, _ := again.Outcome(); o != transport.Accepted || r.Sent()[2].Nth != 2 || len(r.First()) != 2 {
		t.Errorf("second send: outcome %s, log %+v", o, r.Sent())
	}
}

func TestRecorderWaits(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := transporttest.NewRecorder(nil)
		go func() {
			for range 3 {
				time.Sleep(time.Second)
				d := delivery("")
				r.Send(context.Background(), []*transport.Delivery{d})
				r.Send(context.Background(), []*transport.Delivery{{Record: d.Record}})
			}
		}()
		if err := r.WaitFirst(t.Context(), 2); err != nil || len(r.First()) != 2 {
			t.Fatalf("waited for two different messages: %v, log %+v", err, r.Sent())
		}
		if err := r.WaitAccepted(t.Context(), 6); err != nil {
			t.Fatal(err)
		}
		ctx, cancel := context.WithTimeout(t.Context(), time.Second)
		defer cancel()
		if err := r.WaitSent(ctx, 7); !errors.Is(err, context.DeadlineExceeded) {
			t.Fatalf("waiting for a seventh send: %v, want the deadline", err)
		}
	})
}
