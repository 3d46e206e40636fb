package relay

import (
	"math/rand/v2"
	"time"
)

// backoff is a wait of full jitter: uniform in (0, min(hi, lo * 2^n)]. It
// saturates, so that a message tried a million times waits hi, not less than
// nothing.
func backoff(lo, hi time.Duration, n int) time.Duration {
	return jitter(rand.Int64N, lo, hi, n)
}

func jitter(draw func(int64) int64, lo, hi time.Duration, n int) time.Duration {
	span := hi
	if n = max(n, 0); n < 62 && lo <= hi>>n {
		span = lo << n
	}
	return 1 + time.Duration(draw(int64(span)))
}
