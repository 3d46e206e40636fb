package health

import (
	"context"
	"encoding/json"
	"net/http"
	"sync"
	"time"
)

// HandlerOptions configure [NewHandler]. nil and the zero value are usable.
type HandlerOptions struct {
	// Every is how old an answer may be before the stores are asked again,
	// however many ask: an exact count of millions of messages costs a second.
	// At least 100 ms. Defaults to 5 s.
	Every time.Duration
	// Timeout bounds the answer of all stores; those that have not answered are
	// unhealthy. At least 10 ms. Defaults to 5 s.
	Timeout time.Duration
	// OnError is called with each result that has an error, once each time the
	// stores are asked: the response does not show errors, which may name hosts
	// and users. Calls come one at a time. May be nil.
	OnError func(Result)
}

// NewHandler serves two paths, by GET and HEAD:
//
//	/live   200 as long as the process answers
//	/ready  200 where every store is healthy or degraded, else 503, with the
//	        status of each as JSON
//
// It shows names, states, counts and ages, no error and no content. Whoever may
// reach it is the caller's decision: listen on loopback or ask for a password. It
// panics where an option is out of range, as a registration in package http does.
func NewHandler(r *Registry, opts *HandlerOptions) http.Handler {
	h := &handler{r: r}
	if opts != nil {
		h.HandlerOptions = *opts
	}
	if h.Every == 0 {
		h.Every = 5 * time.Second
	}
	if h.Timeout == 0 {
		h.Timeout = 5 * time.Second
	}
	switch {
	case r == nil:
		panic("health: the registry is nil")
	case h.Every < 100*time.Millisecond:
		panic("health: HandlerOptions.Every " + h.Every.String() + " is below 100ms")
	case h.Timeout < 10*time.Millisecond:
		panic("health: HandlerOptions.Timeout " + h.Timeout.String() + " is below 10ms")
	}
	mux := http.NewServeMux()
	mux.HandleFunc("GET /live", func(w http.ResponseWriter, _ *http.Request) {
		answer(w, http.StatusOK, map[string]string{"status": "live"})
	})
	mux.HandleFunc("GET /ready", h.ready)
	return mux
}

type handler struct {
	r *Registry
	HandlerOptions

	mu       sync.Mutex
	asked    time.Time
	answered time.Time
	results  []Result
}

// storeJSON is a result on the wire.
type storeJSON struct {
	Status  string   `json:"status"`
	Reason  string   `json:"reason,omitempty"`
	Pending *int64   `json:"pending,omitempty"`
	Oldest  *float64 `json:"oldest_seconds,omitempty"`
}

func (h *handler) ready(w http.ResponseWriter, req *http.Request) {
	results, at := h.ask(req.Context())
	worst := Worst(results)
	stores := map[string]storeJSON{}
	for _, r := range results {
		s := storeJSON{Status: r.Status.String(), Reason: r.Reason}
		if r.Known {
			s.Pending = &r.Pending
		}
		if !r.Oldest.IsZero() {
			age := max(at.Sub(r.Oldest), 0).Seconds() // made since, or by a clock ahead
			s.Oldest = &age
		}
		stores[r.Name] = s
	}
	code := http.StatusOK
	if worst == Unhealthy {
		code = http.StatusServiceUnavailable
	}
	answer(w, code, map[string]any{"status": worst.String(), "stores": stores})
}

// ask returns results that are young enough, and when they were asked for. Who
// comes while the stores are asked waits for that answer, which is young when it
// comes, however long it took; one that goes away does not spoil it for the others.
func (h *handler) ask(ctx context.Context) ([]Result, time.Time) {
	h.mu.Lock()
	defer h.mu.Unlock()
	now := time.Now()
	if !h.answered.IsZero() && now.Sub(h.answered) < h.Every {
		return h.results, h.asked
	}
	ctx, cancel := context.WithTimeout(context.WithoutCancel(ctx), h.Timeout)
	defer cancel()
	h.results, h.asked, h.answered = h.r.CheckAll(ctx, now), now, time.Now()
	if h.OnError != nil {
		for _, r := range h.results {
			if r.Err != nil {
				h.OnError(r)
			}
		}
	}
	return h.results, now
}

func answer(w http.ResponseWriter, code int, body any) {
	w.Header().Set("Content-Type", "application/json")
	w.Header().Set("Cache-Control", "no-store")
	w.WriteHeader(code)
	_ = json.NewEncoder(w).Encode(body) // who asked has gone
}
