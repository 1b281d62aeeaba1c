package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"pgmirror/mirror"
)

func (a *app) forgetCommand() *cobra.Command {
	var yes bool
	cmd := &cobra.Command{
		Use:   "forget TABLE…",
		Short: "Remove tables that the source does not publish any more",
		Long: `forget removes tables that are gone on the source, dropped or taken out of the publication, from the mirror, the catalog and
the warehouse: what they held last can then not be read any more. The running mirror does it. A table that is published is
refused; take it out of the publication first. One that comes back later is copied as a new one.`,
		Args: cobra.MinimumNArgs(1),
		RunE: func(cmd *cobra.Command, args []string) error {
			if !yes {
				if err := a.confirm(fmt.Sprintf("This removes the last content of %s here.\nGo on? Type yes: ", oneLine(strings.Join(args, ", ")))); err != nil {
					return err
				}
			}
			answer, err := a.call(cmd.Context(), "forget", mirror.ForgetRequest{Tables: args})
			if err != nil {
				return err
			}
			var report mirror.ForgetReport
			if err := json.Unmarshal(answer, &report); err != nil {
				return cannotRun(fmt.Errorf("read the answer: %w", err))
			}
			var text strings.Builder
			for _, name := range report.Tables {
				fmt.Fprintf(&text, "removed %s\n", oneLine(name))
			}
			return a.print([]byte(text.String()))
		},
	}
	cmd.Flags().BoolVar(&yes, "yes", false, "do not ask")
	return cmd
}
