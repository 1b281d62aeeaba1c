package main

import (
	"errors"
	"fmt"
	"io"
)

// The exit codes of every command.
const (
	exitOK        = 0
	exitFinding   = 1 // a finding, a difference, SQL that failed
	exitUsage     = 2 // the command line, environment or config file is wrong
	exitCannotRun = 3 // what the command needs is not there: the source, the data directory, a running pgmirror
)

// exitError carries the exit code with which the process ends. A nil err means that everything has been said already.
type exitError struct {
	code int
	err  error
}

func (e *exitError) Error() string {
	if e.err == nil {
		return fmt.Sprintf("exit code %d", e.code)
	}
	return e.err.Error()
}

func (e *exitError) Unwrap() error { return e.err }

func finding(err error) error   { return &exitError{exitFinding, err} }
func cannotRun(err error) error { return &exitError{exitCannotRun, err} }
func usage(err error) error     { return &exitError{exitUsage, err} }

// exitCode prints err for people and returns the process's exit code. An error without a code comes from the parsing of the
// command line: every command's own errors carry theirs.
func exitCode(err error, stderr io.Writer) int {
	if err == nil {
		return exitOK
	}
	var coded *exitError
	if !errors.As(err, &coded) {
		fmt.Fprintf(stderr, "pgmirror: %s\nRun 'pgmirror --help' for usage.\n", err)
		return exitUsage
	}
	if coded.err != nil {
		fmt.Fprintf(stderr, "pgmirror: %s\n", err)
	}
	return coded.code
}
