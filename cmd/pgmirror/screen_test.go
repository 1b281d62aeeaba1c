package main

import (
	"fmt"
	"math"
	"strings"
	"testing"
	"time"
	"unicode/utf8"
)

const exampleStatus = `{"state":"streaming","version":"v1","slot":"pgmirror_shop","publications":["shop"],"system_id":"7","timeline":1,
"source_lsn":"0/603","lag_bytes":1536,"lag_seconds":1.25,"slot_wal_status":"extended","on_unrepresentable":"null",
"received_lsn":"0/5","applied_lsn":"0/4","visible_lsn":"0/3","durable_lsn":"0/2","acknowledged_lsn":"0/1","catalog_lsn":"0/6","window_floor_lsn":"0/7",
"last_commit_time":"2026-01-02T03:04:05Z","freshness_seconds":0.0042,"slot_retained_bytes":1536,"readers":2,"settled_readers":1,"settled_bytes":2048,
"memory":{"batches_bytes":1048576,"limit_bytes":1073741824},
"tables":[{"name":"public.orders","state":"streaming","rows":1234567,"files":3,"vectors":2,"bytes":123456789,"memory_rows":42,"deleted_rows":7,"unrepresentable":2,"types":{"price":"decimal(18,4)","matrix":"text"}},
{"name":"public.bad\u001b[2Jname","state":"failed","error":"the column changed","error_lsn":"0/9","error_key":"id=5","error_column":"v","remedy":"drop and copy again"},
{"name":"public.log","state":"streaming","insert_only":true},{"name":"public.again","state":"resyncing","copied_rows":4321,"resync":"it was rewritten","resync_waits":"an older transaction"},
{"name":"public.away","state":"gone","error":"it was dropped","error_lsn":"0/8","durable_lsn":"0/7","remedy":"put it back"},{"name":"public.never","state":"gone","error_lsn":"0/8","durable_lsn":"0/0"}]}`

