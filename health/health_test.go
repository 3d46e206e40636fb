package health_test

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"net/http"
	"net/http/httptest"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"testing/synctest"
	"time"

	"github.com/postrider/postrider/health"
	"github.com/postrider/postrider/outbox"
	"github.com/postrider/postrider/store/storetest"
)

// answers is a store that says what it is told to.
type answers struct {
	outbox.Store
	count   int64
	oldest  time.Time
	err     error
	ageErr  error
	asked   atomic.Int64
	now     time.Time
	patient bool          // waits for the end of the context
	deaf    chan struct{} // waits for its closing, whatever becomes of the context
}

func (a *answers) PendingCount(ctx context.Context, now time.Time) (int64, error) {
	a.asked.Add(1)
	a.now = now
	if a.deaf != nil {
		<-a.deaf
	}
	if a.patient {
		<-ctx.Done()
		return 0, ctx.Err()
	}
	return a.count, a.err
}

func (a *answers) OldestPending(context.Context, time.Time) (time.Time, bool, error) {
	return a.oldest, !a.oldest.IsZero(), a.ageErr
}

func check(t *testing.T, s outbox.Store, at *health.Thresholds, now time.Time) health.Result {
	t.Helper()
	var r health.Registry
	if err := r.Add("one", s, at); err != nil {
		t.Fatal(err)
	}
	res, err := r.Check(t.Context(), "one", now)
	if err != nil {
		t.Fatal(err)
	}
	return res
}

// H1: several stores under explicit, case-sensitive names; an unknown or
// duplicate name is an error that lists the known ones.
func TestH1(t *testing.T) {
	t.Parallel()
	var r health.Registry
	if _, err := r.Store("orders"); !errors.Is(err, outbox.ErrInvalidArgument) || !strings.Contains(err.Error(), "there are none") {
		t.Errorf("a name in an empty registry: got %v", err)
	}
	orders, mail := &answers{}, &answers{}
	for name, s := range map[string]outbox.Store{"orders": orders, "Orders": mail} {
		if err := r.Add(name, s, nil); err != nil {
			t.Fatal(err)
		}
	}
	if s, err := r.Store("orders"); err != nil || s != outbox.Store(orders) {
		t.Errorf("store orders: got %v, %v", s, err)
	}
	if s, err := r.Store("Orders"); err != nil || s != outbox.Store(mail) {
		t.Errorf("store Orders: got %v, %v", s, err)
	}
	if got := r.Names(); !slices.Equal(got, []string{"Orders", "orders"}) {
		t.Errorf("names: got %q", got)
	}
	_, unknown := r.Check(t.Context(), "ORDERS", time.Now())
	for what, err := range map[string]error{"unknown": unknown, "duplicate": r.Add("orders", mail, nil)} {
		if !errors.Is(err, outbox.ErrInvalidArgument) || !strings.Contains(err.Error(), `"Orders", "orders"`) {
			t.Errorf("%s name: got %v, want ErrInvalidArgument with the known names", what, err)
		}
	}
	if s, err := r.Store("orders"); err != nil || s != outbox.Store(orders) {
		t.Errorf("store orders after a duplicate: got %v, %v", s, err)
	}
}

func TestBadInput(t *testing.T) {
	t.Parallel()
	for name, tc := range map[string]struct {
		name string
		s    outbox.Store
		at   health.Thresholds
		says string
	}{
		"no name":        {"", &answers{}, health.Thresholds{}, "limit 1 to 255"},
		"long name":      {strings.Repeat("n", 256), &answers{}, health.Thresholds{}, "256 bytes"},
		"control":        {"a\n", &answers{}, health.Thresholds{}, "control"},
		"no store":       {"a", nil, health.Thresholds{}, "is nil"},
		"negative count": {"a", &answers{}, health.Thresholds{DegradedCount: -1}, "-1"},
		"negative age":   {"a", &answers{}, health.Thresholds{UnhealthyAge: -time.Second}, "-1s"},
		"crossed counts": {"a", &answers{}, health.Thresholds{DegradedCount: 3, UnhealthyCount: 2}, "exchange"},
		"crossed ages":   {"a", &answers{}, health.Thresholds{DegradedAge: 3, UnhealthyAge: 2}, "exchange"},
	} {
		var r health.Registry
		if err := r.Add(tc.name, tc.s, &tc.at); !errors.Is(err, outbox.ErrInvalidArgument) || !strings.Contains(err.Error(), tc.says) {
			t.Errorf("%s: got %v, want ErrInvalidArgument saying %q", name, err, tc.says)
		}
		if n := r.Names(); len(n) != 0 {
			t.Errorf("%s: the registry has %q", name, n)
		}
	}
}

