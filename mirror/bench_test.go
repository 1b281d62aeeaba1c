package mirror

import (
	"context"
	"encoding/binary"
	"math/rand/v2"
	"slices"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"

	"pgmirror/iceberg"
	"pgmirror/pgcdc"
	"pgmirror/readstate"
)

// benchTable is a mirror with one table that has the first column as its key.
func benchTable(b testing.TB, types ...uint32) (*Mirror, *table, pgcdc.Table) {
	b.Helper()
	m, err := New(Config{Slot: "m", Publications: []string{"p"}, IndexDir: "/i"}, nil, nil, nil, SystemClock())
	if err != nil {
		b.Fatal(err)
	}
	def := tableDef(1, "t", 'd', []int{0}, []int{0}, types...)
	s, err := newShape(&def, func(a *arrow.Schema) *arrow.Schema {
		withIDs, _ := iceberg.AssignFieldIDs(a, 0)
		return withIDs
	})
	if err != nil {
		b.Fatal(err)
	}
	t := &table{oid: 1, name: readstate.TableName{Schema: "public", Name: "t"}, state: stateStreaming}
	t.setShape(s)
	m.adopt(t)
	t.open = m.newBatchSegment(t)
	return m, t, def
}

const oidFloat4, oidTimestamp = 700, 1114

// accountColumns are those of HyBench's savingaccount.
var accountColumns = []uint32{oidInt4, oidInt4, oidFloat4, oidInt4, oidTimestamp, oidTimestampTZ}

// binaryRow is a tuple of fixed values in the binary format, and one text for each text column.
func binaryRow(types []uint32, text string) (tuple pgcdc.Tuple) {
	for _, oid := range types {
		v := pgcdc.Value{Format: pgcdc.FormatBinary}
		switch oid {
		case oidText:
			v.Data = []byte(text)
		case oidTimestamp, oidTimestampTZ, oidInt8:
			v.Data = make([]byte, 8)
		default:
			v.Data = make([]byte, 4)
		}
		tuple = append(tuple, v)
	}
	return tuple
}

// BenchmarkAdd appends rows of six fixed columns, and of a text of ten bytes more, to a memtable, with their entries in its index:
// into batches of 8,192 rows, each of which is let go when it is full.
func BenchmarkAdd(b *testing.B) {
	for _, c := range []struct {
		name  string
		types []uint32
	}{{"fixed", accountColumns}, {"text", append(slices.Clone(accountColumns), oidText)}} {
		b.Run(c.name, func(b *testing.B) {
			m, t, _ := benchTable(b, c.types...)
			row := binaryRow(c.types, "red_packet")
			b.ReportAllocs()
			for i := 0; i < b.N; i++ {
				if t.open.batch.rows == m.cfg.BatchRows {
					t.open.batch.seal()
					t.open = m.newBatchSegment(t)
				}
				binary.BigEndian.PutUint32(row[0].Data, uint32(i))
				if err := t.add(m, row, nil, location{}, LSN(i+1)); err != nil {
					b.Fatal(err)
				}
			}
			b.ReportMetric(float64(b.N)/b.Elapsed().Seconds()/1e6, "Mrows/s")
		})
	}
}

// BenchmarkApply applies transactions of three updates of random rows, from the message to HWM: what is in memory and
// how much of it is current stays the same.
func BenchmarkApply(b *testing.B) {
	const keys, perTransaction = 8_192, 3
	m, t, def := benchTable(b, accountColumns...)
	replay := pgcdc.NewReplay("", 0)
	send := func(msg message) *pgcdc.Transaction {
		tx, err := replay.Message(msg)
		if err != nil {
			b.Fatal(err)
		}
		return tx
	}
	send(relationMessage(&def))
	end := LSN(100)
	update := message{'U'}.u32(1).u8('N').u16(len(accountColumns))
	key := 0
	for i, oid := range accountColumns {
		value := binaryRow([]uint32{oid}, "")[0].Data
		update = update.u8('b').u32(uint32(len(value)))
		if i == 0 {
			key = len(update)
		}
		update = append(update, value...)
	}
	insert := append(message{'I'}, update[1:]...)
	transaction := func(rows int, change func(i int) message) {
		start := end
		end += 100
		send(message{'B'}.u64(uint64(start)).u64(0).u32(7))
		for i := range rows {
			send(change(i))
		}
		tx := send(message{'C'}.u8(0).u64(uint64(start)).u64(uint64(end)).u64(0))
		if err := m.apply(context.Background(), tx); err != nil {
			b.Fatal(err)
		}
		tx.Release()
		if t.failure != nil {
			b.Fatal(t.failure.Reason)
		}
	}
	transaction(keys, func(i int) message {
		binary.BigEndian.PutUint32(insert[key:], uint32(i))
		return insert
	})
	random := rand.New(rand.NewPCG(1, 2))
	b.ReportAllocs()
	for b.Loop() {
		transaction(perTransaction, func(int) message {
			binary.BigEndian.PutUint32(update[key:], uint32(random.IntN(keys)))
			return update
		})
		// Batches that are all dead would go at the next flush; there is none.
		for len(t.sealed) > 0 && t.sealed[0].batch.index != nil && t.sealed[0].batch.index.Len() == 0 {
			m.memory.Add(-t.sealed[0].batch.weight)
			t.sealed = t.sealed[1:]
		}
	}
	if t.rows != keys {
		b.Fatalf("%d rows instead of %d", t.rows, keys)
	}
	b.ReportMetric(perTransaction*float64(b.N)/b.Elapsed().Seconds()/1e6, "Mrows/s")
}
