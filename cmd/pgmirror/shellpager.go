package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"syscall"

	"github.com/peterh/liner"
)

// paged gives what write writes to the pager and waits for the person to close it. The terminal is the pager's meanwhile.
func (s *shell) paged(ctx context.Context, write func(io.Writer) error) error {
	p := &pager{shell: s}
	err := write(p)
	if errors.Is(err, syscall.EPIPE) {
		err = nil // it was closed before the end
	}
	if ended := p.wait(); err == nil && ctx.Err() == nil {
		err = ended
	}
	return err
}

// pager starts its command at the first byte, so that nothing starts for a statement that fails or has no result.
type pager struct {
	shell *shell
	cmd   *exec.Cmd
	in    io.WriteCloser
	mode  liner.ModeApplier // the terminal's, as the shell had it
}

func (p *pager) Write(text []byte) (int, error) {
	if p.cmd == nil {
		if err := p.start(); err != nil {
			return 0, fmt.Errorf("start the pager: %w", err)
		}
	}
	return p.in.Write(text)
}

func (p *pager) start() error {
	cmd := exec.Command("sh", "-c", p.shell.pager)
	cmd.Stdout, cmd.Stderr = p.shell.out, p.shell.errs
	in, err := cmd.StdinPipe()
	if err != nil {
		return err
	}
	if e, ok := p.shell.editor.(*lineEditor); ok {
		p.mode = e.lendTerminal()
	}
	p.cmd, p.in = cmd, in
	return cmd.Start()
}

func (p *pager) wait() error {
	if p.cmd == nil {
		return nil
	}
	p.in.Close()
	var err error
	if p.cmd.Process != nil {
		err = p.cmd.Wait()
	}
	if p.mode != nil {
		err = errors.Join(err, p.mode.ApplyMode())
	}
	if err != nil {
		return fmt.Errorf("pager %s: %w", p.shell.pager, err)
	}
	return nil
}
