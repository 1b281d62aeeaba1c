package main

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"pgmirror/pgcdc"
)

// fakeDuckDB puts a program called duckdb alone on the PATH, with the shell that it is written for. Its iceberg extension is
// installed once the file in $ICEBERG exists.
func fakeDuckDB(t *testing.T, version string) {
	t.Helper()
	dir := t.TempDir()
	script := `#!/bin/sh
case "$*" in
*"INSTALL iceberg"*) : > "$ICEBERG";;
*duckdb_extensions*) [ -e "$ICEBERG" ] && extension=9fd0a5d; echo "` + version + `,$extension";;
*) exit 1;;
esac
`
	if err := os.WriteFile(filepath.Join(dir, "duckdb"), []byte(script), 0o700); err != nil {
		t.Fatal(err)
	}
	t.Setenv("ICEBERG", filepath.Join(dir, "iceberg"))
	t.Setenv("PATH", dir)
}

// A duckdb on the PATH that is too old for the committed tables, or lacks the extension, is a note; the printed command repairs
// the second.
func TestCheckDuckDB(t *testing.T) {
	look := func() (string, duckDBs) {
		t.Helper()
		found, err := findDuckDBs(t.Context())
		if err == nil && found.Embedded != "v1.5.6" {
			t.Errorf("embedded %s", found.Embedded)
		}
		return checkText(&pgcdc.CheckReport{Findings: duckDBFindings(found, err)}, found), found
	}
	t.Setenv("PATH", t.TempDir())
	if out, _ := look(); strings.Contains(out, "[duckdb]") || !strings.Contains(out, "DuckDB v1.5.6 in pgmirror") {
		t.Errorf("without one: %s", out)
	}
	for version, want := range map[string]string{
		"v1.5.2": "it is v1.5.2 [", "v1.4.9": "it is v1.4.9 [", "v0.10.0": "it is v0.10.0 [", "v1.5.3-dev7": "without the iceberg extension", "v1.5.3": "without the iceberg extension",
		"v2.0.0": "without the iceberg extension", "v1.6.0": "without the iceberg extension", "1.5.3": "does not tell its version", "v1.5": "does not tell its version", "v1.5.x": "does not tell its version",
	} {
		fakeDuckDB(t, version)
		if out, _ := look(); !strings.Contains(out, want) || !strings.Contains(out, "0 errors, 0 warnings, 1 note") {
			t.Errorf("%s: %s", version, out)
		}
	}
	fakeDuckDB(t, "v1.5.6")
	out, _ := look()
	var fix string
	for _, line := range findings(out)["duckdb"] {
		if pasted, ok := strings.CutPrefix(line, "    "); ok {
			fix = pasted
		}
	}
	if text, err := exec.Command("/bin/sh", "-c", fix).CombinedOutput(); err != nil {
		t.Fatalf("%q: %v %s", fix, err, text)
	}
	out, found := look()
	if strings.Contains(out, "[duckdb]") || found.Iceberg != "9fd0a5d" || !strings.Contains(out, "duckdb on the PATH v1.5.6 with iceberg 9fd0a5d") {
		t.Errorf("after the fix: %s", out)
	}
}
