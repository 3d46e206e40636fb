//go:build unix

package meter

import (
	"syscall"
	"time"
)

// OwnCPU is the processor time of this process so far, user and system; false
// where the system does not tell.
func OwnCPU() (time.Duration, bool) {
	var u syscall.Rusage
	if err := syscall.Getrusage(syscall.RUSAGE_SELF, &u); err != nil {
		return 0, false
	}
	return time.Duration(u.Utime.Nano() + u.Stime.Nano()), true
}
