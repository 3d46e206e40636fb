package demo

import (
	"testing"
	"testing/synctest"
	"time"
)

// An order that is to be committed late stays open while the relays are behind,
// but not for ever.
func TestLateOrderWaitsForOthers(t *testing.T) {
	t.Parallel()
	synctest.Test(t, func(t *testing.T) {
		for _, c := range []struct{ until, want time.Duration }{{0, 0}, {2 * time.Second, 2 * time.Second}, {time.Hour, 5 * time.Second}} {
			begin := time.Now()
			s := &shop{arrived: func() int64 {
				if time.Since(begin) < c.until {
					return 149
				}
				return 150
			}}
			if s.letPass(t.Context(), 150); time.Since(begin) != c.want {
				t.Errorf("with the others out after %v it stayed open for %v, want %v", c.until, time.Since(begin), c.want)
			}
		}
	})
}
