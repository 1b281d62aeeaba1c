package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5"

	"pgmirror/mirror"
	"pgmirror/readstate"
	"pgmirror/test/harness"
)

// mirrorRole is who pgmirror connects as.
const mirrorRole = "mirror"

// publication is the name of the one publication of each database.
const publication = "bench"

// startServer starts a throw-away cluster with one database. Settings given win over those of a benchmark. The caller calls stopServer.
func (b *bench) startServer(name string, settings ...harness.Option) (*harness.Postgres, error) {
	dir := filepath.Join(b.dir, "pg-"+name)
	if err := os.Mkdir(dir, 0o755); err != nil {
		return nil, err
	}
	pg, err := harness.Start(dir, append([]harness.Option{
		harness.Setting("shared_buffers", "1GB"), harness.Setting("max_wal_size", "32GB"), harness.Setting("checkpoint_timeout", "1h"),
		harness.Setting("autovacuum", "off"), // it would come and go between the rounds
		harness.Setting("wal_sender_timeout", "5min"), harness.Setting("max_connections", "50")}, settings...)...)
	if err != nil {
		return nil, err
	}
	return pg, pg.CreateMirrorRole(mirrorRole, "postgres")
}

func stopServer(pg *harness.Postgres) error {
	return errors.Join(pg.Stop(harness.Immediate), pg.Remove())
}

// mirrorProcess is a `pgmirror run`.
type mirrorProcess struct {
	cmd   *exec.Cmd
	data  string
	log   string
	began time.Time
	ended chan struct{} // closed when it has ended; err is set then
	err   error
}

// startMirror starts pgmirror on a data directory of the given name, new or with what an earlier life left.
func (b *bench) startMirror(pg *harness.Postgres, name string, args ...string) (*mirrorProcess, error) {
	p := &mirrorProcess{data: filepath.Join(b.dir, name), log: filepath.Join(b.dir, name+".log"), ended: make(chan struct{})}
	log, err := os.OpenFile(p.log, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err != nil {
		return nil, err
	}
	defer log.Close()
	p.cmd = exec.Command(b.bin, append([]string{"run", "--publication", publication, "--slot", name, "--data", p.data, "--listen", "off"}, args...)...)
	p.cmd.Env = append(os.Environ(), "PGMIRROR_SOURCE="+pg.URL(mirrorRole, "postgres"))
	p.cmd.SysProcAttr = harness.ChildProc() // it does not outlive this program
	p.cmd.Stdout, p.cmd.Stderr = log, log
	p.began = time.Now()
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start pgmirror: %w", err)
	}
	go func() {
		p.err = p.cmd.Wait()
		close(p.ended)
	}()
	b.mirrors = append(b.mirrors, p)
	return p, nil
}

// mirrorHybench starts a server with HyBench's tables and a mirror that has copied them, with args. After an error neither is there; else the caller
// calls stopServer.
func (b *bench) mirrorHybench(ctx context.Context, name string, args ...string) (_ *harness.Postgres, _ *mirrorProcess, rows int, err error) {
	pg, err := b.startServer(name)
	if err != nil {
		return nil, nil, 0, err
	}
	defer func() {
		if err != nil {
			err = errors.Join(err, stopServer(pg))
		}
	}()
	if rows, err = hybench.publish(pg, b.scale); err != nil {
		return nil, nil, 0, err
	}
	m, err := b.startMirror(pg, name, args...)
	if err != nil {
		return nil, nil, 0, err
	}
	return pg, m, rows, m.ready(ctx)
}

// killMirrors ends the processes that a section which failed has left.
func (b *bench) killMirrors() {
	for _, p := range b.mirrors {
		p.cmd.Process.Kill() // one that has ended does not mind
		<-p.ended
	}
	b.mirrors = nil
}

// dial connects to the socket as soon as it is there.
func (p *mirrorProcess) dial(ctx context.Context) (*readstate.Client, error) {
	for {
		client, err := readstate.Dial(ctx, p.data)
		if err == nil {
			return client, nil
		}
		if err := p.pause(ctx, err); err != nil {
			return nil, err
		}
	}
}

// pause waits a moment before the next attempt; it is an error when there need be none.
func (p *mirrorProcess) pause(ctx context.Context, last error) error {
	select {
	case <-p.ended:
		return errors.Join(fmt.Errorf("pgmirror ended: %w", errors.Join(p.err, last)), p.showLog())
	case <-ctx.Done():
		return ctx.Err()
	case <-time.After(5 * time.Millisecond):
		return nil
	}
}

