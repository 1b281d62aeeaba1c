package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"pgmirror/mirror"
	"pgmirror/test/harness"
	"pgmirror/test/harness/running"
)

// mirrorProcess is a running `pgmirror run`.
type mirrorProcess struct {
	*harness.Process
	log string
}

// startMirror starts `pgmirror run` as the least-privileged role and waits until it has copied the shop and follows it.
func (d *demo) startMirror(ctx context.Context) (*mirrorProcess, error) {
	cmd := exec.Command(d.bin, "run", "--publication", "shop", "--data", d.data, "--listen", "off", "--history", "5m", "--checkpoint-interval", "5s")
	cmd.Env = append(os.Environ(), "PGMIRROR_SOURCE="+d.pg.URL("mirror", "shop"))
	d.say("starting: pgmirror run --publication shop, as a role with LOGIN, REPLICATION and SELECT")
	begin := time.Now()
	log := filepath.Join(filepath.Dir(d.data), "pgmirror.log")
	process, err := harness.StartProcess(cmd, log)
	if err != nil {
		return nil, err
	}
	p := &mirrorProcess{process, log}
	if err := p.ready(ctx, d.data); err != nil {
		return nil, errors.Join(err, p.stop(), p.showLog())
	}
	d.say("copied and streaming, %.1f s after the start", time.Since(begin).Seconds())
	return p, nil
}

// copyLimit bounds the first copy; it takes a second or two.
const copyLimit = time.Minute

func (p *mirrorProcess) ready(ctx context.Context, data string) error {
	deadline := time.After(copyLimit)
	for {
		status, err := running.Status(ctx, data)
		if err == nil && status.State == "streaming" && len(status.Tables) == len(tables) && allStreaming(status) {
			return nil
		}
		select {
		case <-p.Ended():
			return fmt.Errorf("pgmirror ended: %w", errors.Join(p.Err(), err))
		case <-ctx.Done():
			return ctx.Err()
		case <-deadline:
			return errors.New("pgmirror is not ready after a minute")
		case <-time.After(50 * time.Millisecond):
		}
	}
}

func allStreaming(s *mirror.Status) bool {
	for _, t := range s.Tables {
		if t.State != "streaming" {
			return false
		}
	}
	return true
}

// stopLimit is a little more than pgmirror takes at most for a stop in order.
const stopLimit = 35 * time.Second

// stop asks the process to end in order and waits for it; one that has ended was seen to.
func (p *mirrorProcess) stop() error {
	if !p.Running() {
		return nil
	}
	if err := p.Stop(syscall.SIGTERM, stopLimit); err != nil {
		p.Kill()
		return err
	}
	if err := p.Err(); err != nil {
		return errors.Join(fmt.Errorf("stop pgmirror: %w", err), p.showLog())
	}
	return nil
}

// showLog makes an error of the last lines of the process's log.
func (p *mirrorProcess) showLog() error {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err
	}
	return fmt.Errorf("its log ends:\n%s", text[max(0, len(text)-4000):])
}

// pgmirror runs another command of the program, its output to ours.
func (d *demo) pgmirror(ctx context.Context, args ...string) error {
	cmd := exec.CommandContext(ctx, d.bin, append(args, "--data", d.data)...)
	cmd.Stdout, cmd.Stderr = os.Stdout, os.Stderr
	return cmd.Run()
}

// verify lets pgmirror compare itself.
func (d *demo) verify(ctx context.Context) error {
	d.say("pgmirror verify")
	if err := d.pgmirror(ctx, "verify"); err != nil {
		return fmt.Errorf("pgmirror verify: %w", errors.Join(errDiffers, err))
	}
	return nil
}
