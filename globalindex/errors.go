package globalindex

import "errors"

var (
	// ErrCorrupt: the bytes are no whole file index of this version (perhaps one of an older version, which the error then says); build it
	// again.
	ErrCorrupt = errors.New("corrupt file index")
	// ErrNewerVersion: a newer pgmirror wrote the file index; build it again, or run that pgmirror.
	ErrNewerVersion = errors.New("file index of a newer version")
)
