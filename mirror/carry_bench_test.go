package mirror

import (
	"context"
	"math/rand/v2"
	"testing"

	"pgmirror/deletion"
	"pgmirror/iceberg"
)

// BenchmarkCarryOver is the longest time for which the applier stands still when a million rows of four files with ten million are deleted, at
// random and one a transaction, while the files are rewritten: carried over in slices, and for comparison in one turn. It counts no reading and writing.
func BenchmarkCarryOver(b *testing.B) {
	const files, rows, deleted = 4, 2_500_000, 1_000_000
	rng := rand.New(rand.NewPCG(1, 2))
	for name, slice := range map[string]int{"slices": carrySlice, "one turn": deleted} {
		b.Run(name, func(b *testing.B) {
			for b.Loop() {
				m, err := New(Config{Slot: "m", Publications: []string{"p"}, IndexDir: "/i"}, nil, nil, nil, SystemClock())
				if err != nil {
					b.Fatal(err)
				}
				m.carrySlice = slice
				m.marks.open(1, someTime, someTime)
				ctx, stop := context.WithCancel(context.Background())
				ended := make(chan error)
				go func() { ended <- m.applyLoop(ctx) }()
				rw := &rewrite{table: &table{}, floor: 1, out: &segment{file: &file{}}}
				for range files {
					rw.inputs = append(rw.inputs, &segment{vis: deletion.NewVisibility(1), file: &file{data: iceberg.DataFile{Rows: rows}}})
					rw.rows = append(rw.rows, rows)
				}
				if _, err := m.startRewrite(ctx, func() *rewrite { return rw }); err != nil {
					b.Fatal(err)
				}
				perm := rng.Perm(files * rows)[:deleted]
				err = m.inAnyTurn(ctx, func() error {
					for i, row := range perm {
						if err := rw.inputs[row/rows].delete(uint32(row%rows), LSN(100+i)); err != nil {
							return err
						}
					}
					return nil
				})
				if err != nil {
					b.Fatal(err)
				}
				if err := rw.carryOver(ctx, m, rw.succeed); err != nil {
					b.Fatal(err)
				}
				if rw.out.vis.Count() != deleted {
					b.Fatalf("%d deletions", rw.out.vis.Count())
				}
				b.ReportMetric(float64(rw.stall.Microseconds())/1000, "stall-ms")
				stop()
				<-ended
			}
		})
	}
}
