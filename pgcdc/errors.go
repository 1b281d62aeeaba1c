package pgcdc

import (
	"errors"
	"fmt"
)

var (
	// ErrProtocol says that bytes from the server do not have the form that its documentation gives them.
	ErrProtocol = errors.New("malformed data from the server")
	// ErrUnrepresentable says that a value is a legal one of its type, but not one that the mirror's type can hold.
	ErrUnrepresentable = errors.New("value cannot be represented")
)

// UnrepresentableError is a value that the mirror's type cannot hold. errors.Is(err, ErrUnrepresentable) finds it.
// It never contains the value.
type UnrepresentableError struct {
	Type   string // the column's type as format_type prints it; for a list element the element's
	Reason string
}

func (e *UnrepresentableError) Error() string {
	return fmt.Sprintf("%s value cannot be represented: %s", e.Type, e.Reason)
}

// Is reports whether target is ErrUnrepresentable.
func (e *UnrepresentableError) Is(target error) bool { return target == ErrUnrepresentable }

// malformedf makes an ErrProtocol. Its arguments never include row values.
func malformedf(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrProtocol, fmt.Sprintf(format, args...))
}
