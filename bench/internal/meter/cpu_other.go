//go:build !unix

package meter

import "time"

// OwnCPU is the processor time of this process so far, user and system; false
// where the system does not tell.
func OwnCPU() (time.Duration, bool) { return 0, false }
