package natstransport

import "testing"

func TestTakes(t *testing.T) {
	t.Parallel()
	for filter, subjects := range map[string]map[string]bool{
		"a.b":   {"a.b": true, "a": false, "a.b.c": false, "a.c": false},
		"a.*":   {"a.b": true, "a": false, "a.b.c": false, "b.b": false},
		"*.b":   {"a.b": true, "b": false, "a.c": false},
		"a.>":   {"a.b": true, "a.b.c": true, "a": false, "b.a": false},
		">":     {"a": true, "a.b": true},
		"a.*.c": {"a.b.c": true, "a.b": false, "a.b.d": false},
	} {
		for subject, want := range subjects {
			if got := takes(filter, subject); got != want {
				t.Errorf("%s, %s: got %v", filter, subject, got)
			}
		}
	}
}
