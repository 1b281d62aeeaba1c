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

	"pgmirror/duckdb"
	"pgmirror/readstate"
)

// shell is `pgmirror sql` with a person before it: statements over as many lines as they need, commands that begin with a dot.
//
//	editor ─line─▶ take ─statement complete─▶ execute ─▶ duckdb.DB ─▶ out, or the pager
//	                │                            ▲ Ctrl-C ends the statement, not the shell
//	                └─ .command ─▶ shellCommands (.read takes lines from a file)
type shell struct {
	db      *duckdb.DB
	status  func(context.Context) ([]byte, error) // the running mirror's document
	editor  editor
	out     io.Writer // results
	errs    io.Writer // all else
	environ func(string) string
	width   func() int // of the terminal, in characters; 0 when it is not known

	format  duckdb.Format
	timer   bool
	maxRows int    // of a table on the screen; 0 shows all
	pager   string // command that gets the results; empty without
	pinned  readstate.LSN
	reading int // files that .read is inside of
	// keywords are the words that are no names without quotes; nil before readKeywords.
	keywords map[string]bool
	// scripted says that nobody sits before it: results are written as they are, not fitted to a screen.
	scripted bool
}

// editor is what the shell gets its lines from.
type editor interface {
	// read returns a line without its end; errAbandoned after Ctrl-C, io.EOF at the end of input. statement is what was
	// typed of it on the lines before.
	read(prompt, statement string) (string, error)
	// remember keeps what was run, for later lines to find.
	remember(entry string)
}

var (
	// errAbandoned means that Ctrl-C was typed at the prompt.
	errAbandoned = errors.New("input abandoned")
	// errLeave ends the shell.
	errLeave = errors.New("leave the shell")
)

// defaultMaxRows is what DuckDB's own shell shows of a result.
const defaultMaxRows = 40

// run takes lines until the end of input or .exit. A failed statement is reported and does not end it.
func (s *shell) run(ctx context.Context) error {
	fmt.Fprintln(s.errs, `DuckDB over the mirrored tables. End statements with ";"; .help lists commands, .exit or Ctrl-D leaves.`)
	// From here on an interrupt ends what a line began, at most.
	interrupts := make(chan os.Signal, 1)
	signal.Notify(interrupts, os.Interrupt)
	defer signal.Stop(interrupts)
	var statement strings.Builder
	for {
		line, err := s.editor.read(s.prompt(statement.Len() > 0), statement.String())
		switch {
		case errors.Is(err, errAbandoned):
			statement.Reset()
			continue
		case errors.Is(err, io.EOF):
			fmt.Fprintln(s.errs)
			return nil
		case err != nil:
			return cannotRun(fmt.Errorf("read statements: %w", err))
		}
		typed := statement.String() + line
		err = s.interruptibly(ctx, func(ctx context.Context) error { return s.take(ctx, &statement, line) })
		if statement.Len() == 0 {
			remember(s.editor, typed)
		}
		if errors.Is(err, errLeave) {
			return nil
		}
		if err != nil {
			s.report(err)
		}
	}
}

// prompt names the LSN that .pin holds; that of a statement's later lines is as wide as the first.
func (s *shell) prompt(more bool) string {
	first := "pgmirror> "
	if s.pinned != 0 {
		first = "pgmirror@" + s.pinned.String() + "> "
	}
	if more {
		return strings.Repeat(" ", len(first)-len("...> ")) + "...> "
	}
	return first
}

// take adds a line to the statement, and runs and empties it when it is complete. A line with a dot or \q before any
// statement is a command.
func (s *shell) take(ctx context.Context, statement *strings.Builder, line string) error {
	if statement.Len() == 0 {
		word := strings.TrimSpace(line)
		switch {
		case word == "":
			return nil
		case word == `\q`:
			return errLeave
		case word[0] == '.':
			return s.command(ctx, word)
		}
	}
	statement.WriteString(line + "\n")
	// Looked at only where it can be the end, for a long statement has many lines.
	if !strings.Contains(line, ";") && !strings.Contains(line, "*/") || !complete(statement.String()) {
		return nil
	}
	script := statement.String()
	statement.Reset()
	return s.execute(ctx, script)
}

// interruptibly does work that Ctrl-C ends, with context.Canceled as its error.
func (s *shell) interruptibly(ctx context.Context, work func(context.Context) error) error {
	ctx, done := signal.NotifyContext(ctx, os.Interrupt)
	defer done()
	err := work(ctx)
	if err != nil && ctx.Err() != nil {
		return ctx.Err()
	}
	return err
}

// execute runs statements and shows their results.
func (s *shell) execute(ctx context.Context, script string) error {
	began := time.Now()
	err := s.show(ctx, script)
	if s.timer {
		fmt.Fprintf(s.out, "Run Time (s): real %.3f\n", time.Since(began).Seconds())
	}
	return err
}

func (s *shell) show(ctx context.Context, script string) error {
	switch {
	case s.pager != "":
		return s.paged(ctx, func(w io.Writer) error { return s.db.Run(ctx, script, w, s.format) })
	case s.format == duckdb.FormatTable && !s.scripted:
		return s.db.Show(ctx, script, s.out, duckdb.Screen{Columns: s.width(), Rows: s.maxRows})
	}
	return s.db.Run(ctx, script, s.out, s.format)
}

// report tells of an error; DuckDB's own text has the line and a caret below the place.
func (s *shell) report(err error) {
	if errors.Is(err, context.Canceled) {
		fmt.Fprintln(s.errs, "Interrupted")
		return
	}
	text := strings.TrimRight(onTerminal(err.Error()), "\n")
	if s.pinned != 0 && strings.Contains(text, readstate.ErrLost.Error()) {
		text += "\nThe pinned read state went with the connection: .unpin reads the newest again"
	}
	fmt.Fprintln(s.errs, text)
}

// onTerminal keeps the lines of a text and replaces what else could move the cursor.
func onTerminal(text string) string {
	lines := strings.Split(text, "\n")
	for i := range lines {
		lines[i] = oneLine(lines[i])
	}
	return strings.Join(lines, "\n")
}
