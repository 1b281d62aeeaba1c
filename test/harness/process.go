package harness

import (
	"errors"
	"fmt"
	"os"
	"os/exec"
	"syscall"
	"time"
)

// Process is a program that was started here and ends with us, even when a test run is killed. Its methods may be called by
// several goroutines.
type Process struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when it has ended; err is set then
	err   error
}

// StartProcess starts a command, whose output is appended to the file log.
func StartProcess(cmd *exec.Cmd, log string) (*Process, error) {
	out, err := os.OpenFile(log, os.O_APPEND|os.O_CREATE|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer out.Close()
	cmd.Stdout, cmd.Stderr = out, out
	if cmd.SysProcAttr == nil {
		cmd.SysProcAttr = ChildProc()
	}
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", cmd.Path, err)
	}
	p := &Process{cmd: cmd, ended: make(chan struct{})}
	go func() {
		p.err = cmd.Wait()
		close(p.ended)
	}()
	return p, nil
}

// Ended is closed when the process has ended.
func (p *Process) Ended() <-chan struct{} { return p.ended }

// Running says whether the process lives.
func (p *Process) Running() bool {
	select {
	case <-p.ended:
		return false
	default:
		return true
	}
}

// Err is nil after exit code 0. The process must have ended.
func (p *Process) Err() error { return p.err }

// ExitCode is -1 after a signal. The process must have ended.
func (p *Process) ExitCode() int { return p.cmd.ProcessState.ExitCode() }

// Signal sends a signal; to a process that has ended, none.
func (p *Process) Signal(s syscall.Signal) error {
	if err := p.cmd.Process.Signal(s); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	return nil
}

// Stop sends a signal and waits for the end, however the process ends, at most for limit.
func (p *Process) Stop(s syscall.Signal, limit time.Duration) error {
	if err := p.Signal(s); err != nil {
		return err
	}
	return p.Wait(limit)
}

// Wait waits for the end, however the process ends, at most for limit.
func (p *Process) Wait(limit time.Duration) error {
	select {
	case <-p.ended:
		return nil
	case <-time.After(limit):
		return fmt.Errorf("%s has not ended within %s", p.cmd.Path, limit)
	}
}

// Kill ends the process with SIGKILL and waits for it.
func (p *Process) Kill() {
	p.cmd.Process.Kill() // one that has ended does not mind
	<-p.ended
}

// PID is the process's id.
func (p *Process) PID() int { return p.cmd.Process.Pid }
