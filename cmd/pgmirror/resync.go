package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"pgmirror/mirror"
)

func (a *app) resyncCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "resync TABLE…",
		Short: "Copy tables again, as they are on the source now, while everything goes on",
		Long: `resync copies the named tables from a snapshot of the source, brings them up to date, and puts the new content in the old
one's place in one step. A healthy table goes on showing its old content, kept up to date, until then; a failed one comes back.
The running mirror does the work; when resync is interrupted, it goes on.

Exit code 1 means that a table cannot be copied, for a reason in itself.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			answer, err := a.call(cmd.Context(), "resync", mirror.ResyncRequest{Tables: args})
			if err != nil {
				return err
			}
			return a.reportResync(answer, asJSON)
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the JSON document")
	return cmd
}

func (a *app) reportResync(answer []byte, asJSON bool) error {
	var report mirror.ResyncReport
	if err := json.Unmarshal(answer, &report); err != nil {
		return cannotRun(fmt.Errorf("read the answer: %w", err))
	}
	var text strings.Builder
	failed := 0
	for _, t := range report.Tables {
		if t.Error != "" {
			failed++
			fmt.Fprintf(&text, "%s: %s\n", t.Name, oneLine(t.Error))
			continue
		}
		fmt.Fprintf(&text, "%s: %d rows, since %s\n", t.Name, t.Rows, t.LSN)
	}
	shown := []byte(text.String())
	if asJSON {
		shown = append(answer, '\n')
	}
	if err := a.print(shown); err != nil {
		return err
	}
	if failed > 0 {
		return finding(fmt.Errorf("%d of %d tables could not be copied", failed, len(report.Tables)))
	}
	return nil
}
