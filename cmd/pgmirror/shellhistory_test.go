package main

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A statement of several lines becomes one line where that does not change it.
func TestOnOneLine(t *testing.T) {
	for sql, want := range map[string]string{
		"select 1;": "select 1;", "select\n1\n;": "select 1 ;", "select 'a;'\n;": "select 'a;' ;", "select 1 -- one": "select 1 -- one",
		"select /* a */\n1;": "select /* a */ 1;", "select 1 -- one\n;": "", "select 'a\nb';": "", "select $$\n$$;": "", "select /* a\n */ 1;": "",
		"select \"a\nb\";": "", "select 1 -\n- 1;": "select 1 - - 1;",
	} {
		got, ok := onOneLine(sql)
		if got != want || ok != (want != "") {
			t.Errorf("%q: got %q, %v", sql, got, ok)
		}
	}
}

type entries []string

func (*entries) read(string, string) (string, error) { return "", errLeave }
func (e *entries) remember(entry string)             { *e = append(*e, entry) }

// What begins with a space is not kept; a statement that must keep its lines is kept line by line.
func TestRemember(t *testing.T) {
	var e entries
	for _, typed := range []string{"select 1;", " select 2;", "", "select 3 -- x\n\n;", ".tables "} {
		remember(&e, typed)
	}
	if want := (entries{"select 1;", "select 3 -- x", ";", ".tables"}); !slices.Equal(e, want) {
		t.Errorf("got %q", e)
	}
}

// A history that was written comes back, without what could not be shown on a line; a large file is cut to its end.
func TestHistoryFile(t *testing.T) {
	path := filepath.Join(t.TempDir(), "state", "history")
	h, err := openHistory(path)
	if err != nil || len(h.entries) != 0 {
		t.Fatal(h, err)
	}
	for _, entry := range []string{"first", "a\nb", "\x1b[31m", "\xff", strings.Repeat("x", historyEntry+1), "last"} {
		h.add(entry)
	}
	if h, err = openHistory(path); err != nil || !slices.Equal(h.entries, []string{"first", "last"}) {
		t.Errorf("got %q, %v", h.entries, err)
	}
	var text strings.Builder
	for i := 0; text.Len() <= historyBytes; i++ {
		fmt.Fprintf(&text, "entry %d %s\n", i, strings.Repeat("y", 1000))
	}
	fmt.Fprintln(&text, "newest")
	if err := os.WriteFile(path, []byte(text.String()), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, err := openHistory(path); err != nil {
		t.Fatal(err)
	}
	if h, err = openHistory(path); err != nil || len(h.entries) != historyEntries || h.entries[historyEntries-1] != "newest" {
		t.Errorf("%d entries, %v", len(h.entries), err)
	}
	if info, err := os.Stat(path); err != nil || info.Size() > historyBytes/2 || info.Mode().Perm() != 0o600 {
		t.Errorf("the file is %v, %v", info, err)
	}
}

func TestHistoryPath(t *testing.T) {
	for _, c := range []struct{ state, home, want string }{
		{"/s", "/h", "/s/pgmirror/history"}, {"", "/h", "/h/.local/state/pgmirror/history"},
		{"relative", "/h", "/h/.local/state/pgmirror/history"}, {"", "", ""}, {"", "relative", ""},
	} {
		environ := map[string]string{"XDG_STATE_HOME": c.state, "HOME": c.home}
		if got := historyPath(func(name string) string { return environ[name] }); got != c.want {
			t.Errorf("%+v: got %q", c, got)
		}
	}
}
