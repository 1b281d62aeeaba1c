package mirror

import (
	"encoding/binary"
	"encoding/hex"
	"fmt"
	"math/bits"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"time"

	"pgmirror/globalindex"
	"pgmirror/pgcdc"
)

// version is one row version of the model: visible at x when created ≤ x < deleted.
type version struct {
	cells            []cell
	attNums          []int16 // of the cells; nil in a world whose tables keep their columns
	created, deleted LSN     // 0: not yet
}

// modelTable is what PostgreSQL holds: every version that ever was.
type modelTable struct {
	def      pgcdc.Table
	versions []*version
	// faults are the changes that the mirror must not take, in order: a content that begins below one must fail there.
	faults []*modelFault
	// bases has, by uuid, the LSN of the snapshot from which a content was copied again; others were copied at first.
	bases map[string]LSN
	// defs are the definitions that it had, the present one last, and missing what rows from before a column show in it; nil in a world whose
	// tables keep their columns.
	defs    []modelDef
	missing map[int16]cell
	excused map[string]bool // by uuid, contents that need not take a change of columns over in place
	silent  map[string]LSN  // by uuid, contents of which rows have left silently, since when
	// nulled counts, by commit, values sent that the mirror holds as NULL.
	nulled []nulledAt
}

type nulledAt struct {
	at     LSN
	values int64
}

// modelFault is a change that the mirror must not take; at is the commit that holds it.
type modelFault struct {
	at    LSN
	names []string // what the error must name
}

// fault is where the content with that uuid must fail; nil when it need not.
func (t *modelTable) fault(uuid string) *modelFault {
	for _, f := range t.faults {
		if f.at > t.bases[uuid] {
			return f
		}
	}
	return nil
}

// at lists the rows visible at x, in the present columns.
func (t *modelTable) at(x LSN) [][]cell { return t.in(x, t.attNums()) }

func (t *modelTable) in(x LSN, attNums []int16) (rows [][]cell) {
	for _, v := range t.versions {
		if v.created != 0 && v.created <= x && (v.deleted == 0 || x < v.deleted) {
			rows = append(rows, v.in(t, attNums))
		}
	}
	return rows
}

// shown prints the rows visible at x as rowsOf prints those of the mirror.
func (t *modelTable) shown(x LSN) []string { return t.shownIn(x, t.attNums()) }

func (t *modelTable) shownIn(x LSN, attNums []int16) []string {
	var rows []string
	for _, r := range t.in(x, attNums) {
		rows = append(rows, showCells(r))
	}
	slices.Sort(rows)
	return rows
}

func showCells(cells []cell) string {
	var parts []string
	for _, c := range cells {
		parts = append(parts, show(c))
	}
	return strings.Join(parts, ",")
}

func show(c cell) string {
	if c == nil || c.shown == "NULL" {
		return "NULL"
	}
	return "'" + c.shown + "'"
}

const (
	oidBool, oidBytea, oidInt8, oidInt4, oidText           = 16, 17, 20, 23, 25
	oidFloat8, oidDate, oidTimestampTZ, oidNumeric, oidUID = 701, 1082, 1184, 1700, 2950
	oidInt4List, oidNumericList                            = 1007, 1231

	numeric10_2 = 10<<16 | 2 + 4 // typmod of numeric(10,2)
)

// typeOf is a built-in type; numerics are numeric(10,2).
func typeOf(oid uint32) *pgcdc.Type {
	switch oid {
	case oidNumeric:
		return pgcdc.BuiltinType(oid, numeric10_2)
	case oidInt4List:
		return &pgcdc.Type{OID: oid, Mod: -1, Kind: pgcdc.KindList, Elem: typeOf(oidInt4), BinaryOK: true}
	case oidNumericList:
		return &pgcdc.Type{OID: oid, Mod: numeric10_2, Kind: pgcdc.KindList, Elem: typeOf(oidNumeric), BinaryOK: true}
	}
	return pgcdc.BuiltinType(oid, -1)
}

func tableDef(oid uint32, name string, identity pgcdc.Identity, key, identityKey []int, types ...uint32) pgcdc.Table {
	t := pgcdc.Table{OID: oid, Schema: "public", Name: name, Kind: 'r', Persistence: 'p', Identity: identity, Key: key, IdentityKey: identityKey, Fingerprint: "1"}
	for i, typ := range types {
		t.Columns = append(t.Columns, pgcdc.Column{AttNum: int16(i + 1), Name: "c" + strconv.Itoa(i), Type: typeOf(typ)})
	}
	return t
}