// H2: below, at and above each threshold.
func TestH2_thresholds(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	at := &health.Thresholds{DegradedCount: 10, UnhealthyCount: 20, DegradedAge: time.Minute, UnhealthyAge: time.Hour}
	for _, tc := range []struct {
		count int64
		age   time.Duration // -1: none is pending
		want  health.Status
		says  string
	}{
		{0, -1, health.Healthy, ""},
		{9, time.Minute - 1, health.Healthy, ""},
		{10, 0, health.Degraded, "10 messages are pending"},
		{11, 0, health.Degraded, "11 messages"},
		{19, 0, health.Degraded, ""},
		{20, 0, health.Unhealthy, "20 messages"},
		{21, 0, health.Unhealthy, "21 messages"},
		{1, time.Minute, health.Degraded, "1m0s old"},
		{1, time.Hour - 1, health.Degraded, ""},
		{1, time.Hour, health.Unhealthy, "1h0m0s old"},
		{20, time.Minute, health.Unhealthy, "20 messages"},
		{10, time.Minute, health.Degraded, "10 messages are pending, the oldest"},
	} {
		s := &answers{count: tc.count}
		if tc.age >= 0 {
			s.oldest = now.Add(-tc.age)
		}
		r := check(t, s, at, now)
		if r.Status != tc.want || !strings.Contains(r.Reason, tc.says) || (r.Reason == "") != (tc.want == health.Healthy) {
			t.Errorf("%d pending, oldest %v: got %v, %q, want %v saying %q", tc.count, tc.age, r.Status, r.Reason, tc.want, tc.says)
		}
		if r.Pending != tc.count || !r.Known || r.Oldest != s.oldest || s.now != now || r.Name != "one" {
			t.Errorf("%d pending: the result is not the store's: %+v", tc.count, r)
		}
	}
	// Thresholds that are off never judge.
	if r := check(t, &answers{count: 1 << 60, oldest: time.Unix(0, 0)}, nil, now); r.Status != health.Healthy {
		t.Errorf("without thresholds: got %v", r.Status)
	}
}

// H2: unknown stays unknown, an error is unhealthy with the error, and ends of
// the context reach the store.
func TestH2_errors(t *testing.T) {
	t.Parallel()
	broken := errors.New("no route to host")
	at := &health.Thresholds{UnhealthyCount: 1, UnhealthyAge: time.Second}
	r := check(t, &answers{err: fmt.Errorf("replica: %w", outbox.ErrCountUnavailable)}, at, time.Now())
	if r.Status != health.Degraded || r.Reason != "unknown" || r.Known || !errors.Is(r.Err, outbox.ErrCountUnavailable) {
		t.Errorf("count unavailable: got %+v", r)
	}
	if r = check(t, &answers{err: broken}, at, time.Now()); r.Status != health.Unhealthy || !errors.Is(r.Err, broken) || r.Known {
		t.Errorf("a broken store: got %+v", r)
	}
	if r = check(t, &answers{ageErr: broken}, at, time.Now()); r.Status != health.Unhealthy || !errors.Is(r.Err, broken) || !r.Known {
		t.Errorf("no age: got %+v", r)
	}
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	var reg health.Registry
	if err := reg.Add("slow", &answers{patient: true}, at); err != nil {
		t.Fatal(err)
	}
	if r, err := reg.Check(ctx, "slow", time.Now()); err != nil || r.Status != health.Unhealthy || !errors.Is(r.Err, context.Canceled) {
		t.Errorf("cancelled: got %+v, %v", r, err)
	}
}

