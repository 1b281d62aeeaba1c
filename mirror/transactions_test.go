package mirror

import (
	"slices"

	"pgmirror/pgcdc"
)

// transaction makes a random transaction on the source, tells it to the model, and sends it.
func (w *world) transaction() {
	w.t.Helper()
	changes := 1 + w.rng.IntN(7)
	if w.rng.IntN(25) == 0 {
		changes = 30 + w.rng.IntN(60)
	}
	w.transactionOf(changes)
}

// draft is a transaction that is being made.
type draft struct {
	changes    []message
	born, died []*version
	gone       map[*version]bool
	broken     map[*modelTable]*modelFault
	nulled     map[*modelTable]int64
	told       map[*modelTable]bool
}

// tell has the server say what columns a table has, if it has not since they changed.
func (d *draft) tell(t *modelTable) {
	if n := len(t.defs) - 1; n >= 0 && !d.told[t] && t.defs[n].used == 0 {
		d.told[t] = true
		d.changes = append(d.changes, relationMessage(&t.def))
	}
}

func (d *draft) kill(v *version) {
	d.died = append(d.died, v)
	d.gone[v] = true
}

func (d *draft) bear(t *modelTable, cells []cell) {
	v := &version{cells: cells, attNums: t.attNums()}
	t.versions = append(t.versions, v)
	d.born = append(d.born, v)
}

func (d *draft) live(t *modelTable) []*version {
	return slices.DeleteFunc(slices.Clone(t.versions), func(v *version) bool { return v.deleted != 0 || d.gone[v] })
}

func (d *draft) countBad(t *modelTable, sent []cell) {
	for _, c := range sent {
		if c != nil && c.bad {
			d.nulled[t]++
		}
	}
}

func (w *world) transactionOf(changes int) {
	w.t.Helper()
	d := &draft{gone: map[*version]bool{}, broken: map[*modelTable]*modelFault{}, nulled: map[*modelTable]int64{}, told: map[*modelTable]bool{}}
	for range changes {
		t := w.tables[w.rng.IntN(len(w.tables))]
		d.tell(t)
		if w.faults > 0 && w.sending && !w.broken(t) && d.broken[t] == nil && w.rng.IntN(60) == 0 {
			if f := w.breakTable(d, t); f != nil {
				w.faults--
				d.broken[t] = f
				continue
			}
		}
		live := d.live(t)
		switch op := w.rng.IntN(20); {
		case op == 0:
			msg, emptied := w.truncate(t)
			for _, e := range emptied {
				for _, v := range d.live(e) {
					d.kill(v)
				}
			}
			d.changes = append(d.changes, msg)
		case op < 8 || len(live) == 0 || t.def.IdentityKey == nil:
			cells, ok := w.freshRow(t, live, nil)
			if !ok {
				continue
			}
			d.bear(t, cells)
			d.countBad(t, cells)
			d.changes = append(d.changes, message{'I'}.u32(t.def.OID).u8('N').tuple(cells))
		case op < 14:
			old := live[w.rng.IntN(len(live))]
			msg, cells, ok := w.update(t, live, old)
			if !ok {
				continue
			}
			d.bear(t, cells)
			d.kill(old)
			d.countBad(t, cells)
			d.changes = append(d.changes, msg)
		default:
			old := live[w.rng.IntN(len(live))]
			d.kill(old)
			d.changes = append(d.changes, message{'D'}.u32(t.def.OID).old(&t.def, old.now(t)))
		}
	}
	c := w.source.commit(d.changes)
	for t := range d.told {
		t.defs[len(t.defs)-1].used = c.end
	}
	for _, v := range d.born {
		v.created = c.end
	}
	for _, v := range d.died {
		v.deleted = c.end
	}
	for _, t := range w.tables {
		if n := d.nulled[t]; n > 0 {
			t.nulled = append(t.nulled, nulledAt{c.end, n})
		}
		if f := d.broken[t]; f != nil {
			f.at, t.faults = c.end, append(t.faults, f)
			w.note("table %s must fail at %s, naming %v", t.def.Name, c.end, f.names)
		}
	}
	w.note("commit %s: %d changes", c.end, len(d.changes))
	if w.sending {
		w.send(c)
	}
}

// broken tells whether the content that the mirror shows of a table must fail, or has.
func (w *world) broken(t *modelTable) bool {
	if w.m == nil {
		return false
	}
	v := w.viewAt(t.def.Name, maxLSN)
	return v != nil && (v.failure != nil || t.fault(v.table.uuid) != nil)
}