// modelTables has tables of every kind of identity and of many column types.
func modelTables() []pgcdc.Table {
	return []pgcdc.Table{
		tableDef(1, "keyed", 'd', []int{0}, []int{0}, oidInt4, oidText, oidInt8),
		tableDef(2, "composite", 'd', []int{1, 0}, []int{1, 0}, oidInt4, oidText, oidText),
		tableDef(3, "whole", 'f', nil, []int{0, 1}, oidInt4, oidText),
		tableDef(4, "inserts", 'n', nil, nil, oidInt4, oidNumeric, oidText),
		tableDef(5, "fullkey", 'f', []int{0}, []int{0, 1, 2}, oidInt8, oidText, oidText),
		tableDef(6, "textkey", 'd', []int{0}, []int{0}, oidText, oidInt4, oidText),
		tableDef(7, "byindex", 'i', []int{0}, []int{1}, oidInt4, oidInt4, oidText),
		tableDef(8, "wide", 'd', []int{0}, []int{0}, oidInt8, oidBool, oidNumeric, oidBytea, oidUID, oidFloat8, oidInt4List,
			oidNumericList, oidDate, oidTimestampTZ, oidText),
		tableDef(9, "colliding", 'd', []int{0}, []int{0}, oidUID, oidInt4List, oidText),
		tableDef(10, "equals", 'f', nil, []int{0, 1, 2}, oidInt4, oidBool, oidNumeric),
	}
}

// isKey says that a column takes few values, so that rows meet again under the same key: those of a primary key or of the
// identity's index, and all columns when there is no key but the whole row.
func isKey(t *pgcdc.Table, column int) bool {
	return slices.Contains(t.Key, column) || t.Identity == pgcdc.IdentityIndex && slices.Contains(t.IdentityKey, column) || t.Identity == pgcdc.IdentityFull && t.Key == nil
}

// collidingKeys are UUIDs of which each two neighbours have the same hash: xxHash64 of tag and value takes eight bytes after
// the other, each through a bijection, so the second eight can undo what the first eight changed.
// https://github.com/Cyan4973/xxHash/blob/dev/doc/xxhash_spec.md
var collidingKeys = func() (keys [][16]byte) {
	const p1, p2, p4, p5 = 0x9E3779B185EBCA87, 0xC2B2AE3D27D4EB4F, 0x85EBCA77C2B2AE63, 0x27D4EB2F165667C5
	inverse := func(odd uint64) uint64 { // Newton's iteration modulo 2^64
		x := odd
		for range 6 {
			x *= 2 - odd*x
		}
		return x
	}
	round := func(k uint64) uint64 { return bits.RotateLeft64(k*p2, 31) * p1 }
	undo := func(r uint64) uint64 { return bits.RotateLeft64(r*inverse(p1), -31) * inverse(p2) }
	step := func(h, k uint64) uint64 { h ^= round(k); return bits.RotateLeft64(h, 27)*p1 + p4 }
	rng := rand.New(rand.NewPCG(1, 2))
	for range 4 {
		var a, b [17]byte
		for i := range a {
			a[i] = byte(rng.Uint32())
		}
		a = [17]byte(globalindex.AppendFixed(nil, a[1:]))
		b = a
		b[3]++
		first := step(p5+17, binary.LittleEndian.Uint64(a[:8]))
		other := step(p5+17, binary.LittleEndian.Uint64(b[:8]))
		binary.LittleEndian.PutUint64(b[8:], undo(first^other^round(binary.LittleEndian.Uint64(a[8:]))))
		if globalindex.HashBytes(a[:]) != globalindex.HashBytes(b[:]) {
			panic("the hashes do not collide")
		}
		keys = append(keys, [16]byte(a[1:]), [16]byte(b[1:]))
	}
	return keys
}()

func uuidCell(v [16]byte) cell {
	h := hex.EncodeToString(v[:])
	return &datum{wire: h[:8] + "-" + h[8:12] + "-" + h[12:16] + "-" + h[16:20] + "-" + h[20:], shown: h}
}

// keyValue makes one of few values.
func (w *world) keyValue(oid uint32) cell {
	switch oid {
	case oidUID:
		return uuidCell(collidingKeys[w.rng.IntN(len(collidingKeys))])
	case oidBool:
		return w.value(oidBool)
	case oidNumeric:
		n := w.rng.IntN(3)
		return &datum{wire: fmt.Sprint(n), shown: fmt.Sprintf("%d.00", n)}
	}
	return val(strconv.Itoa(w.rng.IntN(12) - 4))
}

