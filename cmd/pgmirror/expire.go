package main

import (
	"encoding/json"
	"fmt"
	"strings"

	"github.com/spf13/cobra"

	"pgmirror/mirror"
)

func (a *app) expireCommand() *cobra.Command {
	var asJSON bool
	var req mirror.ExpireRequest
	cmd := &cobra.Command{
		Use:   "expire",
		Short: "Take Iceberg snapshots out that are no longer kept, and delete files that nothing needs",
		Args:  noArgs,
		Long: `expire takes the snapshots out of all tables that the setting snapshots does not keep any more, and deletes the files of the warehouse that no
snapshot has named for longer than its grace period and that no query uses. The running mirror does it, as it does by itself all the time; queries and
writes go on.

With --orphans it also deletes files in the tables' directories that nothing ever named and that are older than the grace period. Files that are
being written or wait for a checkpoint, and files whose names pgmirror does not give, are left alone.`,
		RunE: func(cmd *cobra.Command, _ []string) error {
			answer, err := a.call(cmd.Context(), "expire", req)
			if err != nil {
				return err
			}
			if asJSON {
				return a.print(append(answer, '\n'))
			}
			var report mirror.ExpireReport
			if err := json.Unmarshal(answer, &report); err != nil {
				return cannotRun(fmt.Errorf("read the answer: %w", err))
			}
			return a.print([]byte(expireText(&report, req)))
		},
	}
	cmd.Flags().BoolVar(&req.DryRun, "dry-run", false, "only say what would go")
	cmd.Flags().BoolVar(&req.Orphans, "orphans", false, "delete files that nothing ever named too")
	cmd.Flags().BoolVar(&asJSON, "json", false, "print the JSON document")
	return cmd
}

func expireText(r *mirror.ExpireReport, req mirror.ExpireRequest) string {
	var b strings.Builder
	verb := ""
	if req.DryRun {
		verb = "would be "
	}
	for _, t := range r.Tables {
		fmt.Fprintf(&b, "%s: %s %sexpired, %d kept\n", oneLine(t.Name), plural(t.Expired, "snapshot"), verb, t.Kept)
	}
	fmt.Fprintf(&b, "%s %sdeleted, %d to be deleted later\n", plural(r.Deleted, "file"), verb, r.Waiting)
	if req.Orphans {
		for _, path := range r.Orphans {
			fmt.Fprintf(&b, "orphan: %s\n", oneLine(path))
		}
		fmt.Fprintf(&b, "%s %sdeleted\n", plural(len(r.Orphans), "orphan"), verb)
	}
	return b.String()
}
