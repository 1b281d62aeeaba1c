package mirror

import (
	"cmp"
	"slices"

	"pgmirror/globalindex"
	"pgmirror/pgcdc"
)

// window holds some changes of a transaction so that the keys of their old rows are looked up together before the first of them is
// applied: in each FileIndex in one pass, in the order of the hashes, which touches each of its pages once.
//
//	changes ─hold─▶ window ─probe─▶ candidates of each key ─▶ applied one by one
//
// What a FileIndex says of a hash does not depend on the changes before: only whether a row is still live does, and that is asked when
// the change is applied. Candidates are used only while the table has the indexes that were probed: a change in between that installs
// others makes the lookups of its table begin anew (table.epoch).
type window struct {
	m       *Mirror
	changes []pgcdc.Change
	probes  []probe // of each change
	values  []pgcdc.Value
	bytes   []byte // of values that are only lent
	asked   []ask  // scratch, of one table
	hashes  []uint64
	found   []globalindex.Found
}

// probe is what the FileIndexes said of one change's key.
type probe struct {
	table *table // nil: nothing was asked
	epoch uint64
	whole bool // candidates are all there are
	n     int
	at    [probeMost]candidate // the newest index's first
}

type candidate struct {
	index *fileIndex
	globalindex.FileLocation
}

type ask struct {
	hash   uint64
	change int
}

const (
	// probeMost bounds the candidates kept for a key; most keys have one. A lookup with more asks again.
	probeMost = 4
	// probeRows is the size from which a transaction's keys are looked up together, and probeEntries that of a table's FileIndexes, in
	// entries: smaller ones lie in the processor's caches, where there is nothing to win.
	probeRows    = 64
	probeEntries = 1 << 18
	// windowRows and windowBytes bound a window.
	windowRows  = 1024
	windowBytes = 4 << 20
	// windowValues is how many values a window keeps memory for between transactions.
	windowValues = 64 << 10
)

// worthProbing says whether a transaction's keys are looked up together.
func (m *Mirror) worthProbing(tx *pgcdc.Transaction) bool {
	return tx.Rows >= m.probeRows && slices.ContainsFunc(m.tables, m.worthProbingIn)
}

func (m *Mirror) worthProbingIn(t *table) bool {
	if t.state != stateStreaming || len(t.indexes) == 0 {
		return false
	}
	var entries uint64
	for _, x := range t.indexes {
		entries += x.entries
	}
	return entries >= m.probeEntries
}

// applyInWindows is tx.Changes with the lookups of many changes done together before apply gets them.
func (m *Mirror) applyInWindows(tx *pgcdc.Transaction, apply func(*pgcdc.Change) error) error {
	w := &m.window
	defer w.forget()
	err := tx.Changes(func(ch *pgcdc.Change) error {
		if ch.Op != pgcdc.OpInsert && ch.Op != pgcdc.OpUpdate && ch.Op != pgcdc.OpDelete {
			// What keys there are may be another matter after it.
			if err := w.apply(apply); err != nil {
				return err
			}
			return apply(ch)
		}
		w.hold(ch)
		if len(w.changes) == windowRows || len(w.bytes) >= windowBytes {
			return w.apply(apply)
		}
		return nil
	})
	if err != nil {
		return err
	}
	return w.apply(apply)
}

// forget lets go of what an error left, and of memory that only a transaction of very large values needs.
func (w *window) forget() {
	w.m.probed = nil
	w.changes, w.values, w.bytes = w.changes[:0], w.values[:0], w.bytes[:0]
	if cap(w.bytes) > 2*windowBytes {
		w.bytes = nil
	}
	if cap(w.values) > windowValues {
		w.values = nil
	}
}

// hold takes a change that is only lent.
func (w *window) hold(ch *pgcdc.Change) {
	own := *ch
	own.Old, own.New = w.keep(ch.Old), w.keep(ch.New)
	w.changes = append(w.changes, own)
}

func (w *window) keep(tuple pgcdc.Tuple) pgcdc.Tuple {
	if tuple == nil {
		return nil
	}
	first := len(w.values)
	for _, v := range tuple {
		if len(v.Data) > 0 {
			at := len(w.bytes)
			w.bytes = append(w.bytes, v.Data...)
			v.Data = w.bytes[at:len(w.bytes):len(w.bytes)]
		}
		w.values = append(w.values, v)
	}
	return w.values[first:len(w.values):len(w.values)]
}

// apply looks the keys up and hands out the changes.
func (w *window) apply(apply func(*pgcdc.Change) error) error {
	w.probe()
	for i := range w.changes {
		w.m.probed = &w.probes[i]
		if err := apply(&w.changes[i]); err != nil {
			return err
		}
	}
	w.forget()
	return nil
}

func (w *window) probe() {
	w.probes = slices.Grow(w.probes[:0], len(w.changes))[:len(w.changes)]
	clear(w.probes)
	for i := range w.changes {
		if t := w.m.live(w.changes[i].Relation.OID); t != nil && w.probes[i].table == nil && w.changes[i].Op != pgcdc.OpInsert && w.m.worthProbingIn(t) {
			w.probeTable(t, i)
		}
	}
}

// probeTable looks the keys of one table up. from is the first change that is the table's. A key that cannot be read is left for
// the change's own turn, which says so.
func (w *window) probeTable(t *table, from int) {
	w.asked, w.hashes = w.asked[:0], w.hashes[:0]
	for i := from; i < len(w.changes); i++ {
		ch := &w.changes[i]
		if ch.Relation.OID != t.oid || ch.Op == pgcdc.OpInsert {
			continue
		}
		w.probes[i] = probe{table: t}
		old := ch.Old
		if ch.OldKind == 0 {
			old = ch.New
		}
		if t.shape.mode == insertOnly || t.seek(old, w.m.cfg.NullUnrepresentable && t.shape.mode == wholeRow) != nil {
			continue
		}
		w.probes[i].epoch, w.probes[i].whole = t.epoch, true
		w.asked = append(w.asked, ask{t.hash(t.seeking, 0), i})
	}
	slices.SortFunc(w.asked, func(a, b ask) int { return cmp.Compare(a.hash, b.hash) })
	for _, a := range w.asked {
		w.hashes = append(w.hashes, a.hash)
	}
	for i := len(t.indexes) - 1; i >= 0; i-- {
		x := t.indexes[i]
		w.found = x.index.Probe(w.hashes, probeMost, w.found[:0])
		for _, f := range w.found {
			p := &w.probes[w.asked[f.Hash].change]
			if p.n == probeMost {
				p.whole = false
				continue
			}
			p.at[p.n] = candidate{x, f.FileLocation}
			p.n++
		}
	}
	for i := range w.asked {
		p := &w.probes[w.asked[i].change]
		p.whole = p.whole && p.n < probeMost // with as many as one pass tells of there may be more
	}
}

// usable says whether a probe answers a lookup in the table as it is now.
func (p *probe) usable(t *table) bool {
	return p != nil && p.table == t && p.whole && p.epoch == t.epoch
}
