package receiver

import (
	"strings"
	"sync"
	"time"
)

// failures counts the deliveries that failed by their handlers.
type failures struct {
	mu    sync.Mutex
	since time.Time      // no outage was seen after it
	young map[string]int // by message id
	old   map[string]int // young ones of before
}

// remembered is how many messages are counted before the oldest are forgotten: as many
// again.
const remembered = 10_000

// count notes a failure of m and tells how many there were. Of a message that is no
// older than the last outage the broker's count is right, and knows the failures in other
// processes too.
func (f *failures) count(m Message) int {
	f.mu.Lock()
	defer f.mu.Unlock()
	n := max(f.young[m.ID], f.old[m.ID]) + 1
	if len(f.young) >= remembered {
		f.old, f.young = f.young, nil
	}
	if f.young == nil {
		f.young = map[string]int{}
	}
	f.young[strings.Clone(m.ID)] = n // it may be a part of all headers
	if m.Stored.After(f.since) {
		return m.Attempt
	}
	return min(n, m.Attempt) // a dead letter that came back begins anew
}

// forget is for a message that will not come again.
func (f *failures) forget(id string) {
	f.mu.Lock()
	defer f.mu.Unlock()
	delete(f.young, id)
	delete(f.old, id)
}

// outage notes that the database was away: deliveries before now may have failed by it,
// here or elsewhere.
func (f *failures) outage() {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.since = time.Now()
}