// ready waits until every table has been copied and is followed.
func (p *mirrorProcess) ready(ctx context.Context) error {
	client, err := p.dial(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	for {
		st, err := statusOf(ctx, client)
		if err == nil && st.State == "streaming" {
			for _, t := range st.Tables {
				if t.State == "failed" {
					return fmt.Errorf("table %s failed: %s", t.Name, t.Error)
				}
			}
			return nil
		}
		if err := p.pause(ctx, err); err != nil {
			return err
		}
	}
}

// status asks for it over a connection of its own.
func (p *mirrorProcess) status(ctx context.Context) (*mirror.Status, error) {
	client, err := p.dial(ctx)
	if err != nil {
		return nil, err
	}
	defer client.Close()
	return statusOf(ctx, client)
}

func statusOf(ctx context.Context, client *readstate.Client) (*mirror.Status, error) {
	text, err := client.Status(ctx)
	if err != nil {
		return nil, err
	}
	var st mirror.Status
	return &st, json.Unmarshal(text, &st)
}

// visible waits until everything up to an LSN can be read.
func (p *mirrorProcess) visible(ctx context.Context, lsn pglogrepl.LSN) error {
	client, err := p.dial(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	for {
		state, err := client.Pin(ctx, readstate.PinRequest{WaitLSN: lsn, Timeout: 10 * time.Minute})
		if err == nil {
			state.Release()
			return nil
		}
		if err := p.pause(ctx, err); err != nil {
			return err
		}
	}
}

// stop ends the process in order, its last checkpoint included, and returns the CPU seconds of its whole life.
func (p *mirrorProcess) stop() (cpu float64, err error) {
	select {
	case <-p.ended:
		return 0, errors.Join(fmt.Errorf("pgmirror ended: %w", p.err), p.showLog())
	default:
	}
	if err := p.cmd.Process.Signal(syscall.SIGTERM); err != nil {
		return 0, err
	}
	select {
	case <-p.ended:
	case <-time.After(time.Minute):
		return 0, errors.Join(errors.New("pgmirror does not stop"), p.cmd.Process.Kill())
	}
	if p.err != nil {
		return 0, errors.Join(fmt.Errorf("stop pgmirror: %w", p.err), p.showLog())
	}
	state := p.cmd.ProcessState
	return (state.UserTime() + state.SystemTime()).Seconds(), nil
}

func (p *mirrorProcess) showLog() error {
	text, err := os.ReadFile(p.log)
	if err != nil {
		return err
	}
	return fmt.Errorf("its log ends:\n%s", text[max(0, len(text)-4000):])
}

// verify lets the running mirror compare itself with the source.
func (b *bench) verify(ctx context.Context, p *mirrorProcess) error {
	cmd := exec.CommandContext(ctx, b.bin, "verify", "--data", p.data)
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("pgmirror verify: %w\n%s", err, out)
	}
	return nil
}

// walEnd is an LSN at or above every commit so far, followed by a small one, so that a stream that is read up to it ends.
func walEnd(ctx context.Context, pg *harness.Postgres) (lsn pglogrepl.LSN, err error) {
	conn, err := pgx.Connect(ctx, pg.URL("postgres", "postgres"))
	if err != nil {
		return 0, err
	}
	defer conn.Close(ctx)
	var text string
	if err := conn.QueryRow(ctx, "SELECT pg_current_wal_insert_lsn()::text").Scan(&text); err != nil {
		return 0, err
	}
	if _, err := conn.Exec(ctx, "SELECT pg_logical_emit_message(true, 'bench', '')"); err != nil {
		return 0, err
	}
	return pglogrepl.ParseLSN(text)
}

// pluginOptions are those that pgmirror gives pgoutput.
func pluginOptions(pgVersion int) [][2]string {
	protocol := min(4, pgVersion-12) // 2 for 14, 3 for 15, 4 from 16 on
	return [][2]string{{"proto_version", strconv.Itoa(protocol)}, {"publication_names", publication}, {"messages", "true"}, {"binary", "true"}, {"streaming", "on"}}
}

// majorVersion is the server's.
func majorVersion(pg *harness.Postgres) (int, error) {
	n, err := strconv.Atoi(pg.QueryRow("SHOW server_version_num"))
	return n / 10000, err
}
