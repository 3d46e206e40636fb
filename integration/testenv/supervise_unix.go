//go:build unix

package testenv

import (
	"bufio"
	"context"
	"fmt"
	"os"
	"os/exec"
	"os/user"
	"strconv"
	"strings"
	"sync"
	"syscall"
	"time"
)

// supervise runs the start script in a new directory and, when end is called or
// this process ends, the stop script; then it removes the directory. A shell in a session of its own
// waits for the end of a pipe that only this process holds open: so the
// server ends after a panic, an interrupt and a SIGKILL too.
func supervise(ctx context.Context, start, stop string, unprivileged bool) (dir string, end func(), err error) {
	dir, err = os.MkdirTemp("", "postrider-test-")
	if err != nil {
		return "", nil, err
	}
	script := `trap '' INT TERM HUP
finish() { ` + stop + `; cd /; rm -rf "$DIR"; }
if ` + start + `
then echo ready
else echo "$(tail -n 5 log 2>/dev/null | tr '\n' ' ')"; finish; exit 1
fi
cat >/dev/null
finish`
	cmd := exec.Command("/bin/sh", "-c", script)
	cmd.Dir = dir
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	cmd.Env = os.Environ()
	if unprivileged {
		if err = dropPrivileges(cmd); err == nil && cmd.SysProcAttr.Credential != nil {
			err = os.Chown(dir, int(cmd.SysProcAttr.Credential.Uid), int(cmd.SysProcAttr.Credential.Gid))
		}
		if err != nil {
			os.RemoveAll(dir)
			return "", nil, err
		}
	}
	cmd.Env = append(cmd.Env, "DIR="+dir)
	hold, err := cmd.StdinPipe()
	if err != nil {
		return "", nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return "", nil, err
	}
	if err := cmd.Start(); err != nil {
		os.RemoveAll(dir)
		return "", nil, err
	}
	end = sync.OnceFunc(func() {
		hold.Close()
		cmd.Wait()
	})
	said := make(chan string, 1)
	go func() {
		line, _ := bufio.NewReader(out).ReadString('\n')
		said <- strings.TrimSpace(line)
	}()
	select {
	case line := <-said:
		if line == "ready" {
			return dir, end, nil
		}
		err = fmt.Errorf("it did not start: %s", line)
	case <-ctx.Done():
		err = fmt.Errorf("it did not start: %w", context.Cause(ctx))
	}
	// The start script is not interrupted half way; the shell cleans up after
	// it, and is waited for unless it is at something long, such as an image.
	hold.Close()
	waited := make(chan struct{})
	go func() {
		cmd.Wait()
		close(waited)
	}()
	select {
	case <-waited:
	case <-time.After(15 * time.Second):
	}
	return "", nil, err
}

// dropPrivileges readies a command of an engine that does not run as root. It
// works in cmd.Dir, under a user of its own when this process is root's.
func dropPrivileges(cmd *exec.Cmd) error {
	cmd.Env = []string{"HOME=" + cmd.Dir, "LC_ALL=C", "PATH=" + os.Getenv("PATH")}
	if os.Geteuid() != 0 {
		return nil
	}
	cred, err := unprivilegedUser()
	if err != nil {
		return err
	}
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = &syscall.SysProcAttr{}
	}
	cmd.SysProcAttr.Credential = cred
	return nil
}

func unprivilegedUser() (*syscall.Credential, error) {
	for _, name := range []string{"postgres", "mysql", "nobody"} {
		u, err := user.Lookup(name)
		if err != nil {
			continue
		}
		uid, err1 := strconv.ParseUint(u.Uid, 10, 32)
		gid, err2 := strconv.ParseUint(u.Gid, 10, 32)
		if err1 == nil && err2 == nil && uid != 0 {
			return &syscall.Credential{Uid: uint32(uid), Gid: uint32(gid)}, nil
		}
	}
	return nil, fmt.Errorf("the server does not run as root, and there is no user postgres, mysql or nobody")
}
