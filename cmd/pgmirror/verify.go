package main

import (
	"encoding/json"
	"errors"
	"fmt"

	"github.com/spf13/cobra"

	"pgmirror/mirror"
)

func (a *app) verifyCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "verify [TABLE…]",
		Short: "Compare the mirror with the source, row counts and checksums",
		Long: `verify waits until everything committed on the source is visible, then compares each table's row count and an order-free
checksum of all its values. Exit code 1 is a difference, or a table that has failed; 3 means that a table changed while it
was compared, so that nothing can be said: try again while nothing writes to it.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			answer, err := a.call(cmd.Context(), "verify", mirror.VerifyRequest{Tables: args})
			if err != nil {
				return err
			}
			return a.reportVerification(answer, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the JSON document")
	return cmd
}

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
	} else if err := verifyTable(&report).writeTo(a.stdout); err != nil {
		return cannotRun(err)
	}
	return verdict(&report)
}

func verifyTable(report *mirror.VerifyReport) *textTable {
	t := &textTable{}
	t.column("table", false)
	t.column("source rows", true)
	t.column("mirror rows", true)
	t.column("at "+report.LSN, false)
	for _, table := range report.Tables {
		outcome := table.Outcome
		if table.Reason != "" {
			outcome += ": " + table.Reason
		}
		source, ours := count(table.SourceRows), count(table.MirrorRows)
		if table.Outcome == "failed" {
			source, ours = "", ""
		}
		t.row(table.Name, source, ours, outcome)
	}
	return t
}

// verdict is nil when every table was compared and is equal. A difference counts before a table that moved; an outcome that
// this version does not know counts as a difference.
func verdict(report *mirror.VerifyReport) error {
	different, moved := false, false
	for _, table := range report.Tables {
		switch table.Outcome {
		case "equal":
		case "moved":
			moved = true
		default:
			different = true
		}
	}
	switch {
	case different:
		return finding(errors.New("the mirror differs from the source, or a table has failed"))
	case moved:
		return cannotRun(errors.New("a table changed while it was compared: try again while nothing writes to it"))
	}
	return nil
}
