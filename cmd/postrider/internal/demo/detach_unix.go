//go:build unix && !linux

package demo

import (
	"os/exec"
	"syscall"
)

// detach gives the child a session of its own, so that a terminal's Ctrl-C
// reaches the demo alone.
func detach(cmd *exec.Cmd) { cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true} }
