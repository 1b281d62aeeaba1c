package globalindex

// Location is where a row is: the id of its segment and its ordinal there, from 0.
type Location struct {
	Segment uint32
	Row     uint32
}

// FileLocation is where a row is among the files that one FileIndex covers: the position of its file in Header.Files and its
// ordinal in that file, from 0.
type FileLocation struct {
	File uint32
	Row  uint32
}