// V3: what counts is what is eligible: a schedule that is due now and an expired
// claim, but no later schedule, live claim, parked key or dead letter.
func TestV3_health(t *testing.T) {
	t.Parallel()
	now := time.Date(2030, 1, 1, 0, 0, 0, 0, time.UTC)
	mem := storetest.NewMem(nil)
	put := func(key string, at time.Time) outbox.ID {
		r := outbox.Record{ID: outbox.NewID(), Transport: "default", Type: "t.v1", CreatedAt: now.Add(-time.Hour),
			Message: outbox.Message{Destination: "d", DeliverAt: at, Event: outbox.Event{Source: "/t"}}}
		if key != "" {
			r.Message.Key = []byte(key)
		}
		tx := mem.Begin()
		if err := errors.Join(mem.Enlist(t.Context(), tx, r), tx.Commit()); err != nil {
			t.Fatal(err)
		}
		return r.ID
	}
	claim := func(id outbox.ID, from, until time.Time) {
		if ok, err := mem.TryClaim(t.Context(), outbox.Claim{ID: id, Token: outbox.NewToken()}, from, until); err != nil || !ok {
			t.Fatal(ok, err)
		}
	}
	put("", now)                                                           // due at now
	claim(put("", time.Time{}), now.Add(-time.Hour), now)                  // expired at now
	claim(put("", time.Time{}), now.Add(-time.Hour), now.Add(time.Minute)) // live
	put("", now.Add(time.Microsecond))                                     // later
	put("parked", time.Time{})
	if _, err := mem.ParkKey(t.Context(), outbox.ParkedKey{Route: "default", Key: []byte("parked")}); err != nil {
		t.Fatal(err)
	}
	bury(t, mem, put("dead", time.Time{}))
	for count, want := range map[int64]health.Status{1: health.Degraded, 2: health.Degraded, 3: health.Healthy} {
		if r := check(t, mem, &health.Thresholds{DegradedCount: count}, now); r.Status != want || r.Pending != 2 {
			t.Errorf("threshold %d: got %v of %d pending, want %v of 2", count, r.Status, r.Pending, want)
		}
	}
	if r := check(t, mem, &health.Thresholds{DegradedAge: time.Hour}, now); r.Status != health.Degraded {
		t.Errorf("an hour old: got %+v", r)
	}
}

// bury makes a dead letter of the one message of the key "dead".
func bury(t *testing.T, mem *storetest.Mem, id outbox.ID) {
	t.Helper()
	owner := outbox.NewID()
	g, err := mem.AcquireLanes(t.Context(), outbox.LaneRequest{Owner: owner, Routes: []string{"default"}, Want: 100, TTL: time.Minute})
	if err != nil {
		t.Fatal(err)
	}
	rows := make([]outbox.LaneRow, 8)
	for _, l := range g.Leases {
		n, err := mem.ReadLanes(t.Context(), []outbox.LaneRead{{Lane: l.Lane, Keys: [][]byte{[]byte("dead")}}}, rows)
		if err != nil {
			t.Fatal(err)
		}
		for _, r := range rows[:n] {
			if r.Record.ID != id {
				t.Fatalf("the key has the row %s, want %s alone", r.Record.ID, id)
			}
			res, err := mem.SettleLanes(t.Context(), outbox.SettleRequest{Owner: owner, Settlements: []outbox.Settlement{{
				Lane: l.Lane, Epoch: l.Epoch, Pos: r.Pos, ID: id, Outcome: outbox.SettleDead, Reason: "no",
			}}})
			if err != nil || res[0] != outbox.Settled {
				t.Fatal(res, err)
			}
			return
		}
	}
	t.Fatal("the key has no row")
}

func get(h http.Handler, path string) (int, map[string]any) {
	w := httptest.NewRecorder()
	h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, path, nil))
	var body map[string]any
	_ = json.Unmarshal(w.Body.Bytes(), &body)
	return w.Code, body
}

// The handler tells readiness, asks the stores rarely, and shows no error.
func TestHandler(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r health.Registry
		good, bad := &answers{count: 3, oldest: time.Now().Add(-time.Minute)}, &answers{}
		at := &health.Thresholds{DegradedCount: 3, UnhealthyAge: time.Hour}
		if err := errors.Join(r.Add("good", good, at), r.Add("bad", bad, at)); err != nil {
			t.Fatal(err)
		}
		var told []string
		h := health.NewHandler(&r, &health.HandlerOptions{OnError: func(r health.Result) { told = append(told, r.Name) }})
		if code, body := get(h, "/live"); code != 200 || body["status"] != "live" {
			t.Errorf("live: got %d, %v", code, body)
		}
		code, body := get(h, "/ready")
		stores, _ := body["stores"].(map[string]any)
		one, _ := stores["good"].(map[string]any)
		if code != 200 || body["status"] != "degraded" || one["status"] != "degraded" || one["pending"] != 3.0 || one["oldest_seconds"] != 60.0 {
			t.Errorf("degraded: got %d, %v", code, body)
		}
		bad.err = errors.New("dial tcp 10.0.0.7: secret")
		if code, _ := get(h, "/ready"); code != 200 || bad.asked.Load() != 1 {
			t.Errorf("at once again: got %d after %d questions, want the answer of before", code, bad.asked.Load())
		}
		time.Sleep(5 * time.Second)
		w := httptest.NewRecorder()
		h.ServeHTTP(w, httptest.NewRequest(http.MethodGet, "/ready", nil))
		if w.Code != 503 || strings.Contains(w.Body.String(), "secret") || !strings.Contains(w.Body.String(), "unhealthy") {
			t.Errorf("a broken store: got %d, %s", w.Code, w.Body)
		}
		if !slices.Equal(told, []string{"bad"}) {
			t.Errorf("OnError: got %q, want bad once", told)
		}
		bad.err, bad.patient = nil, true
		time.Sleep(5 * time.Second)
		before := time.Now()
		if code, _ := get(h, "/ready"); code != 503 || time.Since(before) != 5*time.Second {
			t.Errorf("a store without an answer: got %d after %v, want 503 after 5s", code, time.Since(before))
		}
		if code, _ := get(h, "/other"); code != 404 {
			t.Errorf("another path: got %d", code)
		}
	})
}

