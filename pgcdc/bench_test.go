package pgcdc

import (
	"encoding/binary"
	"testing"
)

// benchmarkTransaction is a transaction of rows of five binary columns, the form of most benchmark tables.
func benchmarkTransaction(rows int) (messages [][]byte, bytes int64) {
	messages = append(messages, beginBytes(10, 0, 1))
	for i := range rows {
		b := append(binary.BigEndian.AppendUint32([]byte{'I'}, 7), 'N', 0, 5)
		for _, size := range []int{4, 8, 8, 12} {
			b = append(binary.BigEndian.AppendUint32(append(b, 'b'), uint32(size)), make([]byte, size)...)
		}
		b = append(b, 'n')
		binary.BigEndian.PutUint32(b[13:], uint32(i))
		messages = append(messages, b)
		bytes += int64(len(b))
	}
	return append(messages, nil), bytes
}

// BenchmarkDecode stages and reads transactions of 3 and of 300 rows.
func BenchmarkDecode(b *testing.B) {
	for _, size := range []struct {
		name string
		rows int
	}{{"rows=3", 3}, {"rows=300", 300}} {
		b.Run(size.name, func(b *testing.B) {
			messages, bytes := benchmarkTransaction(size.rows)
			a := newAssembler("", 0)
			if _, err := a.message(relationBytes(7, "t", "a", "b", "c", "d", "e")); err != nil {
				b.Fatal(err)
			}
			b.ReportAllocs()
			b.SetBytes(bytes)
			var columns int
			end := LSN(20)
			for b.Loop() {
				messages[len(messages)-1] = commitBytes(10, end, 0)
				end++
				for _, message := range messages {
					tx, err := a.message(message)
					if err != nil {
						b.Fatal(err)
					}
					if tx == nil {
						continue
					}
					if err := tx.Changes(func(c *Change) error { columns += len(c.New); return nil }); err != nil {
						b.Fatal(err)
					}
					tx.Release()
				}
			}
			if columns != 5*size.rows*b.N {
				b.Fatalf("%d columns", columns)
			}
			b.ReportMetric(float64(size.rows*b.N)/b.Elapsed().Seconds(), "rows/s")
		})
	}
}

// countSink counts calls and keeps nothing.
type countSink struct{ calls int }

func (s *countSink) Null()                 { s.calls++ }
func (s *countSink) Bool(bool)             { s.calls++ }
func (s *countSink) Int32(int32)           { s.calls++ }
func (s *countSink) Int64(int64)           { s.calls++ }
func (s *countSink) Float32(float32)       { s.calls++ }
func (s *countSink) Float64(float64)       { s.calls++ }
func (s *countSink) Decimal(int64, uint64) { s.calls++ }
func (s *countSink) String([]byte)         { s.calls++ }
func (s *countSink) Binary([]byte)         { s.calls++ }
func (s *countSink) UUID(*[16]byte)        { s.calls++ }
func (s *countSink) Date(int32)            { s.calls++ }
func (s *countSink) Time(int64)            { s.calls++ }
func (s *countSink) Timestamp(int64)       { s.calls++ }
func (s *countSink) BeginList(int)         { s.calls++ }
func (s *countSink) EndList()              { s.calls++ }

// BenchmarkValue decodes a captured value of some types in both formats.
func BenchmarkValue(b *testing.B) {
	last := map[uint32]capturedValue{}
	for _, v := range capturedValues(b) {
		if _, err := decodeCalls(v.typ, FormatText, v.text); err == nil {
			last[v.typ.OID] = v
		}
	}
	for _, c := range []struct {
		name string
		oid  uint32
	}{{"int4", 23}, {"float8", 701}, {"text", 25}, {"decimal", 1700}, {"timestamptz", 1184}, {"uuid", 2950}, {"int4[]", 1007}} {
		v, ok := last[c.oid]
		if !ok {
			b.Fatalf("no captured %s", c.name)
		}
		for _, form := range []struct {
			name   string
			format Format
			data   []byte
		}{{"binary", FormatBinary, v.binary}, {"text", FormatText, v.text}} {
			b.Run(c.name+"/"+form.name, func(b *testing.B) {
				b.ReportAllocs()
				var sink countSink
				for b.Loop() {
					if err := v.typ.Decode(form.format, form.data, &sink); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}
