package demo

import (
	"context"
	"encoding/json"
	"fmt"
	"io"
	"os/exec"
	"runtime"
	"sync"
)

// children is a fleet of child processes.
type children struct {
	command []string
	log     io.Writer
	errs    chan error

	// start and stop of processes run on one thread: on Linux a child is told
	// to die with the thread that made it, and other threads may come and go.
	thread chan func()

	mu    sync.Mutex
	procs []*child // by relay number - 1
	quiet bool     // ends are expected
}

type child struct {
	spec  relaySpec
	cmd   *exec.Cmd
	stdin io.WriteCloser
	done  chan struct{} // closed when it has ended
	err   error         // set before done is closed
	dead  bool          // killed on purpose; guarded by children.mu
}

func startChildren(specs []relaySpec, command []string, log io.Writer) (*children, error) {
	c := &children{command: command, log: log, errs: make(chan error, 1), thread: make(chan func()), procs: make([]*child, len(specs))}
	go func() {
		runtime.LockOSThread()
		for f := range c.thread {
			f()
		}
	}()
	for _, spec := range specs {
		if err := c.start(spec); err != nil {
			c.killAll()
			return nil, err
		}
	}
	return c, nil
}

// start starts the relay of spec.
func (c *children) start(spec relaySpec) error {
	line, err := json.Marshal(spec)
	if err != nil {
		return err
	}
	p := &child{spec: spec, cmd: exec.Command(c.command[0], c.command[1:]...), done: make(chan struct{})}
	p.cmd.Stderr = c.log
	detach(p.cmd)
	if p.stdin, err = p.cmd.StdinPipe(); err != nil {
		return fmt.Errorf("start relay %d: %w", spec.Number, err)
	}
	started := make(chan error)
	c.thread <- func() { started <- p.cmd.Start() }
	if err := <-started; err != nil {
		return fmt.Errorf("start relay %d: %w", spec.Number, err)
	}
	c.mu.Lock()
	c.procs[spec.Number-1] = p
	c.mu.Unlock()
	go func() {
		p.err = p.cmd.Wait()
		c.mu.Lock()
		unexpected := !p.dead && !c.quiet
		c.mu.Unlock()
		if unexpected {
			select {
			case c.errs <- fmt.Errorf("relay %d (process %d) ended by itself: %v", spec.Number, p.cmd.Process.Pid, p.cmd.ProcessState):
			default:
			}
		}
		close(p.done)
	}()
	// A child that is gone already shows through errs.
	p.stdin.Write(append(line, '\n'))
	return nil
}

// kill ends a relay by SIGKILL and returns when it is gone.
func (c *children) kill(number int) {
	c.mu.Lock()
	p := c.procs[number-1]
	p.dead = true
	c.mu.Unlock()
	p.cmd.Process.Kill()
	<-p.done
	p.stdin.Close()
}

// restart starts a killed relay again.
func (c *children) restart(number int) error {
	c.mu.Lock()
	spec := c.procs[number-1].spec
	c.mu.Unlock()
	return c.start(spec)
}

func (c *children) wake() {}

func (c *children) failed() <-chan error { return c.errs }

func (c *children) stop(ctx context.Context) error {
	c.mu.Lock()
	c.quiet = true
	procs := c.procs
	c.mu.Unlock()
	defer c.killAll()
	for _, p := range procs {
		if p != nil {
			io.WriteString(p.stdin, "stop\n")
		}
	}
	for i, p := range procs {
		if p == nil {
			continue
		}
		select {
		case <-p.done:
		case <-ctx.Done():
			return fmt.Errorf("relay %d did not stop: %w", i+1, context.Cause(ctx))
		}
		if p.err != nil && !p.dead {
			return fmt.Errorf("relay %d did not stop cleanly: %w", i+1, p.err)
		}
	}
	return nil
}

// killAll leaves no process. The fleet is of no use afterwards.
func (c *children) killAll() {
	c.mu.Lock()
	c.quiet = true
	procs := c.procs
	c.mu.Unlock()
	for _, p := range procs {
		if p != nil {
			p.cmd.Process.Kill()
			<-p.done
			p.stdin.Close()
		}
	}
	close(c.thread)
}
