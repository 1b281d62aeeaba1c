package mirror

import (
	"bytes"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"pgregory.net/rapid"

	"pgmirror/pgcdc"
)

// TestCopyRowsAsApplied: rows of a copy, batch after batch in the same memory, become what the stream's way of adding rows makes of
// them: values, NULLs, hashes, create LSNs, and errors.
func TestCopyRowsAsApplied(t *testing.T) {
	oids := []uint32{oidInt8, oidInt4, 700, oidFloat8, oidText, oidBytea, oidTimestampTZ, 1114, oidBool, oidDate, oidUID, oidInt4List}
	def := &pgcdc.Table{Schema: "s", Name: "t", Identity: pgcdc.IdentityDefault, Key: []int{0}, IdentityKey: []int{0}}
	for _, oid := range oids {
		def.Columns = append(def.Columns, pgcdc.Column{Name: "c", Type: typeOf(oid)})
	}
	sizes := map[uint32]int{oidInt8: 8, oidInt4: 4, 700: 4, oidFloat8: 8, oidTimestampTZ: 8, 1114: 8, oidBool: 1, oidDate: 4, oidUID: 16}
	rapid.Check(t, func(rt *rapid.T) {
		m := &Mirror{cfg: Config{NullUnrepresentable: rapid.Bool().Draw(rt, "null")}}
		copied := m.newCopy(def, 77)
		if copied.over() {
			rt.Fatal(copied.table.failure.Reason)
		}
		rows := newCopyRows(m, copied.table, 77)
		for range rapid.IntRange(1, 3).Draw(rt, "batches") {
			counted := copied.table.unrepresentable
			applied := &table{}
			applied.setShape(copied.table.shape)
			applied.open = &segment{batch: newBatch(applied.shape)}
			for range rapid.IntRange(0, 5).Draw(rt, "rows") {
				var tuple pgcdc.Tuple
				for i, oid := range oids {
					v := pgcdc.Value{Format: pgcdc.FormatBinary}
					size, fixed := sizes[oid]
					switch {
					case oid == oidInt4List:
						v = pgcdc.Value{Format: pgcdc.FormatText, Data: []byte(rapid.SampledFrom([]string{"{}", "{1,NULL}", "{7}"}).Draw(rt, "list"))}
					case oid == oidBool:
						v.Data = []byte{byte(rapid.IntRange(0, 1).Draw(rt, "bool"))}
					case fixed:
						v.Data = rapid.SliceOfN(rapid.Byte(), size, size).Draw(rt, "value")
					default:
						v.Data = []byte(rapid.String().Draw(rt, "text"))
					}
					switch rapid.IntRange(0, 30).Draw(rt, "odd") {
					case 0, 1, 2, 3, 4:
						if i > 0 {
							v = pgcdc.Value{Format: pgcdc.FormatNull}
						}
					case 5:
						if i > 0 && oid == 1114 { // beyond what a timestamp of the mirror can be
							v = pgcdc.Value{Format: pgcdc.FormatBinary, Data: []byte("\x7f\xff\xff\xff\xff\xff\xff\x00")}
							break
						}
						v.Data = append(bytes.Clone(v.Data), 0xff) // not what any type sends, but bytea
					}
					tuple = append(tuple, v)
				}
				got, want := rows.add(tuple), applied.add(m, tuple, nil, location{}, 77)
				if (got == nil) != (want == nil) || got != nil && got.Error() != want.Error() {
					rt.Fatalf("the copy says %v, the stream %v", got, want)
				}
				if got != nil {
					return // the table has failed
				}
			}
			if n := copied.table.unrepresentable - counted; n != applied.unrepresentable {
				rt.Fatalf("%d values are NULL, want %d", n, applied.unrepresentable)
			}
			compareBatches(rt, rows, applied.open.batch)
			rows.reset()
		}
	})
}

func compareBatches(rt *rapid.T, rows *copyRows, want *batch) {
	if rows.batch.rows != want.rows || rows.batch.added != want.added {
		rt.Fatalf("%d rows of %d bytes, want %d of %d", rows.batch.rows, rows.batch.added, want.rows, want.added)
	}
	want.publish()
	schema := withLSN(want.shape.arrow)
	got, expected := rows.record(schema), want.record(schema, want.rows)
	for i, a := range got.Columns() {
		b := expected.Column(i)
		switch a.DataType().ID() {
		case arrow.FLOAT32, arrow.FLOAT64: // NaN is not equal to itself
			if a.NullN() == b.NullN() && bytes.Equal(a.Data().Buffers()[1].Bytes(), b.Data().Buffers()[1].Bytes()) {
				continue
			}
		}
		if !array.Equal(a, b) {
			rt.Fatalf("column %d:\ngot  %v\nwant %v", i, a, b)
		}
	}
	for i, hash := range want.hashes {
		if rows.batch.hashes[i] != hash {
			rt.Fatalf("hash %d differs", i)
		}
	}
}
