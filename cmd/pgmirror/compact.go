package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"pgmirror/mirror"
)

func (a *app) compactCommand() *cobra.Command {
	var asJSON bool
	cmd := &cobra.Command{
		Use:   "compact [TABLE…]",
		Short: "Make few data files of many now, and leave deleted rows out",
		Long: `compact makes as few files as it can of a table's, or of every table's, without the rows that no reader sees any more, and commits the
result. The running mirror does it, as it does by itself when there are many files (setting compact); queries and writes go on. Files that older
snapshots name stay until those expire.`,
		RunE: func(cmd *cobra.Command, args []string) error {
			answer, err := a.call(cmd.Context(), "compact", mirror.CompactRequest{Tables: args})
			if err != nil {
				return err
			}
			if asJSON {
				return a.print(append(answer, '\n'))
			}
			var report mirror.CompactReport
			if err := json.Unmarshal(answer, &report); err != nil {
				return cannotRun(fmt.Errorf("read the answer: %w", err))
			}
			var text strings.Builder
			for _, t := range report.Tables {
				fmt.Fprintf(&text, "%s: %s, before %d", oneLine(t.Name), plural(t.After, "file"), t.Before)
				if t.Stalled > 0 {
					fmt.Fprintf(&text, "; changes waited for %.1f ms at most", 1000*t.Stalled)
				}
				if t.Waiting > 0 {
					fmt.Fprintf(&text, "; left alone for now, as a query, a .pin or history reads below their newest rows: %d", t.Waiting)
				}
				text.WriteByte('\n')
			}
			return a.print([]byte(text.String()))
		},
	}
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the JSON document")
	return cmd
}
