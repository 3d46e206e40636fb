package health

import (
	"context"
	"errors"
	"fmt"
	"runtime/debug"
	"sync"
	"time"

	"github.com/postrider/postrider/outbox"
)

// Status is how an outbox is doing. The zero value is Healthy.
type Status uint8

const (
	// Healthy: below every threshold.
	Healthy Status = iota
	// Degraded: behind, or the store cannot tell.
	Degraded
	// Unhealthy: far behind, or the store answers with an error.
	Unhealthy
)

func (s Status) String() string {
	switch s {
	case Healthy:
		return "healthy"
	case Degraded:
		return "degraded"
	case Unhealthy:
		return "unhealthy"
	}
	return fmt.Sprintf("Status(%d)", uint8(s))
}

// Thresholds say from when on an outbox is behind. A value that is reached
// counts; zero switches a threshold off. Ages count from a message's CreatedAt,
// and only on stores that implement outbox.AgeStore.
type Thresholds struct {
	DegradedCount, UnhealthyCount int64
	DegradedAge, UnhealthyAge     time.Duration
}

func (t *Thresholds) validate() error {
	switch {
	case t.DegradedCount < 0 || t.UnhealthyCount < 0:
		return invalid("thresholds of the count are %d and %d: use positive numbers, or 0 for none", t.DegradedCount, t.UnhealthyCount)
	case t.DegradedAge < 0 || t.UnhealthyAge < 0:
		return invalid("thresholds of the age are %v and %v: use positive durations, or 0 for none", t.DegradedAge, t.UnhealthyAge)
	case t.DegradedCount > 0 && t.UnhealthyCount > 0 && t.DegradedCount > t.UnhealthyCount:
		return invalid("DegradedCount %d is above UnhealthyCount %d: exchange them", t.DegradedCount, t.UnhealthyCount)
	case t.DegradedAge > 0 && t.UnhealthyAge > 0 && t.DegradedAge > t.UnhealthyAge:
		return invalid("DegradedAge %v is above UnhealthyAge %v: exchange them", t.DegradedAge, t.UnhealthyAge)
	}
	return nil
}

// Result is what a store has answered, and what that means.
type Result struct {
	Name   string
	Status Status
	// Reason says in words why the status is not Healthy: "unknown" where the
	// store cannot tell. "" where it is.
	Reason string
	// Pending is the store's own count of eligible messages; it means nothing
	// unless Known.
	Pending int64
	Known   bool
	// Oldest is when the oldest eligible message was created; zero where there is
	// none or the store does not tell.
	Oldest time.Time
	// Err is the store's error as it is, nil if it had none.
	Err error
}

// lateAfter is how long a check waits for the store's own answer when its context
// has ended.
const lateAfter = 100 * time.Millisecond

// errLate is the error of a store that lets the end of a context pass by.
var errLate = errors.New("the store did not answer in time, nor when its context ended")

// Check asks the store of that name. now is handed to the store as it is, and
// ends of ctx reach it. The error is that of an unknown name; what the store
// itself has answered stands in the result. A store that goes on for more than
// 100 ms when ctx has ended is unhealthy, and is not asked again until it has
// answered: no check waits longer, and one call at most is left behind by each.
func (r *Registry) Check(ctx context.Context, name string, now time.Time) (Result, error) {
	e, err := r.get(name)
	if err != nil {
		return Result{}, err
	}
	return e.check(ctx, name, now), nil
}

// CheckAll asks all stores at once and returns their results by name.
func (r *Registry) CheckAll(ctx context.Context, now time.Time) []Result {
	names := r.Names()
	results := make([]Result, len(names))
	var wg sync.WaitGroup
	for i, name := range names {
		wg.Go(func() {
			// A name is never taken away.
			e, _ := r.get(name)
			results[i] = e.check(ctx, name, now)
		})
	}
	wg.Wait()
	return results
}

// Worst is the status of the one that is doing worst.
func Worst(results []Result) (s Status) {
	for _, r := range results {
		s = max(s, r.Status)
	}
	return s
}

func (e entry) check(ctx context.Context, name string, now time.Time) Result {
	late := Result{Name: name, Status: Unhealthy, Reason: "no answer in time", Err: errLate}
	if e.late.Load() > 0 {
		return late
	}
	done := make(chan Result, 1)
	go func() { done <- e.ask(ctx, name, now) }()
	select {
	case r := <-done:
		return r
	case <-ctx.Done():
	}
	timer := time.NewTimer(lateAfter)
	defer timer.Stop()
	select {
	case r := <-done:
		return r
	case <-timer.C:
	}
	e.late.Add(1)
	go func() {
		<-done
		e.late.Add(-1)
	}()
	return late
}

func (e entry) ask(ctx context.Context, name string, now time.Time) (r Result) {
	// On a goroutine of its own nobody else would catch it, and the process would end.
	defer func() {
		if p := recover(); p != nil {
			r = Result{Name: name, Status: Unhealthy, Reason: "the store panicked", Err: fmt.Errorf("the store panicked: %v\n%s", p, debug.Stack())}
		}
	}()
	r.Name = name
	n, err := e.store.PendingCount(ctx, now)
	switch {
	case errors.Is(err, outbox.ErrCountUnavailable):
		r.worse(Degraded, "unknown")
		r.Err = err
	case err != nil:
		r.worse(Unhealthy, "the count of pending messages failed")
		r.Err = err
		return r
	default:
		r.Pending, r.Known = n, true
		r.judge(n >= e.at.DegradedCount && e.at.DegradedCount > 0, n >= e.at.UnhealthyCount && e.at.UnhealthyCount > 0,
			fmt.Sprintf("%d messages are pending", n))
	}
	aged, ok := e.store.(outbox.AgeStore)
	if !ok || e.at.DegradedAge == 0 && e.at.UnhealthyAge == 0 {
		return r
	}
	created, found, err := aged.OldestPending(ctx, now)
	switch {
	case errors.Is(err, outbox.ErrCountUnavailable):
		r.worse(Degraded, "unknown")
		r.Err = err
	case err != nil:
		r.worse(Unhealthy, "the look for the oldest pending message failed")
		r.Err = err
	case found:
		r.Oldest = created
		age := now.Sub(created)
		r.judge(age >= e.at.DegradedAge && e.at.DegradedAge > 0, age >= e.at.UnhealthyAge && e.at.UnhealthyAge > 0,
			fmt.Sprintf("the oldest pending message is %v old", age.Round(time.Millisecond)))
	}
	return r
}

func (r *Result) judge(degraded, unhealthy bool, reason string) {
	switch {
	case unhealthy:
		r.worse(Unhealthy, reason)
	case degraded:
		r.worse(Degraded, reason)
	}
}

// worse makes the status at least s; the reasons of the worst status stay.
func (r *Result) worse(s Status, reason string) {
	switch {
	case s > r.Status:
		r.Status, r.Reason = s, reason
	case s == r.Status && reason != r.Reason:
		r.Reason += ", " + reason
	}
}
