package main

import (
	"fmt"
	"strings"

	"pgmirror/pgcdc"
)

// checkText is the report for people: the findings by level, each with its fix. Control characters of names are replaced; the
// JSON form has them as they are.
func checkText(report *pgcdc.CheckReport, found duckDBs) string {
	var b strings.Builder
	fmt.Fprintf(&b, "database %s as role %s", oneLine(report.Database), oneLine(report.Role))
	if report.Version != "" {
		fmt.Fprintf(&b, ": PostgreSQL %s", oneLine(report.Version))
	}
	if report.Provider != "" {
		fmt.Fprintf(&b, " on %s", report.Provider)
	}
	fmt.Fprintf(&b, "\nDuckDB %s in pgmirror", found.Embedded)
	if found.Installed != "" {
		fmt.Fprintf(&b, "; duckdb on the PATH %s", oneLine(found.Installed))
	}
	if found.Iceberg != "" {
		fmt.Fprintf(&b, " with iceberg %s", oneLine(found.Iceberg))
	}
	b.WriteString("\n")
	var counts []string
	for _, level := range []pgcdc.Level{pgcdc.LevelError, pgcdc.LevelWarning, pgcdc.LevelNote} {
		findings := ofLevel(report, level)
		counts = append(counts, plural(len(findings), string(level)))
		if len(findings) == 0 {
			continue
		}
		fmt.Fprintf(&b, "\n%sS\n", strings.ToUpper(string(level)))
		for _, f := range findings {
			writeFinding(&b, f, report.Database)
		}
	}
	fmt.Fprintf(&b, "\n%s\n", strings.Join(counts, ", "))
	return b.String()
}

func writeFinding(b *strings.Builder, f pgcdc.Finding, database string) {
	fmt.Fprintf(b, "\n%s: %s [%s]\n", oneLine(f.Object), oneLine(f.Problem), f.Check)
	fmt.Fprintf(b, "  why: %s\n", oneLine(f.Why))
	writeFix(b, "SQL, as superuser or owner, in database "+oneLine(database), f.Fix.SQL)
	if f.Fix.Restart {
		b.WriteString("  then restart the server\n")
	}
	writeFix(b, "line of mirror.yaml", f.Fix.Config)
	writeFix(b, "shell", f.Fix.Shell)
	if f.Fix.Advice != "" {
		word := "fix"
		if len(f.Fix.SQL)+len(f.Fix.Config)+len(f.Fix.Shell) > 0 {
			word = "note"
		}
		fmt.Fprintf(b, "  %s: %s\n", word, oneLine(f.Fix.Advice))
	}
}

func writeFix(b *strings.Builder, where string, lines []string) {
	if len(lines) == 0 {
		return
	}
	fmt.Fprintf(b, "  fix (%s):\n", where)
	for _, line := range lines {
		fmt.Fprintf(b, "    %s\n", oneLine(line))
	}
}

func plural(n int, word string) string {
	if n == 1 {
		return "1 " + word
	}
	return fmt.Sprintf("%d %ss", n, word)
}
