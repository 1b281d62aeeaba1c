package main

import (
	"fmt"
	"runtime"
	"runtime/debug"

	"github.com/spf13/cobra"
)

// version is set by the linker: make build gives it what git describe says.
var version = "devel"

// commit is set by the linker: make build gives it what git rev-parse says, for the Go tool records it not in every clone.
var commit = ""

// revision is the commit of make build, or the one that the Go tool recorded, with + after it when files had changed; "unknown" outside a
// checkout.
func revision() string {
	if commit != "" {
		return commit
	}
	info, ok := debug.ReadBuildInfo()
	if !ok {
		return "unknown"
	}
	found, changed := "unknown", ""
	for _, s := range info.Settings {
		switch {
		case s.Key == "vcs.revision":
			found = s.Value
		case s.Key == "vcs.modified" && s.Value == "true":
			changed = "+"
		}
	}
	return found + changed
}

func (a *app) versionCommand() *cobra.Command {
	return &cobra.Command{
		Use:   "version",
		Short: "Print the version",
		Args:  noArgs,
		RunE: func(*cobra.Command, []string) error {
			fmt.Fprintln(a.stdout, versionText())
			return nil
		},
	}
}

func versionText() string {
	return fmt.Sprintf("pgmirror %s (commit %s, %s, %s/%s)", version, revision(), runtime.Version(), runtime.GOOS, runtime.GOARCH)
}
