package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/spf13/cobra"

	"pgmirror/duckdb"
	"pgmirror/readstate"
)

type sqlOptions struct {
	command, file, format, at, waitLSN string
	waitTimeout                        time.Duration
}

func (a *app) sqlCommand() *cobra.Command {
	var o sqlOptions
	cmd := &cobra.Command{
		Use:   "sql",
		Short: "Run SQL over the mirrored tables in an embedded DuckDB",
		Long: `sql runs DuckDB in this process over the read states of the running mirror: every statement sees all tables at one LSN, up to
the newest commit that has arrived; BEGIN keeps one LSN until COMMIT. When no mirror runs on the data directory, the last
committed snapshots are read, and a notice on standard error says so.

Without -c or -f, statements are read from standard input, and each runs when it is there. On a terminal that is a shell with line
editing, history and completion. A line that begins with a dot, between statements, is a command in all of them; .help lists
them. The first statement or command that fails ends a script.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			if cmd.Flags().Changed("command") && cmd.Flags().Changed("file") {
				return usage(errors.New("-c and -f exclude each other"))
			}
			s, err := a.settings()
			if err != nil {
				return err
			}
			return a.sql(cmd, s, o)
		},
	}
	cmd.Flags().StringVarP(&o.command, "command", "c", "", "statements to run")
	cmd.Flags().StringVarP(&o.file, "file", "f", "", "file of statements to run; - is standard input")
	cmd.Flags().StringVar(&o.format, "format", "table", "table, csv, json or markdown")
	cmd.Flags().StringVar(&o.waitLSN, "wait-lsn", "", "each statement waits until this LSN is visible, and fails without it if it reads a mirrored table; \"source\": everything that the source has committed by now")
	cmd.Flags().DurationVar(&o.waitTimeout, "wait-timeout", readstate.DefaultWait, "how long a statement waits with --wait-lsn or --at before it fails")
	cmd.Flags().StringVar(&o.at, "at", "", "read at this LSN, at a time ('2026-11-30 10:00:00+00') or so long ago (-5m): exact in the window that the history setting keeps, before it at checkpoints")
	return cmd
}

func (a *app) sql(cmd *cobra.Command, s *settings, o sqlOptions) error {
	ctx := cmd.Context()
	request, err := o.request(time.Now())
	if err != nil {
		return usage(err)
	}
	format, err := duckdb.ParseFormat(o.format)
	if err != nil {
		return usage(fmt.Errorf("--format: %w", err))
	}
	script, interactive, err := a.script(cmd, o)
	if err != nil {
		return err
	}
	source, err := a.openReadStates(ctx, s, request)
	if err != nil {
		return cannotRun(err)
	}
	if client, ok := source.(*readstate.Client); ok && interactive {
		source = &liveSource{data: s.Data, client: client, notice: func(text string) { fmt.Fprintln(a.stderr, text) }}
	}
	defer source.Close()
	var pinner duckdb.Pinner = source
	if _, stored := source.(*committedStates); !stored {
		pinner = &pastStates{source, s.Data}
	}
	if !request.AtTime.IsZero() {
		// Found once, and held: later statements read the same LSN.
		state, err := pinner.Pin(ctx, request)
		if err != nil {
			return cannotRun(fmt.Errorf("--at: %w", err))
		}
		defer state.Release()
		fmt.Fprintf(a.stderr, "reading %s, the newest readable state up to %s\n", state.LSN, request.AtTime.UTC().Format(time.RFC3339Nano))
		request.At, request.AtTime = state.LSN, time.Time{}
	}
	db, err := duckdb.Open(ctx, duckdb.Config{Source: pinner, Request: request, Protect: s.Data, Log: newLog(s, a.stderr)})
	if err != nil {
		return cannotRun(err)
	}
	defer db.Close()

	if interactive {
		return a.shell(ctx, db, source, format)
	}
	ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
	defer stop()
	context.AfterFunc(ctx, stop) // a second one ends a process that waits for input
	return a.runScript(ctx, db, source, script, format)
}

// runScript runs statements and commands as they come, up to the first that fails.
func (a *app) runScript(ctx context.Context, db *duckdb.DB, source readStates, script *script, format duckdb.Format) error {
	defer script.Close()
	s := &shell{db: db, out: a.stdout, errs: a.stderr, environ: a.getenv, format: format, scripted: true, status: notRunning}
	if client, ok := source.(*readstate.Client); ok {
		s.status = client.Status
	}
	err := s.runLines(ctx, script.name, newLineReader(script))
	var reading *readError
	switch {
	case err == nil || errors.Is(err, errLeave):
		return nil
	case errors.As(err, &reading):
		return cannotRun(fmt.Errorf("read statements: %w", reading.err))
	}
	return finding(err)
}

func notRunning(context.Context) ([]byte, error) { return nil, readstate.ErrNotRunning }

// shell serves a person at a terminal until he leaves.
func (a *app) shell(ctx context.Context, db *duckdb.DB, source readStates, format duckdb.Format) error {
	s := &shell{
		db: db, out: a.stdout, errs: a.stderr, environ: a.getenv, format: format, maxRows: defaultMaxRows,
		width:  func() int { return terminalWidth(a.stdout) },
		status: notRunning,
	}
	if live, ok := source.(*liveSource); ok {
		s.status = live.Status
	}
	if terminalWidth(a.stdout) == 0 {
		s.maxRows = 0
		s.editor = plainEditor{newLineReader(a.stdin), a.stderr}
		return s.run(ctx)
	}
	var history *historyFile
	if path := historyPath(a.getenv); path != "" {
		var err error
		if history, err = openHistory(path); err != nil {
			fmt.Fprintf(a.stderr, "%s; this shell's statements are not kept\n", err)
		}
	}
	editor, err := newLineEditor(&suggester{db: db}, history)
	if err != nil {
		return cannotRun(fmt.Errorf("read from the terminal: %w", err))
	}
	defer editor.close()
	s.editor = editor
	return s.run(ctx)
}

// getenv is a variable of the environment; the last one counts, as in a shell.
func (p program) getenv(name string) string {
	value := ""
	for _, entry := range p.environ {
		if v, ok := strings.CutPrefix(entry, name+"="); ok {
			value = v
		}
	}
	return value
}

func (o sqlOptions) request(now time.Time) (readstate.PinRequest, error) {
	var request readstate.PinRequest
	var err error
	if o.at != "" {
		if request.At, request.AtTime, err = parsePast(o.at, now); err != nil {
			return request, fmt.Errorf("--at: %w", err)
		}
	}
	switch o.waitLSN {
	case "":
	case "source":
		request.WaitSource = true
	default:
		if request.WaitLSN, err = pglogrepl.ParseLSN(o.waitLSN); err != nil {
			return request, fmt.Errorf("--wait-lsn: %q is neither an LSN such as 16/B374D848 nor \"source\"", o.waitLSN)
		}
	}
	if o.at != "" && o.waitLSN != "" {
		return request, errors.New("--at and --wait-lsn exclude each other: --at waits for its LSN by itself")
	}
	if o.waitTimeout <= 0 {
		return request, fmt.Errorf("--wait-timeout: %s is not above 0", o.waitTimeout)
	}
	request.Timeout = o.waitTimeout
	return request, nil
}

// script is what is to be run.
type script struct {
	io.ReadCloser
	name string // of its file; empty for others
}

// script finds what is to be run; interactive says that a person types it.
func (a *app) script(cmd *cobra.Command, o sqlOptions) (_ *script, interactive bool, err error) {
	switch {
	case cmd.Flags().Changed("command"):
		return &script{ReadCloser: io.NopCloser(strings.NewReader(o.command))}, false, nil
	case cmd.Flags().Changed("file") && o.file != "-":
		f, err := os.Open(o.file)
		if err != nil {
			return nil, false, usage(fmt.Errorf("read statements: %w", err))
		}
		return &script{f, o.file}, false, nil
	}
	if f, ok := a.stdin.(*os.File); ok && !cmd.Flags().Changed("file") && isTerminal(f) {
		return nil, true, nil
	}
	return &script{ReadCloser: io.NopCloser(a.stdin)}, false, nil
}

// readStates is where statements get their states from.
type readStates interface {
	duckdb.Pinner
	io.Closer
}

// openReadStates connects to the running mirror, or opens the last committed snapshots when none runs.
func (a *app) openReadStates(ctx context.Context, s *settings, request readstate.PinRequest) (readStates, error) {
	client, err := readstate.Dial(ctx, s.Data)
	if err == nil {
		return client, nil
	}
	if !errors.Is(err, readstate.ErrNotRunning) {
		return nil, err
	}
	if request.WaitLSN != 0 || request.WaitSource {
		return nil, fmt.Errorf("--wait-lsn needs a running pgmirror: %w", err)
	}
	if err := checkFormatFile(s.Data); err != nil {
		return nil, err
	}
	committed, err := openCommitted(ctx, s.Data)
	if err != nil {
		return nil, err
	}
	fmt.Fprintln(a.stderr, "pgmirror is not running: this answer is from the last checkpoint and does not follow the source")
	return committed, nil
}
