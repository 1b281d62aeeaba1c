package deletion

// Vector is the set of a segment's positions that are deleted at one LSN.
type Vector struct{}
