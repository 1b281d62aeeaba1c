package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/spf13/cobra"

	"pgmirror/mirror"
	"pgmirror/pgcdc"
	"pgmirror/readstate"
)

// checkLimit is how long a server may take over all questions, a table locked by somebody included.
const checkLimit = time.Minute

func (a *app) checkCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "check --source URL --publication NAME",
		Short: "Look for what would keep the mirror or its source from working, and say how to repair it",
		Long: `check asks the source about its settings, the role, the publications and their tables, the slot and open transactions,
and this machine about its disk and its DuckDB. It changes nothing. Each finding comes with its fix, ready to paste.

Exit code 1 means that there are errors: run would refuse to start, or a table would fail. 3 means that the source could not
be asked. Warnings and notes leave the exit code 0.`,
		Args: noArgs,
		RunE: func(cmd *cobra.Command, _ []string) error {
			s, err := a.settings()
			if err != nil {
				return err
			}
			return a.check(cmd.Context(), s, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the JSON document")
	bindSettings(cmd, a.flags, "source", "publication", "slot", "on_unrepresentable", "types", "partial_publish")
	return cmd
}

func (a *app) check(ctx context.Context, s *settings, asJSON bool) error {
	t, err := s.target()
	if err != nil {
		return err
	}
	if len(s.Publications) == 0 {
		return usage(errors.New("publication is not set: use --publication, PGMIRROR_PUBLICATION or the config file"))
	}
	source, err := openSource(s, t, "", nil, newLog(s, a.stderr))
	if err != nil {
		return usage(err)
	}
	defer source.Close()
	ctx, cancel := context.WithTimeoutCause(ctx, checkLimit, fmt.Errorf("the source did not answer all questions within %s", checkLimit))
	defer cancel()
	report, err := source.Check(ctx, pgcdc.CheckOptions{NullUnrepresentable: s.OnUnrepresentable == "null"})
	if err != nil {
		if ctx.Err() != nil {
			err = context.Cause(ctx)
		}
		return cannotRun(err)
	}
	if slotIsOurs(ctx, s.Data, t.slot) {
		report.Findings = slices.DeleteFunc(report.Findings, func(f pgcdc.Finding) bool { return f.Check == "slot_active" })
	}
	free, err := freeBytes(s.Data)
	if err != nil {
		return cannotRun(err)
	}
	if f, found := diskFinding(s.Data, free, report.TableBytes); found {
		report.Findings = append(report.Findings, f)
	}
	duckdbs, err := findDuckDBs(ctx)
	report.Findings = append(report.Findings, duckDBFindings(duckdbs, err)...)
	return a.reportCheck(report, duckdbs, asJSON)
}

// slotIsOurs says whether the mirror that runs on the data directory follows its source through the slot: then its being in use is as it should be.
func slotIsOurs(ctx context.Context, data, slot string) bool {
	client, err := readstate.Dial(ctx, data)
	if err != nil {
		return false
	}
	defer client.Close()
	document, err := client.Status(ctx)
	var status mirror.Status
	return err == nil && json.Unmarshal(document, &status) == nil && status.Slot == slot && status.State == "streaming"
}

// reportCheck prints the report and judges it.
func (a *app) reportCheck(report *pgcdc.CheckReport, found duckDBs, asJSON bool) error {
	text := []byte(checkText(report, found))
	if asJSON {
		var err error
		if text, err = checkDocument(report, found); err != nil {
			return cannotRun(err)
		}
	}
	if err := a.print(text); err != nil {
		return err
	}
	if len(ofLevel(report, pgcdc.LevelError)) > 0 {
		return finding(nil)
	}
	return nil
}

// checkDocument is the JSON form. A list without findings is [], never null.
func checkDocument(report *pgcdc.CheckReport, found duckDBs) ([]byte, error) {
	document := struct {
		pgcdc.CheckReport
		DuckDB   duckDBs `json:"duckdb"`
		Errors   int     `json:"errors"`
		Warnings int     `json:"warnings"`
		Notes    int     `json:"notes"`
	}{*report, found, len(ofLevel(report, pgcdc.LevelError)), len(ofLevel(report, pgcdc.LevelWarning)), len(ofLevel(report, pgcdc.LevelNote))}
	if document.Findings == nil {
		document.Findings = []pgcdc.Finding{}
	}
	text, err := json.MarshalIndent(document, "", "  ")
	if err != nil {
		return nil, fmt.Errorf("write the report: %w", err)
	}
	return append(text, '\n'), nil
}

func ofLevel(report *pgcdc.CheckReport, level pgcdc.Level) []pgcdc.Finding {
	var findings []pgcdc.Finding
	for _, f := range report.Findings {
		if f.Level == level {
			findings = append(findings, f)
		}
	}
	return findings
}
