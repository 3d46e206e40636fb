package demo

import (
	"os/exec"
	"syscall"
)

// detach gives the child a session of its own, so that a terminal's Ctrl-C and
// the hang-up of an orphaned group reach the demo alone, and lets it die with
// the demo even if it cannot read the end of its input.
func detach(cmd *exec.Cmd) {
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true, Pdeathsig: syscall.SIGKILL}
}
