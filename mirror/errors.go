package mirror

import "errors"

var (
	// ErrOutsideWindow: the LSN asked for cannot be read any more, or not yet.
	ErrOutsideWindow = errors.New("outside the readable window")
	// ErrRefused: the mirror and its source do not belong together (any more); the text says why and what to do.
	ErrRefused = errors.New("refused")
	// ErrNotConnected: the command needs the source, which cannot be reached now.
	ErrNotConnected = errors.New("not connected to the source")
	// ErrStopped: the mirror has ended.
	ErrStopped = errors.New("the mirror has stopped")
)
