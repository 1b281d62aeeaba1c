package main

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"regexp"
	"strconv"
	"strings"
	"time"

	"pgmirror/duckdb"
	"pgmirror/readstate"
)

const shellHelp = `.exit                leave; also .quit, \q, Ctrl-D
.help                this list
.lsn                 the LSN that the next statement reads
.maxrows N           rows of a table on the screen; 0 shows all (default 40)
.mode FORMAT         table, csv, json or markdown
.pager [COMMAND|off] show results through COMMAND (default $PAGER, or less -S), nothing shortened or left out
.pin [LSN|TIME|-5m]  read this LSN, the state of a time, or the newest one, in every statement until .unpin
.read FILE           run the statements and commands of a file, up to the first that fails
.schema [PATTERN]    columns of the tables whose name is LIKE PATTERN
.status              what the running mirror does and how far it is
.tables [PATTERN]    tables and views whose name is LIKE PATTERN
.timer on|off        show how long statements take
.unpin               read the newest LSN again
Ctrl-C ends a running statement, or what is typed; Tab completes; a line that begins with a space is kept out of the history.
`

// command runs a line that begins with a dot.
func (s *shell) command(ctx context.Context, line string) error {
	name, argument, _ := strings.Cut(strings.TrimRight(line, "; \t"), " ")
	argument = unquoted(strings.TrimSpace(argument))
	switch name {
	case ".exit", ".quit":
		return errLeave
	case ".help":
		fmt.Fprint(s.out, shellHelp)
		return nil
	case ".tables":
		return s.tables(ctx, argument)
	case ".schema":
		return s.schema(ctx, argument)
	case ".mode":
		return s.mode(argument)
	case ".timer":
		return s.setTimer(argument)
	case ".maxrows":
		return s.setMaxRows(argument)
	case ".pager":
		return s.setPager(argument)
	case ".read":
		return s.readFile(ctx, argument)
	case ".status":
		return s.showStatus(ctx)
	case ".lsn":
		return s.lsn(ctx)
	case ".pin":
		return s.pin(ctx, argument)
	case ".unpin":
		s.db.Unpin()
		s.pinned = 0
		return nil
	}
	return fmt.Errorf("%s: no such command; .help lists them", name)
}

// unquoted takes one pair of quotes from around an argument.
func unquoted(argument string) string {
	if n := len(argument); n >= 2 && (argument[0] == '\'' || argument[0] == '"') && argument[n-1] == argument[0] {
		return argument[1 : n-1]
	}
	return argument
}

// likeName is a condition on a table's name, alone or with its schema before it; any name without a pattern.
func likeName(table, pattern string) string {
	if pattern == "" {
		return "true"
	}
	quoted := "'" + strings.ReplaceAll(pattern, "'", "''") + "'"
	return fmt.Sprintf("(%s ILIKE %s OR schema_name || '.' || %s ILIKE %s)", table, quoted, table, quoted)
}

func (s *shell) tables(ctx context.Context, pattern string) error {
	if err := s.readKeywords(ctx); err != nil {
		return err
	}
	rows, err := s.ask(ctx, "SELECT schema_name, view_name AS n FROM duckdb_views() WHERE NOT internal AND "+likeName("view_name", pattern)+
		" UNION ALL SELECT schema_name, table_name FROM duckdb_tables() WHERE NOT internal AND "+likeName("table_name", pattern)+" ORDER BY ALL")
	if err != nil {
		return err
	}
	for _, row := range rows {
		fmt.Fprintln(s.out, s.name(row[0].Value)+"."+s.name(row[1].Value))
	}
	return nil
}

func (s *shell) schema(ctx context.Context, pattern string) error {
	if err := s.readKeywords(ctx); err != nil {
		return err
	}
	rows, err := s.ask(ctx, "SELECT schema_name, table_name, column_name, data_type, is_nullable FROM duckdb_columns() WHERE NOT internal AND "+
		likeName("table_name", pattern)+" ORDER BY database_name, schema_name, table_name, column_index")
	if err != nil {
		return err
	}
	table := ""
	for _, row := range rows {
		name := s.name(row[0].Value) + "." + s.name(row[1].Value)
		switch {
		case table == "":
			fmt.Fprintf(s.out, "CREATE TABLE %s (\n", name)
		case table != name:
			fmt.Fprintf(s.out, "\n);\nCREATE TABLE %s (\n", name)
		default:
			fmt.Fprint(s.out, ",\n")
		}
		table = name
		fmt.Fprintf(s.out, "  %s %s", s.name(row[2].Value), oneLine(row[3].Value))
		if row[4].Value == "false" {
			fmt.Fprint(s.out, " NOT NULL")
		}
	}
	if table != "" {
		fmt.Fprint(s.out, "\n);\n")
	}
	return nil
}

