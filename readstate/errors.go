package readstate

import (
	"context"
	"errors"
	"fmt"
)

// ErrNotRunning means that no mirror listens on the data directory's socket.
var ErrNotRunning = errors.New("no running pgmirror answers for this data directory")

// ErrInUse means that another process already listens on the data directory's socket.
var ErrInUse = errors.New("another process listens on the socket")

// ErrVersion means that client and server speak different versions of the protocol.
var ErrVersion = errors.New("the running pgmirror speaks another version of the read-state protocol; use the same pgmirror program for both")

// ErrProtocol means that the other side sent bytes that are not the protocol.
var ErrProtocol = errors.New("read-state protocol broken")

// ErrLost means that the connection to the running mirror ended; its pins are gone.
var ErrLost = errors.New("connection to the running pgmirror lost")

// ErrClosed means that Client.Close was called.
var ErrClosed = errors.New("read-state client closed")

// ErrReleased means that a State was used after its Release.
var ErrReleased = errors.New("read state released")

// ErrOutsideWindow means that the LSN or time asked for cannot be read any more, or not yet.
var ErrOutsideWindow = errors.New("not readable any more, or not yet")

// ErrEnded means that the mirror ended a State that held too much for too long.
var ErrEnded = errors.New("read state ended by the mirror")

// Codes of RemoteError.
const (
	codeTimeout  = "timeout"
	codeCanceled = "canceled"
	codeReleased = "released"
	codeOutside  = "outside"
	codeEnded    = "ended"
	codeOther    = "error"
)

// RemoteError is an error that the running mirror answered. errors.Is sees context.DeadlineExceeded, context.Canceled,
// ErrReleased, ErrOutsideWindow and ErrEnded through it.
type RemoteError struct {
	Code    string
	Message string
}

func (e *RemoteError) Error() string { return e.Message }

// Is tells whether the error had target's meaning in the mirror's process.
func (e *RemoteError) Is(target error) bool {
	switch e.Code {
	case codeTimeout:
		return target == context.DeadlineExceeded
	case codeCanceled:
		return target == context.Canceled
	case codeReleased:
		return target == ErrReleased
	case codeOutside:
		return target == ErrOutsideWindow
	case codeEnded:
		return target == ErrEnded
	}
	return false
}

func errorCode(err error) string {
	switch {
	case errors.Is(err, context.DeadlineExceeded):
		return codeTimeout
	case errors.Is(err, context.Canceled):
		return codeCanceled
	case errors.Is(err, ErrReleased):
		return codeReleased
	case errors.Is(err, ErrOutsideWindow):
		return codeOutside
	case errors.Is(err, ErrEnded):
		return codeEnded
	}
	return codeOther
}

func protocolErrorf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrProtocol, fmt.Sprintf(format, args...))
}
