package main

import (
	"errors"
	"fmt"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// noArgs refuses arguments, with what was probably meant.
func noArgs(cmd *cobra.Command, args []string) error {
	if len(args) == 0 {
		return nil
	}
	text := fmt.Sprintf("unexpected argument %q for %q", args[0], cmd.CommandPath())
	if cmd.Flags().Lookup("command") != nil {
		return fmt.Errorf("%s; SQL goes after -c", text)
	}
	cmd.Flags().Visit(func(f *pflag.Flag) {
		if f.NoOptDefVal != "" && f.Value.Type() != "bool" {
			text += fmt.Sprintf("; the value of --%s follows an equals sign: --%s=%s", f.Name, f.Name, args[0])
		}
	})
	return errors.New(text)
}
