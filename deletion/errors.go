package deletion

import "errors"

var (
	// ErrDeleted: the row is deleted already.
	ErrDeleted = errors.New("row is already deleted")
	// ErrOrder: the LSN is below an earlier deletion's, at or below the base LSN, or below the segment's first LSN.
	ErrOrder = errors.New("deletion is out of LSN order")
	// ErrRange: the delete LSN is 2^52 bytes of WAL or more above the segment's first LSN, or the row is past the last allowed.
	ErrRange = errors.New("deletion is out of range")
	// ErrFolded: the LSN asked for lies below the base LSN; what was visible there is forgotten.
	ErrFolded = errors.New("lsn is below what was folded")
	// ErrCorrupt: the bytes are no valid deletion-vector-v1 blob for a file of that many rows.
	ErrCorrupt = errors.New("corrupt deletion vector")
)