// An answer is young when it comes, however long it took: those who waited for it
// do not ask one after another.
func TestHandlerAnswersAllWhoWaited(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r health.Registry
		hung := &answers{patient: true}
		if err := r.Add("hung", hung, nil); err != nil {
			t.Fatal(err)
		}
		h := health.NewHandler(&r, nil)
		began := time.Now()
		for range 3 {
			if code, _ := get(h, "/ready"); code != 503 || time.Since(began) != 5*time.Second {
				t.Errorf("got %d after %v, want 503 after 5s", code, time.Since(began))
			}
		}
		if n := hung.asked.Load(); n != 1 {
			t.Errorf("the store was asked %d times", n)
		}
	})
}

// A store that lets the end of its context pass by holds up nobody: its own status
// says so, others are told of, and it is not asked again before it has answered.
func TestHandlerOutlivesADeafStore(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		var r health.Registry
		deaf, well := &answers{deaf: make(chan struct{})}, &answers{count: 3}
		if err := errors.Join(r.Add("deaf", deaf, nil), r.Add("well", well, nil)); err != nil {
			t.Fatal(err)
		}
		h := health.NewHandler(&r, nil)
		for i, limit := range []time.Duration{6 * time.Second, 0} {
			began := time.Now()
			code, body := get(h, "/ready")
			if code != 503 || time.Since(began) > limit {
				t.Errorf("look %d: got %d after %v, want 503 within %v", i+1, code, time.Since(began), limit)
			}
			if says := fmt.Sprint(body["stores"]); !strings.Contains(says, "no answer in time") || !strings.Contains(says, "pending:3") {
				t.Errorf("look %d: %s", i+1, says)
			}
			time.Sleep(10 * time.Second)
		}
		if n := deaf.asked.Load(); n != 1 {
			t.Errorf("the store was asked %d times before it had answered", n)
		}
		close(deaf.deaf)
		synctest.Wait()
		if code, body := get(h, "/ready"); code != 200 || deaf.asked.Load() != 2 {
			t.Errorf("when it has answered: got %d, %v", code, body)
		}
	})
}

// A store that panics is unhealthy; the process goes on, and so do the other stores.
func TestStoreThatPanics(t *testing.T) {
	t.Parallel()
	var r health.Registry
	for name, s := range map[string]outbox.Store{"good": &answers{count: 1}, "none": (*answers)(nil)} {
		if err := r.Add(name, s, nil); err != nil {
			t.Fatal(err)
		}
	}
	res := r.CheckAll(t.Context(), time.Now())
	if len(res) != 2 || res[0].Status != health.Healthy || res[1].Status != health.Unhealthy || res[1].Name != "none" ||
		res[1].Err == nil || !strings.Contains(res[1].Err.Error(), "panicked") {
		t.Errorf("got %+v", res)
	}
}

// A message made after the stores were asked is of no negative age.
func TestAgeIsNotNegative(t *testing.T) {
	t.Parallel()
	var r health.Registry
	if err := r.Add("one", &answers{count: 1, oldest: time.Now().Add(time.Hour)}, &health.Thresholds{UnhealthyAge: time.Hour}); err != nil {
		t.Fatal(err)
	}
	_, body := get(health.NewHandler(&r, nil), "/ready")
	stores, _ := body["stores"].(map[string]any)
	if one, _ := stores["one"].(map[string]any); one["oldest_seconds"] != 0.0 {
		t.Errorf("got %v, want oldest_seconds 0", body)
	}
}
