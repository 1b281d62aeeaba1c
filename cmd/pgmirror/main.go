package main

import (
	"context"
	"fmt"
	"io"
	"os"

	"github.com/spf13/cobra"
)

func main() {
	os.Exit(execute(context.Background(), os.Args[1:], program{
		stdin: os.Stdin, stdout: os.Stdout, stderr: os.Stderr, environ: os.Environ(),
	}))
}

// program is what a command touches of its process.
type program struct {
	stdin          io.Reader
	stdout, stderr io.Writer
	environ        []string
}

// execute runs one command line and returns the exit code.
func execute(ctx context.Context, args []string, p program) int {
	root := p.rootCommand()
	root.SetArgs(args)
	return exitCode(root.ExecuteContext(ctx), p.stderr)
}

// app is what the commands share: the process and the flags that all of them have.
type app struct {
	program
	configFile string
	flags      flagValues
}

func (a *app) settings() (*settings, error) { return loadSettings(a.configFile, a.environ, a.flags) }

func (p program) rootCommand() *cobra.Command {
	a := &app{program: p, flags: flagValues{}}
	root := &cobra.Command{
		Use:   "pgmirror",
		Short: "A live mirror of PostgreSQL in Apache Iceberg that DuckDB queries the moment a commit lands",
		Long: `pgmirror keeps an exact, live copy of a PostgreSQL publication in Apache Iceberg tables and lets DuckDB query it
together with what is still in memory.

Every setting is a flag, a PGMIRROR_ variable or a line of the config file (mirror.yaml); the first named wins.
Exit codes: 0 ok; 1 a finding, a difference or failed SQL; 2 wrong usage; 3 cannot run.`,
		SilenceErrors: true,
		SilenceUsage:  true,
	}
	root.Version = versionText()
	root.SetVersionTemplate("{{.Version}}\n")
	root.SetFlagErrorFunc(func(cmd *cobra.Command, err error) error {
		return usage(fmt.Errorf("%w\nRun '%s --help' for its flags.", err, cmd.CommandPath()))
	})
	root.SetIn(p.stdin)
	root.SetOut(p.stdout)
	root.SetErr(p.stderr)
	root.CompletionOptions.HiddenDefaultCmd = true
	root.PersistentFlags().StringVar(&a.configFile, "config", "", "config file (default ./"+defaultConfig+", if there)")
	root.AddCommand(a.commands()...)
	return root
}

// commands lists all of them; each has the flags of the settings it uses.
func (a *app) commands() []*cobra.Command {
	all := []*cobra.Command{
		a.runCommand(),
		a.sqlCommand(),
		a.statusCommand(),
		a.checkpointCommand(),
		a.checkCommand(),
		a.verifyCommand(),
		a.resyncCommand(),
		a.compactCommand(),
		a.expireCommand(),
		a.forgetCommand(),
		a.inspectCommand(),
		a.dropCommand(),
		a.versionCommand(),
	}
	for _, cmd := range all {
		if cmd.Name() != "version" {
			bindSettings(cmd, a.flags, "data", "log_level", "log_format")
		}
	}
	return all
}
