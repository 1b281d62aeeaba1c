package main

import (
	"errors"
	"strings"
	"testing"

	"pgmirror/mirror"
)

const exampleStatus = `{"state":"streaming","version":"v1","slot":"pgmirror_shop","publications":["shop"],"system_id":"7","timeline":1,
"received_lsn":"0/5","applied_lsn":"0/4","visible_lsn":"0/3","durable_lsn":"0/2","acknowledged_lsn":"0/1","catalog_lsn":"0/6","window_floor_lsn":"0/7",
"last_commit_time":"2026-01-02T03:04:05Z","freshness_seconds":0.0042,"slot_retained_bytes":1536,"readers":2,
"memory":{"batches_bytes":1048576,"limit_bytes":1073741824},
"tables":[{"name":"public.orders","state":"streaming","rows":1234567,"files":3,"bytes":123456789,"memory_rows":42,"deleted_rows":7,"unrepresentable":2},
{"name":"public.bad\u001b[2Jname","state":"failed","error":"the column changed","error_lsn":"0/9","error_key":"id=5","error_column":"v","remedy":"drop and copy again"},
{"name":"public.log","state":"streaming","insert_only":true}]}`

// The screen shows every watermark, every table and every fault, and nothing in it can move a terminal's cursor.
func TestStatusScreen(t *testing.T) {
	screen, err := statusScreen([]byte(exampleStatus))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{"pgmirror v1: streaming\n", "received      0/5", "acknowledged  0/1", "4.2ms", "1.5 KiB", "1 MiB of 1 GiB",
		"public.orders", "1,234,567", "118 MiB", "insert only", "public.bad [2Jname: the column changed", "key: id=5", "remedy: drop and copy again", "2 values could not be represented"} {
		if !strings.Contains(screen, want) {
			t.Errorf("%q is not in:\n%s", want, screen)
		}
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

func TestHumanNumbers(t *testing.T) {
	for n, want := range map[int64]string{0: "0 B", 1023: "1023 B", 1024: "1 KiB", 1536: "1.5 KiB", 1 << 20: "1 MiB", 3 << 40: "3 TiB", 1 << 60: "1.02e+03 PiB"} {
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

// verify's exit code follows from its answer.
func TestVerdict(t *testing.T) {
	for outcomes, want := range map[string]int{
		"": exitOK, "equal": exitOK, "equal equal": exitOK, "equal different": exitFinding, "failed equal": exitFinding, "equal moved": exitCannotRun,
		"moved different": exitFinding, "puzzling": exitFinding,
	} {
		report := &mirror.VerifyReport{}
		for _, outcome := range strings.Fields(outcomes) {
			report.Tables = append(report.Tables, mirror.VerifyTable{Name: "t", Outcome: outcome})
		}
		got := exitOK
		var coded *exitError
		if errors.As(verdict(report), &coded) {
			got = coded.code
		}
		if got != want {
			t.Errorf("%q: exit code %d, want %d", outcomes, got, want)
		}
	}
	a := &app{program: program{stdout: &strings.Builder{}}}
	if err := a.reportVerification([]byte(`[`), false); err == nil {
		t.Error("a broken answer was taken")
	}
}
