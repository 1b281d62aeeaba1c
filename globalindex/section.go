package globalindex

import "io"

// The content of a file index has three sections. Each can be written from the entries in order, one by one: a merge that does not hold
// its entries goes through them once for each section.
const (
	filterSection = iota
	directorySection
	entriesSection
	sections
)

// sectionWriter takes the entries in order, then finish.
type sectionWriter interface {
	add(FileEntry)
	finish() error
}

// newSection returns the writer of one section of an index with that layout and number of entries.
func newSection(section int, l layout, out io.Writer) sectionWriter {
	to := bitWriter{out: out, buffer: make([]byte, 0, min(bitBuffer, l.sizes()[section]))}
	switch section {
	case filterSection:
		return &filterWriter{blocks: l.filterBlocks, out: to}
	case directorySection:
		return &directoryWriter{layout: l, out: to}
	}
	return &entriesWriter{layout: l, out: to}
}

// directoryWriter writes for each bucket how many entries come before it.
type directoryWriter struct {
	layout  layout
	bucket  uint64 // the next one to write
	entries uint64 // seen so far
	out     bitWriter
}

func (w *directoryWriter) add(e FileEntry) {
	for b := w.layout.bucket(e.Hash); w.bucket <= b; w.bucket++ {
		w.out.put(w.entries, w.layout.offsetBits)
	}
	w.entries++
}

func (w *directoryWriter) finish() error {
	for ; w.bucket <= w.layout.buckets(); w.bucket++ { // one more than there are buckets: where the last one ends
		w.out.put(w.entries, w.layout.offsetBits)
	}
	return w.out.finish()
}

type entriesWriter struct {
	layout layout
	out    bitWriter
}

func (w *entriesWriter) add(e FileEntry) {
	w.out.put(e.Hash, w.layout.lowBits())
	w.out.put(uint64(e.File), w.layout.fileBits)
	w.out.put(uint64(e.Row), w.layout.rowBits)
}

func (w *entriesWriter) finish() error { return w.out.finish() }
