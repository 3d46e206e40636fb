package health

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"github.com/postrider/postrider/outbox"
)

// Registry holds the outboxes of a process under explicit names, which are
// case-sensitive (contract H1). The zero value is empty and ready. It is safe for
// concurrent use. It opens, checks and closes nothing.
type Registry struct {
	mu    sync.RWMutex
	named map[string]entry
}

type entry struct {
	store outbox.Store
	at    Thresholds
	late  *atomic.Int32 // checks that nobody waits for any more
}

// Add takes a store under a name of 1 to [outbox.MaxName] bytes without control
// characters. t may be nil: then any answer of the store is healthy. Errors are
// outbox.ErrInvalidArgument, that of a name that is taken lists those that are;
// nothing has changed then.
func (r *Registry) Add(name string, store outbox.Store, t *Thresholds) error {
	at := Thresholds{}
	if t != nil {
		at = *t
	}
	switch {
	case name == "" || len(name) > outbox.MaxName:
		return invalid("store name %.80q has %d bytes, limit 1 to %d", name, len(name), outbox.MaxName)
	case strings.ContainsFunc(name, func(c rune) bool { return c < 0x20 || c == 0x7f || c == '\uFFFD' }):
		return invalid("store name %q has a control or invalid character: remove it", name)
	case store == nil:
		return invalid("store %q is nil: open it first", name)
	}
	if err := at.validate(); err != nil {
		return fmt.Errorf("store %q: %w", name, err)
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, taken := r.named[name]; taken {
		return invalid("store %q is there already; there are %s: names are unique", name, r.list())
	}
	if r.named == nil {
		r.named = map[string]entry{}
	}
	r.named[name] = entry{store, at, new(atomic.Int32)}
	return nil
}

// Store returns the store of that name. The error of an unknown name is
// outbox.ErrInvalidArgument and lists the known ones.
func (r *Registry) Store(name string) (outbox.Store, error) {
	e, err := r.get(name)
	return e.store, err
}

func (r *Registry) get(name string) (entry, error) {
	r.mu.RLock()
	defer r.mu.RUnlock()
	e, ok := r.named[name]
	if !ok {
		return entry{}, invalid("there is no store %.80q; there are %s", name, r.list())
	}
	return e, nil
}

// Names returns the names in order. The slice is the caller's.
func (r *Registry) Names() []string {
	r.mu.RLock()
	defer r.mu.RUnlock()
	return slices.Sorted(maps.Keys(r.named))
}

// list is called with the lock held.
func (r *Registry) list() string {
	if len(r.named) == 0 {
		return "none"
	}
	var quoted []string
	for _, name := range slices.Sorted(maps.Keys(r.named)) {
		quoted = append(quoted, fmt.Sprintf("%q", name))
	}
	return strings.Join(quoted, ", ")
}

func invalid(format string, args ...any) error {
	return fmt.Errorf("%w: "+format, append([]any{outbox.ErrInvalidArgument}, args...)...)
}
