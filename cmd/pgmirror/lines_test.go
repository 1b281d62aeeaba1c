package main

import (
	"io"
	"strings"
	"testing"
)

// A statement is complete when its semicolon is outside of everything quoted, and nothing follows it.
func TestComplete(t *testing.T) {
	for sql, want := range map[string]bool{
		"select 1;": true, "select 1": false, "": false, ";": true, "select 1; ": true, "select 1; -- done": true, "select 1; /* x */\n": true,
		"select ';": false, "select ';'": false, "select ';';": true, "select 'it''s;": false, "select 'it''s';": true, `select ";";`: true, `select ";`: false,
		"select $$;": false, "select $$;$$;": true, "select $a$;$$;$a$;": true, "select $a$;$b$;": false, "select $1;": true,
		"-- only;": false, "-- only;\nselect 1;": true, "/* ; */": false, "/* open ;": false, "select 1; select 2": false, "select 1; select 2;\n\n": true,
		"select 'a\nb;\n": false, "select 1 -- ;\n;": true, "select 1 -- ;": false,
	} {
		if got := complete(sql); got != want {
			t.Errorf("%q: got %v", sql, got)
		}
	}
}

// Any text ends in an answer.
func FuzzComplete(f *testing.F) {
	f.Add("select $a$;$a$ -- x\n;")
	f.Fuzz(func(t *testing.T, sql string) {
		if complete(sql) && !strings.Contains(sql, ";") {
			t.Errorf("%q has no semicolon", sql)
		}
	})
}

func TestLineReader(t *testing.T) {
	long := strings.Repeat("x", 100_000)
	lines := newLineReader(strings.NewReader("a\r\n\n" + long + "\nlast"))
	for _, want := range []string{"a", "", long, "last"} {
		if got, err := lines.next(); err != nil || got != want {
			t.Errorf("got %d bytes, %v; want %d", len(got), err, len(want))
		}
	}
	if _, err := lines.next(); err != io.EOF {
		t.Errorf("at the end: %v", err)
	}
}