// The screen shows every watermark, every table and every fault, and nothing in it can move a terminal's cursor.
func TestStatusScreen(t *testing.T) {
	screen, err := statusScreen([]byte(exampleStatus))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"pgmirror v1: streaming\n", "received      0/5", "acknowledged  0/1", "lag                   1.5 KiB, 1.25s\n", "freshness             4.2ms, newest commit ", "1 MiB of 1 GiB", "open read states      2, 1 settled (2 KiB)\n", "3, 118 MiB, 2 deletion vectors",
		"public.orders", "1,234,567", "118 MiB", "insert only", "public.bad [2Jname: the column changed", "key: id=5", "remedy: drop and copy again", "resyncing (4,321 rows)", "public.again is copied: it was rewritten\n  waits: an older transaction", "2 values could not be represented", "public.orders: by the setting types: matrix text, price decimal(18,4)\n", "become NULL (on_unrepresentable)\n"} {
		if !strings.Contains(screen, want) {
			t.Errorf("%q is not in:\n%s", want, screen)
		}
	}
	if want := "\n\npublic.away is gone from the source since 0/8: read it with --at 0/7, or remove it with pgmirror forget\npublic.never is gone from the source since 0/8: remove it with pgmirror forget\n"; !strings.HasSuffix(screen, want) || strings.Count(screen, "public.away") != 1 {
		t.Errorf("not last and alone:%s\nin:\n%s", want, screen)
	}
	if strings.ContainsAny(screen, "\x1b\r\t") {
		t.Errorf("control characters are in:\n%q", screen)
	}
	for i, line := range strings.Split(screen, "\n") {
		if strings.HasSuffix(line, " ") {
			t.Errorf("line %d ends in space", i)
		}
	}
	for _, bad := range []string{"", "[]", "{", `{"tables": 3}`} {
		if _, err := statusScreen([]byte(bad)); err == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// A screen of few lines and columns has every line inside, and shows first what does not stream.
func TestFittedScreen(t *testing.T) {
	var many []string
	for i := range 100 {
		many = append(many, fmt.Sprintf(`{"name":"public.a_table_with_a_long_name_%02d","state":"streaming"}`, i))
	}
	document := strings.Replace(exampleStatus, `"tables":[`, `"tables":[`+strings.Join(many, ",")+",", 1)
	for _, size := range []screenSize{{80, 24}, {40, 24}, {120, 60}, {20, 10}, {1, 1}, {200, 1000}, {80, 0}, {0, 24}} {
		screen, err := fittedScreen([]byte(document), time.Date(2026, 1, 2, 3, 4, 15, 0, time.UTC), size)
		if err != nil {
			t.Fatal(err)
		}
		lines := strings.Split(strings.TrimSuffix(screen, "\n"), "\n")
		if size.height > 0 && len(lines) > size.height {
			t.Errorf("%+v: %d lines", size, len(lines))
		}
		for _, line := range lines {
			if n := utf8.RuneCountInString(line); size.width > 0 && n > size.width {
				t.Errorf("%+v: %d characters: %s", size, n, line)
			}
		}
		if size.width >= 80 && (!strings.Contains(screen, "public.bad [2Jname") || !strings.Contains(screen, "newest commit 10s ago")) {
			t.Errorf("%+v:\n%s", size, screen)
		}
		if size.height == 60 && !strings.Contains(screen, "\n… and 75 more tables\n") {
			t.Errorf("%+v:\n%s", size, screen)
		}
	}
}

// What each state says of the source.
func TestScreenStates(t *testing.T) {
	for change, want := range map[[2]string]string{
		{`"streaming","version"`, `"stopped","version"`}:                                                 "pgmirror is not running; this is what its last checkpoint left\n",
		{`"streaming","version"`, `"stopped","reason":"the first copy was not finished","version"`}:      "pgmirror is not running; the first copy was not finished\n",
		{`"streaming","version"`, `"reconnecting","reason":"no route","version"`}:                        "lag                   at least 1.5 KiB, 1.25s\n",
		{`"lag_bytes":1536`, `"lag_bytes":0`}:                                                            "lag                   none\n",
		{`"extended"`, `"unreserved"`}:                                                                   "1.5 KiB, about to be LOST",
		{`"checkpoint_seconds":0`, `"last_checkpoint":"2026-01-02T03:04:05Z","checkpoint_seconds":0`}:    "last checkpoint       10s ago\n",
		{`"slot_wal_status":"extended",`, ``}:                                                            "WAL kept by the slot  not known now\n",
		{`"checkpoint_seconds":0`, `"last_checkpoint":"2026-01-02T03:04:05Z","checkpoint_seconds":0.25`}: "last checkpoint       10s ago, took 250ms\n",
	} {
		document := strings.Replace(strings.Replace(exampleStatus, `"readers"`, `"checkpoint_seconds":0,"readers"`, 1), change[0], change[1], 1)
		screen, err := fittedScreen([]byte(document), time.Date(2026, 1, 2, 3, 4, 15, 0, time.UTC), screenSize{})
		if err != nil || !strings.Contains(screen, want) {
			t.Errorf("%v: %v\n%s", change, err, screen)
		}
	}
}

func TestHumanNumbers(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1 KiB", 1536: "1.5 KiB", 1 << 20: "1 MiB", 3 << 40: "3 TiB", 1 << 60: "1 EiB", 1<<20 - 1024: "0.999 MiB", 1020 << 30: "0.996 TiB", 990 << 30: "990 GiB", math.MaxInt64: "8 EiB"} {
		if got := size(n); got != want {
			t.Errorf("size(%d) = %q, want %q", n, got, want)
		}
	}
	for n, want := range map[int64]string{0: "0", 999: "999", 1000: "1,000", 1234567: "1,234,567", -1234: "-1,234", -123: "-123"} {
		if got := count(n); got != want {
			t.Errorf("count(%d) = %q, want %q", n, got, want)
		}
	}
}

// A document is shown with its plain members first and a table for each list, in the order in which it was written.
func TestWriteDocument(t *testing.T) {
	var b strings.Builder
	document := `{"table":"public.t","window_floor":"0/1","files":[{"path":"a.parquet","rows":10},{"path":"b.parquet","rows":9,"vector":true}],"notes":["x","y"],"empty":[]}`
	if err := writeDocument(&b, []byte(document)); err != nil {
		t.Fatal(err)
	}
	want := `table: public.t
window floor: 0/1
notes: x, y
empty: none

files: 2
path       rows  vector
─────────  ────  ──────
a.parquet    10
b.parquet     9  true
`
	if b.String() != want {
		t.Errorf("got\n%s\nwant\n%s", b.String(), want)
	}
	for _, bad := range []string{"", "[]", `{"a"`, `{"a":}`, "3"} {
		if writeDocument(&b, []byte(bad)) == nil {
			t.Errorf("%q was taken", bad)
		}
	}
}

// Before the first copy is done there is nothing to measure, and the screen says nothing of it.
func TestScreenBeforeTheCopy(t *testing.T) {
	screen, err := statusScreen([]byte(`{"state":"copying","version":"v1","slot":"s","publications":["p"],"system_id":"","timeline":0,"received_lsn":"","visible_lsn":"","memory":{},
"tables":[{"name":"public.t","state":"copying","copied_rows":4321}]}`))
	if err != nil {
		t.Fatal(err)
	}
	for _, not := range []string{"system", "timeline", "received", "window", "0 B of 0 B", "freshness"} {
		if strings.Contains(screen, not) {
			t.Errorf("%q is in:\n%s", not, screen)
		}
	}
	if !strings.HasPrefix(screen, "pgmirror v1: copying\nslot s, publication p\n\n") || !strings.Contains(screen, "copying (4,321 rows)") {
		t.Error(screen)
	}
}
