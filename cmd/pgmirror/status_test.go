package main

import (
	"fmt"
	"os"
	"reflect"
	"regexp"
	"strings"
	"testing"

	"pgmirror/mirror"
)

// The page on the document names exactly the fields that the document has, in their order.
func TestStatusDocument(t *testing.T) {
	page, err := os.ReadFile("../../docs/formats/status.md")
	if err != nil {
		t.Fatal(err)
	}
	sections := strings.Split(string(page), "\n## ")
	for i, document := range []any{mirror.Status{}, mirror.MemoryStatus{}, mirror.WrittenStatus{}, mirror.TableStatus{}} {
		var fields []string
		for f := range reflect.TypeOf(document).NumField() {
			name, options, _ := strings.Cut(reflect.TypeOf(document).Field(f).Tag.Get("json"), ",")
			if options == "omitempty" {
				name += " optional"
			}
			fields = append(fields, name)
		}
		var documented []string
		for _, row := range regexp.MustCompile("(?m)^\\| `([a-z_]+)` \\|([^|]*)\\|").FindAllStringSubmatch(sections[i], -1) {
			name := row[1]
			if strings.HasSuffix(strings.TrimSpace(row[2]), "optional") {
				name += " optional"
			}
			documented = append(documented, name)
		}
		if !reflect.DeepEqual(fields, documented) {
			t.Errorf("%T has\n%q, documented are\n%q", document, fields, documented)
		}
	}
}

// On a terminal the screen is drawn over itself, fits, follows the terminal's size, and Ctrl-C ends it with exit code 0.
func TestWatchOnTerminal(t *testing.T) {
	data := serveFake(t, &fakeProvider{})
	term := startTerminal(t, nil, "status", "--watch", "100ms", "--data", data)
	first := term.expect("\x1b[J")
	if !strings.HasPrefix(first, "\x1b[?25l\x1b[2J\x1b[H") || !strings.Contains(first, "pgmirror v1: streaming") || strings.Count(first, "\n") > 23 {
		t.Errorf("%q", first)
	}
	second := term.expect("\x1b[J")
	if !strings.HasPrefix(second, "\x1b[H") || strings.Contains(second, "\x1b[2J") {
		t.Errorf("%q", second)
	}
	term.resize(10, 40)
	term.expect("\n…\x1b[K")
	term.expect("\x1b[J")
	small := term.expect("\x1b[J")
	for _, line := range strings.Split(strings.ReplaceAll(small, "\x1b[K", ""), "\r\n") {
		if n := len([]rune(strings.TrimPrefix(line, "\x1b[H"))); n > 40 {
			t.Errorf("%d characters: %q", n, line)
		}
	}
	if strings.Count(small, "\n") > 9 {
		t.Errorf("%q", small)
	}
	term.keys("\x03")
	term.expect("\x1b[?25h")
	if code := term.exit(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
}

// Elsewhere each look is a block of its own, and with --json a line.
func TestWatchElsewhere(t *testing.T) {
	data := serveFake(t, &fakeProvider{})
	for _, c := range []struct{ flag, want string }{
		{"--watch=100ms", `(?s)^(\d{4}-\d\d-\d\d \d\d:\d\d:\d\d\npgmirror v1: streaming\n.*?\n\n){2}`},
		{"--json", `^(` + regexp.QuoteMeta(exampleStatus) + `\n){2}`},
	} {
		file, err := os.CreateTemp(t.TempDir(), "")
		if err != nil {
			t.Fatal(err)
		}
		defer file.Close()
		term := startTerminalTo(t, file, nil, "status", "--watch=100ms", c.flag, "--data", data)
		deadline := patient(t)
		for want := regexp.MustCompile(c.want); ; deadline() {
			text, err := os.ReadFile(file.Name())
			if err != nil {
				t.Fatal(err)
			}
			if strings.Contains(string(text), "\x1b") {
				t.Fatalf("%q", text)
			}
			if want.Match(text) {
				break
			}
		}
		term.keys("\x03")
		if code := term.exit(); code != exitOK {
			t.Errorf("%s: exit code %d", c.flag, code)
		}
	}
}

// A directory that is none, and a pause that is too short, are told.
func TestStatusRefused(t *testing.T) {
	for args, want := range map[string]string{
		"status --data " + t.TempDir(): "is no pgmirror data directory",
		"status --watch=1ms":           "shorter than",
		"status --watch=0s":            "shorter than",
		"status --watch=soon":          "invalid",
	} {
		var out strings.Builder
		if code := execute(t.Context(), strings.Fields(args), program{stdout: &out, stderr: &out}); code == exitOK || !strings.Contains(out.String(), want) {
			t.Errorf("%s: exit code %d, %s", args, code, fmt.Sprintf("%q", out.String()))
		}
	}
}
