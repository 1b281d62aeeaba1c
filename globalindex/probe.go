package globalindex

// Found is a location that Probe found: Hash is the position, among those sought, of the hash it has.
type Found struct {
	Hash int
	FileLocation
}

// probeGroup is how many hashes go through one step together. The steps of one hash wait for memory one after the other; those of
// different hashes do not depend on each other, so the processor waits for many at once.
const probeGroup = 64

// Probe appends to dst the locations that Candidates finds for each of the hashes, but no more than most for one hash. Hashes that
// ascend are found fastest, because the index is sorted by them; the locations come in the order of the hashes, and for each by file
// and row. It allocates nothing if dst has room.
func (x *FileIndex) Probe(hashes []uint64, most int, dst []Found) []Found {
	for at := 0; at < len(hashes); at += probeGroup {
		dst = x.probeGroup(hashes[at:min(at+probeGroup, len(hashes))], at, most, dst)
	}
	return dst
}

// probeGroup probes a few hashes, of which the first is number at.
func (x *FileIndex) probeGroup(hashes []uint64, at, most int, dst []Found) []Found {
	var passed [probeGroup]int
	n := 0
	for i, hash := range hashes {
		passed[n] = i
		if x.mayHave(hash) {
			n++
		}
	}
	var starts, ends [probeGroup]uint64
	for j, i := range passed[:n] {
		starts[j], ends[j] = x.bucket(x.layout.bucket(hashes[i]))
	}
	lowBits, width := x.layout.lowBits(), uint64(x.layout.entryBits())
	for j, i := range passed[:n] {
		low, left := x.layout.low(hashes[i]), most
		for e := x.firstAtLeast(low, starts[j], ends[j]); e < ends[j] && left > 0 && readBits(x.packed, e*width, lowBits) == low; e++ {
			if loc := x.location(e * width); x.valid(loc) {
				dst = append(dst, Found{at + i, loc})
				left--
			}
		}
	}
	return dst
}
