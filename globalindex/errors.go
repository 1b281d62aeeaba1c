package globalindex

import "errors"

var (
	// ErrCorrupt: the bytes are no whole file index of this version (perhaps one of an older version, which the error then says); build it
	// again.
	ErrCorrupt = errors.New("corrupt file index")
	// ErrVersion: another version of pgmirror wrote the file index; build it again.
	ErrVersion = errors.New("file index of another version")
)