// breakTable adds a change that the mirror must not take; nil when none of the kind drawn fits the table.
func (w *world) breakTable(d *draft, t *modelTable) *modelFault {
	switch w.rng.IntN(3) {
	case 0: // a row that is not there
		if t.def.IdentityKey == nil || t.def.Name == "colliding" {
			return nil
		}
		cells := make([]cell, len(t.def.Columns))
		names := []string{"does not hold"}
		for i, c := range t.def.Columns {
			cells[i] = w.value(c.Type.OID)
			if slices.Contains(t.def.IdentityKey, i) && c.Type.Kind == pgcdc.KindInt4 {
				cells[i] = val("-999")
				if t.def.Key != nil && (t.def.Identity != pgcdc.IdentityFull || slices.Contains(t.def.Key, i)) {
					names = append(names, c.Name+"=-999")
				}
			}
		}
		d.changes = append(d.changes, message{'D'}.u32(t.def.OID).old(&t.def, cells))
		return &modelFault{names: names}
	case 1: // a value that cannot be represented
		if w.nullBad {
			return nil
		}
		cells, ok := w.freshRow(t, d.live(t), nil)
		if !ok {
			return nil
		}
		for i, c := range t.def.Columns {
			if bad := w.badValue(c.Type.OID); bad != nil {
				cells[i] = bad
				names := []string{"column " + c.Name}
				if t.def.Name == "wide" {
					names = append(names, "c0="+cells[0].wire)
				}
				d.bear(t, cells)
				d.changes = append(d.changes, message{'I'}.u32(t.def.OID).u8('N').tuple(cells))
				return &modelFault{names: names}
			}
		}
		return nil
	}
	// A shape that is not the known one.
	other := t.def
	other.Columns = slices.Clone(other.Columns)
	switch last := len(other.Columns) - 1; w.rng.IntN(3) {
	case 0:
		other.Columns[last].Name = "renamed"
	case 1:
		oid := uint32(oidDate)
		if other.Columns[last].Type.OID == oid { // columns that came later have any type
			oid = oidUID
		}
		other.Columns[last].Type = typeOf(oid)
	default:
		other.Columns = append(other.Columns, pgcdc.Column{Name: "added", Type: typeOf(oidInt4)})
	}
	// After the message rows would arrive in the new shape; the session goes back to the old one at once.
	d.changes = append(d.changes, relationMessage(&other), relationMessage(&t.def))
	return &modelFault{names: []string{"shape changed"}}
}

// old appends the old tuple that the table's identity sends.
func (m message) old(t *pgcdc.Table, cells []cell) message {
	if t.Identity == pgcdc.IdentityFull {
		return m.u8('O').tuple(cells)
	}
	key := make([]cell, len(cells))
	for _, k := range t.IdentityKey {
		key[k] = cells[k]
	}
	return m.u8('K').tuple(key)
}

func (w *world) truncate(t *modelTable) (message, []*modelTable) {
	emptied := []*modelTable{t}
	for range w.rng.IntN(3) {
		if other := w.tables[w.rng.IntN(len(w.tables))]; !slices.Contains(emptied, other) {
			emptied = append(emptied, other)
		}
	}
	msg := message{'T'}.u32(uint32(len(emptied))).u8(0)
	for _, e := range emptied {
		msg = msg.u32(e.def.OID)
	}
	return msg, emptied
}

// update changes a row: its key now and then, and leaves a long value out as TOAST does now and then.
func (w *world) update(t *modelTable, live []*version, old *version) (message, []cell, bool) {
	cells, ok := w.freshRow(t, live, old)
	if !ok {
		return nil, nil, false
	}
	if w.rng.IntN(3) > 0 {
		for i := range cells {
			if isKey(&t.def, i) && t.def.Key != nil {
				cells[i] = old.now(t)[i]
			}
		}
	}
	sent := slices.Clone(cells)
	if last := len(cells) - 1; !isKey(&t.def, last) && t.def.Columns[last].Type.OID == oidText && old.now(t)[last] != nil && w.rng.IntN(2) == 0 {
		cells[last] = old.now(t)[last]
		sent[last] = unchanged
	}
	msg := message{'U'}.u32(t.def.OID)
	if t.def.Identity == pgcdc.IdentityFull || !sameCells(t.def.IdentityKey, old.now(t), cells) {
		msg = msg.old(&t.def, old.now(t))
	}
	return msg.u8('N').tuple(sent), cells, true
}
