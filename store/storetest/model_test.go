package storetest

import "testing"

func TestModel(t *testing.T) {
	t.Parallel()
	Model(t, memHarness(), &ModelOptions{Rounds: 40, Ops: 400})
}

// The engine with one writer drives the same lists without overlapping
// transactions.
func TestModelSingleWriter(t *testing.T) {
	t.Parallel()
	h := memHarness()
	h.SingleWriter = true
	Model(t, h, &ModelOptions{Rounds: 10})
}
