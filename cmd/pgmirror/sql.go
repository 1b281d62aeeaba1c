package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/signal"
	"strings"

	"github.com/jackc/pglogrepl"
	"github.com/spf13/cobra"

	"pgmirror/duckdb"
	"pgmirror/iceberg"
	"pgmirror/readstate"
)

type sqlOptions struct {
	command, file, format, at, waitLSN string
}

func (a *app) sqlCommand() *cobra.Command {
	var o sqlOptions
	cmd := &cobra.Command{
		Use:   "sql",
		Short: "Run SQL over the mirrored tables in an embedded DuckDB",
		Long: `sql runs DuckDB in this process over the read states of the running mirror: every statement sees all tables at one LSN, up to
the newest commit that has arrived; BEGIN keeps one LSN until COMMIT. When no mirror runs on the data directory, the last
committed snapshots are read, and a notice on standard error says so.

Without -c or -f, statements are read from standard input, from a terminal with a prompt.`,
		Args: cobra.NoArgs,
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
	cmd.Flags().StringVar(&o.format, "format", "table", "table, csv or json")
	cmd.Flags().StringVar(&o.waitLSN, "wait-lsn", "", "wait until this LSN is visible; \"source\": everything that the source has committed by now")
	cmd.Flags().StringVar(&o.at, "at", "", "read at exactly this LSN, inside the window that the history setting keeps")
	return cmd
}

func (a *app) sql(cmd *cobra.Command, s *settings, o sqlOptions) error {
	ctx := cmd.Context()
	request, err := o.request()
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
	defer source.Close()
	db, err := duckdb.Open(ctx, duckdb.Config{Source: source, Request: request, Log: newLog(s, a.stderr)})
	if err != nil {
		return cannotRun(err)
	}
	defer db.Close()

	run := func(script string) error {
		ctx, stop := signal.NotifyContext(ctx, os.Interrupt)
		defer stop()
		return db.Run(ctx, script, a.stdout, format)
	}
	if interactive {
		return a.prompt(run)
	}
	if err := run(script); err != nil {
		return finding(err)
	}
	return nil
}

func (o sqlOptions) request() (readstate.PinRequest, error) {
	var request readstate.PinRequest
	var err error
	if o.at != "" {
		if request.At, err = pglogrepl.ParseLSN(o.at); err != nil {
			return request, fmt.Errorf("--at: %q is not an LSN such as 16/B374D848", o.at)
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
	return request, nil
}

// script finds what is to be run; interactive says that a person types it.
func (a *app) script(cmd *cobra.Command, o sqlOptions) (script string, interactive bool, err error) {
	switch {
	case cmd.Flags().Changed("command"):
		return o.command, false, nil
	case cmd.Flags().Changed("file") && o.file != "-":
		text, err := os.ReadFile(o.file)
		if err != nil {
			return "", false, usage(fmt.Errorf("read statements: %w", err))
		}
		return string(text), false, nil
	}
	if f, ok := a.stdin.(*os.File); ok && !cmd.Flags().Changed("file") && isTerminal(f) {
		return "", true, nil
	}
	text, err := io.ReadAll(a.stdin)
	if err != nil {
		return "", false, cannotRun(fmt.Errorf("read statements: %w", err))
	}
	return string(text), false, nil
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
	committed, err := iceberg.OpenReadOnly(ctx, iceberg.Config{Dir: s.Data, TableErr: committedErr, SearchPath: committedPath})
	if err != nil {
		return nil, err
	}
	fmt.Fprintln(a.stderr, "pgmirror is not running: this answer is from the last checkpoint and does not follow the source")
	return committed, nil
}

// prompt reads statements from a terminal, each up to its semicolon, and runs them until \q or the end of input. A failed
// statement is reported and does not end it.
func (a *app) prompt(run func(script string) error) error {
	const first, more = "pgmirror> ", "     ...> "
	fmt.Fprintln(a.stderr, `DuckDB over the mirrored tables. End statements with ";", leave with \q.`)
	lines := newLineReader(a.stdin)
	var statement strings.Builder
	for {
		if statement.Len() == 0 {
			fmt.Fprint(a.stderr, first)
		} else {
			fmt.Fprint(a.stderr, more)
		}
		line, err := lines.next()
		if err != nil {
			fmt.Fprintln(a.stderr)
			if !errors.Is(err, io.EOF) {
				return cannotRun(fmt.Errorf("read statements: %w", err))
			}
			return nil
		}
		if word := strings.TrimSpace(line); statement.Len() == 0 && (word == `\q` || word == ".quit" || word == "") {
			if word == "" {
				continue
			}
			return nil
		}
		statement.WriteString(line + "\n")
		if !complete(statement.String()) {
			continue
		}
		if err := run(statement.String()); err != nil {
			fmt.Fprintf(a.stderr, "%s\n", err)
		}
		statement.Reset()
	}
}
