package main

import (
	"errors"
	"os"
	"strings"
	"testing"

	"pgmirror/mirror"
)

// verify's exit code follows from its answer.
func TestVerdict(t *testing.T) {
	for outcomes, want := range map[string]int{
		"": exitOK, "equal": exitOK, "equal equal": exitOK, "equal different": exitFinding, "failed equal": exitFinding, "equal skipped": exitCannotRun,
		"equal damaged": exitFinding, "skipped different": exitFinding, "puzzling": exitFinding,
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

// Each kind of difference is said in words, and control characters of a key do not reach the terminal.
func TestVerifyReport(t *testing.T) {
	var out strings.Builder
	a := &app{program: program{stdout: &out}}
	err := a.reportVerification([]byte(`{"lsn":"0/5","sample":0.5,"tables":[
		{"name":"public.a","outcome":"equal","source_rows":1200,"mirror_rows":1200},
		{"name":"public.b","outcome":"different","reason":"the values differ","source_rows":7,"mirror_rows":7,"more":true,"differences":[
			{"key":"id=1","source_rows":1,"mirror_rows":1,"columns":["total","note"]},
			{"key":"id=2","source_rows":1,"mirror_rows":0},
			{"key":"id=3","source_rows":0,"mirror_rows":1},
			{"key":"id=4","source_rows":1,"mirror_rows":2},
			{"key":"id=5","source_rows":2,"mirror_rows":2},
			{"key":"t=\u001b[2J","source_rows":2,"mirror_rows":1}]},
		{"name":"public.c","outcome":"damaged","reason":"warehouse file is damaged: x.parquet"},
		{"name":"public.d","outcome":"skipped","reason":"being copied"}]}`), false)
	if err == nil || !strings.Contains(err.Error(), "2 of 4 tables") {
		t.Errorf("the verdict is %v", err)
	}
	want := `table     source rows  mirror rows  at 0/5, 0.5 % of the rows
────────  ───────────  ───────────  ─────────────────────────────────────────────
public.a        1,200        1,200  equal
public.b            7            7  different: the values differ
public.c                            damaged: warehouse file is damaged: x.parquet
public.d                            skipped: being copied

public.b differs in:
  id=1: other values in total, note
  id=2: missing in the mirror
  id=3: not on the source
  id=4: 1 row on the source, 2 rows in the mirror
  id=5: other values
  t= [2J: 2 rows on the source, 1 row in the mirror
  and other keys
`
	if out.String() != want {
		t.Errorf("it prints\n%s\nwant\n%s", out.String(), want)
	}
}

// A wrong sample or patience is wrong usage; without a running mirror verify says what it lacks, and finds nothing to compare
// where there is none.
func TestVerifyRefuses(t *testing.T) {
	t.Chdir(t.TempDir())
	mustCreate(t, "data")
	for args, want := range map[string]struct {
		code int
		errs string
	}{
		"verify --data data --sample 0":                         {exitUsage, "not a percentage"},
		"verify --data data --sample 101%":                      {exitUsage, "not a percentage"},
		"verify --data data --sample NaN":                       {exitUsage, "not a percentage"},
		"verify --data data --sample few":                       {exitUsage, "not a percentage"},
		"verify --data data --patience 0s":                      {exitUsage, "not between"},
		"verify --data absent --source postgres://h/d":          {exitCannotRun, "there is no mirror in"},
		"verify --data data --source postgres://h/d":            {exitCannotRun, "never finished"},
		"verify --data data --source postgres://h/d --sample 1": {exitCannotRun, "never finished"},
	} {
		var out, errs strings.Builder
		code := execute(t.Context(), strings.Fields(args), program{stdin: strings.NewReader(""), stdout: &out, stderr: &errs})
		if code != want.code || !strings.Contains(errs.String(), want.errs) || out.Len() > 0 {
			t.Errorf("%q: exit code %d, %s%s", args, code, errs.String(), out.String())
		}
	}
	if _, err := os.Stat("absent"); err == nil {
		t.Error("verify made a data directory")
	}
}

// Progress that is no document, from a run of another version, is shown as it is; steps need a terminal or a file.
func TestVerifyProgress(t *testing.T) {
	var errs strings.Builder
	v := newVerifyProgress(&errs)
	v.line("public.t: equal")
	v.line(`{"step":"compare public.t","done":5,"total":10,"unit":"rows"}`)
	v.line("{\"notice\":\"process 7\\u001b waits\"}")
	v.end()
	if want := "public.t: equal\nprocess 7  waits\n"; errs.String() != want {
		t.Errorf("it shows %q, want %q", errs.String(), want)
	}
}
