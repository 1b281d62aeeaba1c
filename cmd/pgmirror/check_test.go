package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"pgmirror/pgcdc"
)

// A source that cannot be asked is exit code 3, a command line without a publication 2, and no password is shown.
func TestCheckCannotAsk(t *testing.T) {
	for _, c := range []struct {
		args string
		code int
		want string
	}{
		{"check --source postgres://u:s3cr3t@127.0.0.1:1/d --publication p", exitCannotRun, "refused"},
		{"check --source postgres://u:s3cr3t@127.0.0.1:1/d", exitUsage, "publication is not set"},
		{"check --source postgres://u:s3cr3t@127.0.0.1:1/d --publication p,p", exitUsage, "twice"},
	} {
		var out strings.Builder
		code := execute(t.Context(), append(strings.Fields(c.args), "--data", t.TempDir()), program{stdout: &out, stderr: &out})
		if code != c.code || !strings.Contains(out.String(), c.want) || strings.Contains(out.String(), "s3cr3t") {
			t.Errorf("%s: exit code %d: %s", c.args, code, out.String())
		}
	}
}

// The report lists findings by level, says what to paste where, and keeps control characters off the terminal.
func TestCheckText(t *testing.T) {
	report := &pgcdc.CheckReport{Version: "15.18", Database: "shop", Role: "mirror", Provider: "Neon", Findings: []pgcdc.Finding{
		{Level: pgcdc.LevelNote, Check: "n", Object: "o1", Problem: "p1", Why: "w1", Fix: pgcdc.Fix{Advice: "do it"}},
		{Level: pgcdc.LevelError, Check: "e", Object: "o\x1b[2J2", Problem: "p2", Why: "w2", Fix: pgcdc.Fix{SQL: []string{"S1;", "S2;"}, Restart: true, Config: []string{"k: v"}, Shell: []string{"cmd"}, Advice: "mind"}},
	}}
	want := `database shop as role mirror: PostgreSQL 15.18 on Neon
DuckDB v1.2.3 in pgmirror; duckdb on the PATH v1 

ERRORS

o [2J2: p2 [e]
  why: w2
  fix (SQL, as superuser or owner, in database shop):
    S1;
    S2;
  then restart the server
  fix (line of mirror.yaml):
    k: v
  fix (shell):
    cmd
  note: mind

NOTES

o1: p1 [n]
  why: w1
  fix: do it

1 error, 0 warnings, 1 note
`
	if got := checkText(report, duckDBs{Embedded: "v1.2.3", Installed: "v1\x1b"}); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// The JSON document has a list also when nothing was found.
func TestCheckDocument(t *testing.T) {
	text, err := checkDocument(&pgcdc.CheckReport{Version: "15.18", Database: "d", Role: "r"}, duckDBs{Embedded: "v1.2.3"})
	if err != nil {
		t.Fatal(err)
	}
	var document map[string]any
	if err := json.Unmarshal(text, &document); err != nil {
		t.Fatal(err)
	}
	if list, ok := document["findings"].([]any); !ok || len(list) != 0 || document["errors"] != 0.0 || document["database"] != "d" {
		t.Errorf("%s", text)
	}
}

// Space is looked for where the directory would be made, and found wanting only when the tables are larger.
func TestCheckDisk(t *testing.T) {
	free, err := freeBytes(filepath.Join(t.TempDir(), "not", "there"))
	if err != nil || free == 0 {
		t.Fatalf("%d bytes, %v", free, err)
	}
	if _, found := diskFinding("/d", 100<<20, 100<<20); found {
		t.Error("enough is found too little")
	}
	f, found := diskFinding("/d", 100<<20, 101<<20)
	if !found || f.Level != pgcdc.LevelWarning || !strings.Contains(f.Problem, "100 MiB are free there; the tables take 101 MiB") {
		t.Errorf("%v %+v", found, f)
	}
	mirrored := t.TempDir()
	if err := os.WriteFile(filepath.Join(mirrored, "catalog.db"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if f, found := diskFinding(mirrored, 100<<20, 101<<20); found {
		t.Errorf("tables that are copied already: %+v", f)
	}
}

// The slot of the mirror that runs on the data directory is ours; another name, or no mirror, is not.
func TestSlotIsOurs(t *testing.T) {
	data := serveFake(t, &fakeProvider{})
	if !slotIsOurs(t.Context(), data, "pgmirror_shop") || slotIsOurs(t.Context(), data, "pgmirror_other") || slotIsOurs(t.Context(), t.TempDir(), "pgmirror_shop") {
		t.Error("the slot is taken for another's, or another's for ours")
	}
}
