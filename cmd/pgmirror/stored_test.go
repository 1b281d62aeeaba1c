package main

import (
	"context"
	"strings"
	"testing"

	"pgmirror/iceberg"
)

// dataWith makes a data directory whose last commit left a document and no table. An empty document is none.
func dataWith(t *testing.T, document string) string {
	dir := t.TempDir()
	if err := (&dataDir{path: dir}).format(); err != nil {
		t.Fatal(err)
	}
	w, err := iceberg.Open(context.Background(), iceberg.Config{Dir: dir})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	if _, err := w.Load(t.Context()); err != nil {
		t.Fatal(err)
	}
	if document == "" {
		return dir
	}
	if _, err := w.Commit(t.Context(), iceberg.Commit{Mirror: []byte(document), LSN: 10}); err != nil {
		t.Fatal(err)
	}
	return dir
}

// offline asks a data directory on which no mirror runs.
func offline(t *testing.T, dir, statement string) (code int, out, errs string) {
	var stdout, stderr strings.Builder
	code = execute(t.Context(), []string{"sql", "--data", dir, "--format", "csv", "-c", statement}, program{stdin: strings.NewReader(""), stdout: &stdout, stderr: &stderr})
	return code, stdout.String(), stderr.String()
}

// Before anything was copied, a statement over a table says so, and one over none works.
func TestSQLBeforeTheFirstCopy(t *testing.T) {
	for _, document := range []string{"", `{"format":1,"phase":"intent"}`} {
		dir := dataWith(t, document)
		if code, _, errs := offline(t, dir, "FROM orders"); code != exitFinding || !strings.Contains(errs, "nothing has been copied yet") {
			t.Errorf("%q: exit code %d, %s", document, code, errs)
		}
		if code, out, errs := offline(t, dir, "SELECT 1 AS one"); code != exitOK || out != "one\n1\n" {
			t.Errorf("%q: exit code %d, %s, %s", document, code, out, errs)
		}
	}
}

// The same for a directory whose first run did not come as far as the catalog.
func TestSQLWithoutCatalog(t *testing.T) {
	dir := t.TempDir()
	if err := (&dataDir{path: dir}).format(); err != nil {
		t.Fatal(err)
	}
	if code, _, errs := offline(t, dir, "FROM orders"); code != exitCannotRun || !strings.Contains(errs, "nothing has been copied yet") {
		t.Errorf("exit code %d, %s", code, errs)
	}
}

// A table that failed before anything of it was committed is listed, and says why it cannot be read.
func TestSQLOfTablesWithoutContent(t *testing.T) {
	dir := dataWith(t, `{"format":1,"phase":"streaming","tables":[
		{"name":{"schema":"public","name":"bad"},"state":"failed","failure":{"reason":"a box has no place in Iceberg","lsn":5}},
		{"name":{"schema":"app","name":"slow"},"state":"copying"}]}`)
	if code, out, errs := offline(t, dir, "SELECT schema_name, view_name FROM duckdb_views() WHERE NOT internal ORDER BY ALL"); code != exitOK || out != "schema_name,view_name\napp,slow\npublic,bad\n" {
		t.Errorf("exit code %d, %s, %s", code, out, errs)
	}
	for table, want := range map[string]string{"bad": "a box has no place in Iceberg", "app.slow": "is being copied"} {
		if code, _, errs := offline(t, dir, "FROM "+table); code != exitFinding || !strings.Contains(errs, want) {
			t.Errorf("%s: exit code %d, %s", table, code, errs)
		}
	}
}
