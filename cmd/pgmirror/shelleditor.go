package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"slices"
	"strings"
	"time"

	"github.com/peterh/liner"
	"golang.org/x/sys/unix"

	"pgmirror/duckdb"
)

// lineEditor edits lines on a terminal, with completion and history.
type lineEditor struct {
	liner   *liner.State
	before  liner.ModeApplier // the terminal's mode outside the shell
	suggest *suggester
	history *historyFile // nil when there is none
}

func newLineEditor(suggest *suggester, history *historyFile) (*lineEditor, error) {
	before, err := liner.TerminalMode()
	if err != nil {
		return nil, err
	}
	e := &lineEditor{liner: liner.NewLiner(), before: before, suggest: suggest, history: history}
	e.liner.SetCtrlCAborts(true)
	e.liner.SetMultiLineMode(true)
	e.liner.SetTabCompletionStyle(liner.TabPrints)
	e.liner.SetWordCompleter(suggest.complete)
	if history != nil {
		for _, entry := range history.entries {
			e.liner.AppendHistory(entry)
		}
	}
	return e, nil
}

func (e *lineEditor) read(prompt, statement string) (string, error) {
	e.suggest.statement = statement
	line, err := e.liner.Prompt(prompt)
	if errors.Is(err, liner.ErrPromptAborted) {
		return "", errAbandoned
	}
	return line, err
}

// remember keeps an entry for this shell, and for later ones as far as the file can be written.
func (e *lineEditor) remember(entry string) {
	e.liner.AppendHistory(entry)
	if e.history != nil {
		e.history.add(entry)
	}
}

// lendTerminal puts the terminal as it was outside the shell; applying the mode it returns takes it back.
func (e *lineEditor) lendTerminal() liner.ModeApplier {
	mine, err := liner.TerminalMode()
	if err != nil || e.before.ApplyMode() != nil {
		return nil
	}
	return mine
}

func (e *lineEditor) close() { e.liner.Close() }

// plainEditor reads lines as the terminal gives them; it serves when results do not go to a terminal.
type plainEditor struct {
	lines  *lineReader
	prompt io.Writer
}

func (e plainEditor) read(prompt, _ string) (string, error) {
	fmt.Fprint(e.prompt, prompt)
	return e.lines.next()
}

func (e plainEditor) remember(string) {}

// terminalWidth is a terminal's, in characters; 0 when w is none.
func terminalWidth(w io.Writer) int {
	f, ok := w.(*os.File)
	if !ok {
		return 0
	}
	size, err := unix.IoctlGetWinsize(int(f.Fd()), unix.TIOCGWINSZ)
	if err != nil {
		return 0
	}
	return int(size.Col)
}

// suggester completes what is typed.
type suggester struct {
	db        *duckdb.DB
	statement string // the lines before the one that is edited
}

// completeWait bounds how long Tab may take.
const completeWait = 2 * time.Second

// complete is what Tab calls: from the line with the cursor after pos characters it returns the part before the word that
// is completed, the words, and the part after. Names of commands are completed here, all else by DuckDB.
func (s *suggester) complete(line string, pos int) (head string, words []string, tail string) {
	cut := len(string([]rune(line)[:pos]))
	before, tail := line[:cut], line[cut:]
	if s.statement == "" && strings.HasPrefix(before, ".") {
		for help := range strings.Lines(shellHelp) {
			if name, _, _ := strings.Cut(help, " "); strings.HasPrefix(name, before) {
				words = append(words, name+" ")
			}
		}
		return "", words, tail
	}
	asked, open := before, -1 // DuckDB completes no name whose quote is open
	if strings.Count(before, `"`)%2 == 1 {
		open = strings.LastIndex(before, `"`)
		asked = before[:open] + before[open+1:]
	}
	ctx, cancel := context.WithTimeout(context.Background(), completeWait)
	defer cancel()
	suggestions, err := s.db.Complete(ctx, s.statement+asked)
	if err != nil || len(suggestions) == 0 {
		return before, nil, tail
	}
	start := suggestions[0].Start - len(s.statement)
	if start < 0 || start > len(asked) || open >= 0 && start != open {
		return before, nil, tail
	}
	typed := asked[start:]
	for _, suggestion := range suggestions {
		quoted := strings.HasPrefix(suggestion.Text, `"`)
		if suggestion.Start-len(s.statement) == start && (quoted || open < 0) && continues(typed, suggestion.Text) {
			words = append(words, oneLine(suggestion.Text))
		}
	}
	return before[:start], likeFirst(words, typed), tail
}

// continues says whether a suggestion goes on from what is typed. DuckDB also offers what only resembles it.
func continues(typed, suggestion string) bool {
	return hasPrefixFold(suggestion, typed) || hasPrefixFold(strings.TrimPrefix(suggestion, `"`), typed)
}

func hasPrefixFold(s, prefix string) bool {
	return len(s) > len(prefix) && strings.EqualFold(s[:len(prefix)], prefix)
}

// likeFirst keeps the words that begin with the same bytes, as the editor puts what all of them begin with in place of what is typed: those that begin as
// it is typed, else those like the first that is not quoted, else the quoted ones.
func likeFirst(words []string, typed string) []string {
	rank := func(w string) int {
		switch {
		case strings.HasPrefix(w, typed):
			return 0
		case hasPrefixFold(w, typed):
			return 1
		}
		return 2
	}
	if len(words) == 0 {
		return nil
	}
	first := slices.MinFunc(words, func(a, b string) int { return cmp.Compare(rank(a), rank(b)) })
	begin := first[:min(len(first), len(typed)+len(first)-len(strings.TrimPrefix(first, `"`)))]
	return slices.DeleteFunc(words, func(w string) bool { return !strings.HasPrefix(w, begin) })
}
