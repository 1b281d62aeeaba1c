package mirror

import (
	"errors"

	"pgmirror/readstate"
)

// machineError is a fault of the machine (too many open files, a disk that does not answer), not of a table's content: it ends
// the mirror, which recovers at the next start, instead of failing the table for good.
type machineError struct{ err error }

func (e *machineError) Error() string { return e.err.Error() }
func (e *machineError) Unwrap() error { return e.err }

var (
	// ErrOutsideWindow: the LSN asked for cannot be read any more, or not yet.
	ErrOutsideWindow = readstate.ErrOutsideWindow
	// ErrRefused: the mirror and its source do not belong together (any more); the text says why and what to do.
	ErrRefused = errors.New("refused")
	// ErrNotConnected: the command needs the source, which cannot be reached now.
	ErrNotConnected = errors.New("not connected to the source")
	// errPanicked: a fault of pgmirror's own in a command that only reads; the mirror goes on.
	errPanicked = errors.New("a fault of pgmirror itself, which its log describes; the mirror goes on")
	// ErrStopped: the mirror has ended.
	ErrStopped = errors.New("the mirror has stopped")
)
