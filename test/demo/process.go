package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"syscall"
	"time"

	"pgmirror/mirror"
	"pgmirror/readstate"
)

// mirrorProcess is a running `pgmirror run`.
type mirrorProcess struct {
	cmd   *exec.Cmd
	ended chan struct{} // closed when it has ended, err is set then
	err   error
	log   string
}

// startMirror starts `pgmirror run` as the least-privileged role and waits until it has copied the shop and follows it.
func (d *demo) startMirror(ctx context.Context) (*mirrorProcess, error) {
	logPath := filepath.Join(filepath.Dir(d.data), "pgmirror.log")
	log, err := os.Create(logPath)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	cmd := exec.Command(d.bin, "run", "--publication", "shop", "--data", d.data, "--listen", "off", "--history", "5m", "--checkpoint-interval", "5s")
	cmd.Env = append(os.Environ(), "PGMIRROR_SOURCE="+d.pg.URL("mirror", "shop"))
	cmd.Stdout, cmd.Stderr = log, log
	d.say("starting: pgmirror run --publication shop, as a role with LOGIN, REPLICATION and SELECT")
	begin := time.Now()
	if err := cmd.Start(); err != nil {
		return nil, fmt.Errorf("start pgmirror: %w", err)
	}
	p := &mirrorProcess{cmd: cmd, ended: make(chan struct{}), log: logPath}
	go func() {
		p.err = cmd.Wait()
		close(p.ended)
	}()
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
		status, err := askStatus(ctx, data)
		if err == nil && status.State == "streaming" && len(status.Tables) == len(tables) && allStreaming(status) {
			return nil
		}
		select {
		case <-p.ended:
			return fmt.Errorf("pgmirror ended: %w", errors.Join(p.err, err))
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

func askStatus(ctx context.Context, data string) (*mirror.Status, error) {
	client, err := readstate.Dial(ctx, data)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	document, err := client.Status(ctx)
	if err != nil {
		return nil, err
	}
	var status mirror.Status
	return &status, json.Unmarshal(document, &status)
}

// stop asks the process to end in order and waits for it.
func (p *mirrorProcess) stop() error {
	select {
	case <-p.ended:
		return nil
	default:
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil && !errors.Is(err, os.ErrProcessDone) {
		return err
	}
	select {
	case <-p.ended:
		if p.err != nil {
			return errors.Join(fmt.Errorf("stop pgmirror: %w", p.err), p.showLog())
		}
		return nil
	case <-time.After(35 * time.Second):
		return errors.Join(errors.New("pgmirror does not stop"), p.cmd.Process.Kill())
	}
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