// readKeywords reads once which words are no names without quotes.
func (s *shell) readKeywords(ctx context.Context) error {
	if s.keywords != nil {
		return nil
	}
	rows, err := s.ask(ctx, "SELECT keyword_name FROM duckdb_keywords() WHERE keyword_category <> 'unreserved'")
	if err != nil {
		return err
	}
	s.keywords = make(map[string]bool, len(rows))
	for _, row := range rows {
		s.keywords[row[0].Value] = true
	}
	return nil
}

func (s *shell) ask(ctx context.Context, sql string) ([][]duckdb.Text, error) {
	rows, err := s.db.Query(ctx, sql)
	if err != nil {
		return nil, err
	}
	return rows.All(), nil
}

var plainName = regexp.MustCompile(`^[a-z_][a-z0-9_]*$`)

// name quotes a name when it needs it.
func (s *shell) name(name string) string {
	if plainName.MatchString(name) && !s.keywords[name] {
		return name
	}
	return `"` + strings.ReplaceAll(oneLine(name), `"`, `""`) + `"`
}

func (s *shell) mode(argument string) error {
	if argument == "" {
		fmt.Fprintln(s.out, s.format)
		return nil
	}
	format, err := duckdb.ParseFormat(argument)
	if err != nil {
		return fmt.Errorf(".mode: %w", err)
	}
	s.format = format
	return nil
}

func (s *shell) setTimer(argument string) error {
	if argument != "on" && argument != "off" {
		return errors.New(".timer: on or off")
	}
	s.timer = argument == "on"
	return nil
}

func (s *shell) setMaxRows(argument string) error {
	n, err := strconv.Atoi(argument)
	if err != nil || n < 0 || n > 1e9 {
		return errors.New(".maxrows: a number from 0, which shows all")
	}
	s.maxRows = n
	return nil
}

func (s *shell) setPager(argument string) error {
	switch {
	case argument == "off":
		s.pager = ""
	case argument != "":
		s.pager = argument
	default:
		if s.pager = s.environ("PAGER"); s.pager == "" {
			s.pager = "less -S"
		}
	}
	return nil
}

// maxReading bounds .read inside of files that are read: a file that names itself would go on for ever.
const maxReading = 16

func (s *shell) readFile(ctx context.Context, path string) error {
	if path == "" {
		return errors.New(".read: which file?")
	}
	if s.reading == maxReading {
		return fmt.Errorf(".read: %d files inside each other", maxReading)
	}
	f, err := os.Open(path)
	if err != nil {
		return fmt.Errorf(".read: %w", err)
	}
	defer f.Close()
	s.reading++
	defer func() { s.reading-- }()
	return s.runLines(ctx, path, newLineReader(f))
}

// readError is a fault of what statements are read from, not of a statement.
type readError struct{ err error }

func (e *readError) Error() string { return e.err.Error() }

// runLines runs statements and commands up to the first that fails. path is the file's that they come from, or empty.
func (s *shell) runLines(ctx context.Context, path string, lines *lineReader) error {
	var statement strings.Builder
	began := 0
	for number := 1; ; number++ {
		line, err := lines.next()
		if err == io.EOF {
			break
		}
		if err != nil {
			return &readError{err}
		}
		if statement.Len() == 0 {
			began = number
		}
		if err := s.take(ctx, &statement, line); err != nil {
			return inFile(path, began, err)
		}
	}
	if statement.Len() > 0 { // the last one needs no semicolon
		return inFile(path, began, s.execute(ctx, statement.String()))
	}
	return nil
}

// inFile says where in a file an error comes from.
func inFile(path string, line int, err error) error {
	if err == nil || path == "" || errors.Is(err, errLeave) {
		return err
	}
	return fmt.Errorf("%s, line %d: %w", path, line, err)
}

func (s *shell) showStatus(ctx context.Context) error {
	document, err := s.status(ctx)
	if err != nil {
		return err
	}
	screen, err := statusScreen(document)
	if err != nil {
		return err
	}
	fmt.Fprint(s.out, screen)
	return nil
}

func (s *shell) lsn(ctx context.Context) error {
	lsn, kept, err := s.db.LSN(ctx)
	if err != nil {
		return err
	}
	switch {
	case kept && lsn == s.pinned:
		fmt.Fprintf(s.out, "%s, pinned\n", lsn)
	case kept:
		fmt.Fprintf(s.out, "%s, until this transaction ends\n", lsn)
	default:
		fmt.Fprintln(s.out, lsn)
	}
	return nil
}

func (s *shell) pin(ctx context.Context, argument string) error {
	var at readstate.LSN
	var t time.Time
	if argument != "" {
		var err error
		if at, t, err = parsePast(argument, time.Now()); err != nil {
			return fmt.Errorf(".pin: %w", err)
		}
	}
	pinned, err := s.db.Pin(ctx, at, t)
	if err != nil {
		return fmt.Errorf(".pin: %w", err)
	}
	s.pinned = pinned
	fmt.Fprintf(s.out, "%s, pinned until .unpin\n", pinned)
	return nil
}
