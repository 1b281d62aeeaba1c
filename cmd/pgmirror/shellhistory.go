package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"unicode"
	"unicode/utf8"
)

// historyFile keeps what was typed for later shells, an entry a line, the newest last. Shells that run side by side each add
// to its end.
type historyFile struct {
	path    string
	entries []string // those of earlier shells
}

// Bounds of what is read from and kept in a history file.
const (
	historyEntries = 1000
	historyEntry   = 16 << 10 // bytes of one entry; longer ones are not kept
	historyBytes   = 4 << 20  // a file that is larger is made anew from its last entries
)

// historyPath is in the user's state directory, https://specifications.freedesktop.org/basedir-spec; empty when the
// environment names none.
func historyPath(environ func(string) string) string {
	state := environ("XDG_STATE_HOME")
	if !filepath.IsAbs(state) {
		home := environ("HOME")
		if !filepath.IsAbs(home) {
			return ""
		}
		state = filepath.Join(home, ".local", "state")
	}
	return filepath.Join(state, "pgmirror", "history")
}

// openHistory reads the history, and shortens a file that has grown.
func openHistory(path string) (*historyFile, error) {
	h := &historyFile{path: path}
	if err := os.MkdirAll(filepath.Dir(path), 0o700); err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	info, err := os.Stat(path)
	if errors.Is(err, fs.ErrNotExist) {
		return h, nil
	}
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	if !info.Mode().IsRegular() {
		return nil, fmt.Errorf("history: %s is not a file", path)
	}
	text, err := readEnd(path, info.Size(), historyBytes)
	if err != nil {
		return nil, fmt.Errorf("history: %w", err)
	}
	for line := range strings.Lines(text) {
		if entry := strings.TrimRight(line, "\n"); keepable(entry) {
			h.entries = append(h.entries, entry)
		}
	}
	h.entries = h.entries[max(0, len(h.entries)-historyEntries):]
	if info.Size() > historyBytes {
		if err := h.rewrite(); err != nil {
			return nil, fmt.Errorf("history: %w", err)
		}
	}
	return h, nil
}

// readEnd reads the last bytes of a file.
func readEnd(path string, size, most int64) (string, error) {
	f, err := os.Open(path)
	if err != nil {
		return "", err
	}
	defer f.Close()
	text := make([]byte, min(size, most))
	n, err := f.ReadAt(text, size-int64(len(text)))
	if n < len(text) {
		return "", err
	}
	return string(text), nil
}

func (h *historyFile) rewrite() error {
	f, err := os.CreateTemp(filepath.Dir(h.path), "history-") // mode 0600
	if err != nil {
		return err
	}
	_, err = f.WriteString(strings.Join(h.entries, "\n") + "\n")
	if err = errors.Join(err, f.Close()); err == nil {
		err = os.Rename(f.Name(), h.path)
	}
	if err != nil {
		return errors.Join(err, os.Remove(f.Name()))
	}
	return nil
}

// add appends an entry. A history that cannot be written does not stop anybody from working: the entry is lost.
func (h *historyFile) add(entry string) {
	if !keepable(entry) {
		return
	}
	f, err := os.OpenFile(h.path, os.O_WRONLY|os.O_APPEND|os.O_CREATE, 0o600)
	if err != nil {
		return
	}
	defer f.Close()
	f.WriteString(entry + "\n")
}

// keepable says whether an entry can be shown again on one line.
func keepable(entry string) bool {
	return entry != "" && len(entry) <= historyEntry && utf8.ValidString(entry) && strings.IndexFunc(entry, unicode.IsControl) < 0
}

// remember gives what was typed to the editor's history, but for what begins with a space. A statement of several lines becomes one
// line; where that would change it, its lines are kept one by one.
func remember(e editor, typed string) {
	typed = strings.TrimRight(typed, " \t\n")
	if typed == "" || typed[0] == ' ' {
		return
	}
	if entry, ok := onOneLine(typed); ok {
		e.remember(entry)
		return
	}
	for line := range strings.Lines(typed) {
		if line = strings.TrimRight(line, "\n"); line != "" {
			e.remember(line)
		}
	}
}

// onOneLine writes a statement on one line; false when a line break in it means something: in quotes, or after a comment.
func onOneLine(sql string) (string, bool) {
	var out strings.Builder
	for i := 0; i < len(sql); {
		rest := sql[i:]
		length := 1
		switch {
		case rest[0] == '\n':
			out.WriteByte(' ')
			i++
			continue
		case strings.HasPrefix(rest, "--"):
			if strings.Contains(rest, "\n") {
				return "", false
			}
			length = len(rest)
		case strings.HasPrefix(rest, "/*"):
			if end := strings.Index(rest[2:], "*/"); end >= 0 {
				length = end + 4
			}
		default:
			length = quotedLength(rest)
		}
		if length == 0 || strings.Contains(rest[:length], "\n") {
			return "", false
		}
		out.WriteString(rest[:length])
		i += length
	}
	return out.String(), true
}
