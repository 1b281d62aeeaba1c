package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"strings"

	"pgmirror/mirror"
)

// reportVerification prints the answer and judges it.
func (a *app) reportVerification(answer []byte, asJSON bool) error {
	var report mirror.VerifyReport
	if err := json.Unmarshal(answer, &report); err != nil {
		return cannotRun(fmt.Errorf("read the answer: %w", err))
	}
	if asJSON {
		if err := a.print(append(answer, '\n')); err != nil {
			return err
		}
	} else {
		var b strings.Builder
		if err := verifyTable(&report).writeTo(&b); err != nil {
			return cannotRun(err)
		}
		for i := range report.Tables {
			b.WriteString(differenceText(&report.Tables[i]))
		}
		if err := a.print([]byte(b.String())); err != nil {
			return err
		}
	}
	return verdict(&report)
}

func verifyTable(report *mirror.VerifyReport) *textTable {
	t := &textTable{}
	t.column("table", false)
	t.column("source rows", true)
	t.column("mirror rows", true)
	title := "at " + report.LSN
	if report.Sample > 0 {
		title += fmt.Sprintf(", %v %% of the rows", report.Sample)
	}
	t.column(title, false)
	for _, table := range report.Tables {
		outcome := table.Outcome
		if table.Reason != "" {
			outcome += ": " + table.Reason
		}
		if table.Nulled > 0 {
			outcome += fmt.Sprintf(", with %s held as NULL (on_unrepresentable: null)", plural(int(table.Nulled), "value"))
		}
		source, ours := count(table.SourceRows), count(table.MirrorRows)
		if table.Outcome != mirror.VerifyEqual && table.Outcome != mirror.VerifyDifferent {
			source, ours = "", ""
		}
		t.row(table.Name, source, ours, outcome)
	}
	return t
}

// differenceText names a table's differing keys, one a line; empty when there are none.
func differenceText(table *mirror.VerifyTable) string {
	if len(table.Differences) == 0 {
		return ""
	}
	var b strings.Builder
	fmt.Fprintf(&b, "\n%s differs in:\n", oneLine(table.Name))
	for _, d := range table.Differences {
		fmt.Fprintf(&b, "  %s: %s\n", oneLine(d.Key), oneLine(describeDifference(d)))
	}
	if table.More {
		b.WriteString("  and other keys\n")
	}
	return b.String()
}

func describeDifference(d mirror.VerifyDifference) string {
	switch {
	case len(d.Columns) > 0:
		return "other values in " + strings.Join(d.Columns, ", ")
	case d.MirrorRows == 0:
		return "missing in the mirror"
	case d.SourceRows == 0:
		return "not on the source"
	case d.SourceRows == d.MirrorRows:
		return "other values"
	}
	return fmt.Sprintf("%s on the source, %s in the mirror", rowCount(d.SourceRows), rowCount(d.MirrorRows))
}

func rowCount(n int) string {
	if n == 1 {
		return "1 row"
	}
	return fmt.Sprintf("%d rows", n)
}

// verdict is nil when every table was compared and is equal. A finding counts before a table that was not compared; an outcome
// that this version does not know is a finding.
func verdict(report *mirror.VerifyReport) error {
	findings, skipped := 0, 0
	for _, table := range report.Tables {
		switch table.Outcome {
		case mirror.VerifyEqual:
		case mirror.VerifySkipped:
			if !table.Gone {
				skipped++
			}
		default:
			findings++
		}
	}
	switch {
	case findings > 0:
		return finding(fmt.Errorf("the mirror differs from the source: %d of %d tables are not equal", findings, len(report.Tables)))
	case skipped > 0:
		return cannotRun(errors.New("not every table could be compared"))
	}
	return nil
}