// value makes a random value of a type.
func (w *world) value(oid uint32) cell {
	w.serial++
	switch oid {
	case oidText:
		return val(fmt.Sprintf("v%d%s", w.serial, strings.Repeat("x", w.rng.IntN(20))))
	case oidBool:
		if w.rng.IntN(2) == 0 {
			return &datum{wire: "f", shown: "false"}
		}
		return &datum{wire: "t", shown: "true"}
	case oidNumeric:
		n := w.rng.Int64N(1e10) - 5e9
		text := fmt.Sprintf("%d.%02d", n/100, max(n%100, -n%100))
		if n < 0 && n > -100 {
			text = "-" + text
		}
		return val(text)
	case oidBytea:
		b := make([]byte, w.rng.IntN(6))
		for i := range b {
			b[i] = byte(w.rng.Uint32())
		}
		return &datum{wire: `\x` + hex.EncodeToString(b), shown: hex.EncodeToString(b)}
	case oidUID:
		var v [16]byte
		binary.LittleEndian.PutUint64(v[:], w.rng.Uint64())
		return uuidCell(v)
	case oidFloat8:
		special := []string{"NaN", "Infinity", "-Infinity", "-0"}
		if n := w.rng.IntN(8); n < len(special) {
			return &datum{wire: special[n], shown: []string{"NaN", "+Inf", "-Inf", "-0"}[n]}
		}
		return val(strconv.FormatFloat(w.rng.NormFloat64(), 'g', -1, 64))
	case oidInt4List, oidNumericList:
		wire, shown := make([]string, w.rng.IntN(4)), []string{}
		for i := range wire {
			if w.rng.IntN(4) == 0 {
				wire[i], shown = "NULL", append(shown, "NULL")
				continue
			}
			elem := w.value(map[uint32]uint32{oidInt4List: oidInt4, oidNumericList: oidNumeric}[oid])
			wire[i], shown = elem.wire, append(shown, elem.shown)
		}
		return &datum{wire: "{" + strings.Join(wire, ",") + "}", shown: "[" + strings.Join(shown, " ") + "]"}
	case oidDate:
		days := w.rng.Int64N(20000)
		return &datum{wire: time.Unix(days*86400, 0).UTC().Format("2006-01-02"), shown: strconv.FormatInt(days, 10)}
	case oidTimestampTZ:
		micros := w.rng.Int64N(2e15)
		return &datum{wire: time.UnixMicro(micros).UTC().Format("2006-01-02 15:04:05.000000+00"), shown: strconv.FormatInt(micros, 10)}
	}
	return val(strconv.Itoa(w.serial))
}

// badValue makes a legal value of a type that the mirror cannot hold; nil when there is none.
func (w *world) badValue(oid uint32) cell {
	wire := map[uint32][]string{oidNumeric: {"NaN", "Infinity"}, oidInt4List: {"{{1,2},{3,4}}"}, oidNumericList: {"{1.50,NaN}", "{{1}}"}}[oid]
	if wire == nil {
		return nil
	}
	return &datum{wire: wire[w.rng.IntN(len(wire))], shown: "NULL", bad: true}
}

// freshRow makes a row whose keys (primary and identity) no live row has, except the one that it replaces.
func (w *world) freshRow(t *modelTable, live []*version, replaces *version) ([]cell, bool) {
	cells := make([]cell, len(t.def.Columns))
	for i, c := range t.def.Columns {
		key := isKey(&t.def, i)
		mayBeNull := !key || t.def.Key == nil
		switch n := w.rng.IntN(24); {
		case mayBeNull && (n < 2 || n < 5 && !key):
			cells[i] = nil
		case mayBeNull && n == 5 && w.nullBad && w.badValue(c.Type.OID) != nil:
			cells[i] = w.badValue(c.Type.OID)
		case key:
			cells[i] = w.keyValue(c.Type.OID)
		default:
			cells[i] = w.value(c.Type.OID)
		}
	}
	if t.def.Key == nil {
		return cells, true
	}
	for _, v := range live {
		if v != replaces && (sameCells(t.def.Key, v.now(t), cells) || t.def.Identity == 'i' && sameCells(t.def.IdentityKey, v.now(t), cells)) {
			return nil, false
		}
	}
	return cells, true
}

func sameCells(columns []int, a, b []cell) bool {
	for _, k := range columns {
		if show(a[k]) != show(b[k]) {
			return false
		}
	}
	return true
}
