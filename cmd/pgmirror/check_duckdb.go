package main

import (
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
	"time"

	"pgmirror/duckdb"
	"pgmirror/pgcdc"
)

// duckDBs is which DuckDBs a person here has: the one in this program, which pgmirror sql uses and which needs no extension, and
// the one that the PATH finds, with which the committed tables may be read.
type duckDBs struct {
	Embedded  string `json:"embedded"`            // v1.5.6
	Installed string `json:"installed,omitempty"` // of the duckdb on the PATH, if there is one
	Iceberg   string `json:"iceberg,omitempty"`   // of its iceberg extension, if that is installed
}

// firstWithVectors is the first DuckDB whose iceberg extension reads the deletion vectors of Iceberg v3.
var firstWithVectors = [3]int{1, 5, 3}

// askDuckDBLimit is long enough for a program of tens of megabytes to start from a slow disk.
const askDuckDBLimit = 5 * time.Second

// askDuckDB asks for versions alone: nothing is installed, loaded or fetched, and no start-up file is read.
const askDuckDB = "SELECT version(), coalesce(max(extension_version), '') FROM duckdb_extensions() WHERE extension_name = 'iceberg' AND installed"

// findDuckDBs looks at both. A duckdb that cannot be run or gives no sensible answer is an error.
func findDuckDBs(ctx context.Context) (duckDBs, error) {
	found := duckDBs{Embedded: duckdb.Version()}
	path, err := exec.LookPath("duckdb")
	if errors.Is(err, exec.ErrNotFound) {
		return found, nil
	}
	if err != nil {
		return found, err
	}
	ctx, cancel := context.WithTimeout(ctx, askDuckDBLimit)
	defer cancel()
	cmd := exec.CommandContext(ctx, path, "-init", "/dev/null", "-noheader", "-csv", "-c", askDuckDB)
	cmd.WaitDelay = time.Second
	out, err := cmd.Output()
	if err != nil {
		return found, fmt.Errorf("ask %s for its version: %w", path, err)
	}
	version, extension, ok := strings.Cut(strings.TrimSpace(string(out)), ",")
	if _, numbers := duckDBVersion(version); !ok || !numbers || len(extension) > 64 {
		return found, fmt.Errorf("ask %s for its version: the answer is not one", path)
	}
	found.Installed, found.Iceberg = version, strings.Trim(extension, `"`)
	return found, nil
}

// duckDBVersion reads v1.5.6, v1.5.6-dev12.
func duckDBVersion(text string) (version [3]int, ok bool) {
	text, ok = strings.CutPrefix(text, "v")
	text, _, _ = strings.Cut(text, "-")
	parts := strings.Split(text, ".")
	if !ok || len(parts) != len(version) {
		return version, false
	}
	for i, part := range parts {
		n, err := strconv.ParseUint(part, 10, 16)
		if err != nil {
			return version, false
		}
		version[i] = int(n)
	}
	return version, true
}

// duckDBFindings are about the duckdb on the PATH. pgmirror sql needs neither it nor an extension, so they are notes.
func duckDBFindings(found duckDBs, err error) []pgcdc.Finding {
	const why = "iceberg_scan over the committed tables needs DuckDB 1.5.3 or later, which reads Iceberg v3's deletion vectors, and its iceberg extension"
	note := func(problem string, fix pgcdc.Fix) []pgcdc.Finding {
		return []pgcdc.Finding{{Level: pgcdc.LevelNote, Check: "duckdb", Object: "duckdb on the PATH", Problem: problem, Why: why, Fix: fix}}
	}
	instead := "pgmirror sql needs none of it: it has DuckDB " + found.Embedded + " in it"
	if err != nil {
		return note("it does not tell its version: "+err.Error(), pgcdc.Fix{Advice: "install DuckDB 1.5.3 or later; " + instead})
	}
	if found.Installed == "" {
		return nil
	}
	version, _ := duckDBVersion(found.Installed)
	for i, least := range firstWithVectors {
		if version[i] > least {
			break
		}
		if version[i] < least {
			return note("it is "+found.Installed, pgcdc.Fix{Advice: "install DuckDB 1.5.3 or later; " + instead})
		}
	}
	if found.Iceberg == "" {
		return note("it is "+found.Installed+" without the iceberg extension", pgcdc.Fix{Shell: []string{`duckdb -c "INSTALL iceberg"`}, Advice: "this fetches it from extensions.duckdb.org; " + instead})
	}
	return nil
}
