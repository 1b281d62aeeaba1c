package mirror

import (
	"context"
	"fmt"
	"testing"
)

// TestProbesAreUsed: the keys of a transaction are looked up together, once for each FileIndex, and what was found then is not used after
// the indexes were changed in the midst of the transaction: the rows are the right ones all the same.
func TestProbesAreUsed(t *testing.T) {
	for _, merge := range []bool{false, true} {
		t.Run(fmt.Sprint("merge in the midst: ", merge), func(t *testing.T) {
			w := newWorld(t, 1)
			w.faults, w.pressure, w.eager, w.spill = 0, false, true, 0
			w.start()
			ctx := context.Background()
			w.grow(0, 90)
			tab := w.m.byOID[1]
			if merge {
				w.grow(90, 0)
				w.check(w.m.inTurn(ctx, func() error { // as if they had come in the midst of what is coming
					w.m.cfg.Effect = func(name string) error {
						if name == "batch sealed" {
							tab.epoch++
						}
						return nil
					}
					return nil
				}))
			}
			versions := w.table(1).versions
			mine := versions[len(versions)-90:]
			var changes []message
			for i, v := range mine {
				if i%2 == 0 {
					changes = append(changes, message{'D'}.u32(1).old(&w.table(1).def, v.cells))
					continue
				}
				changes = append(changes, message{'U'}.u32(1).u8('N').tuple(v.cells))
			}
			before := w.m.lookups.probed.Load()
			c := w.source.commit(changes)
			for i, v := range mine {
				v.deleted = c.end
				if i%2 != 0 {
					w.table(1).versions = append(w.table(1).versions, &version{cells: v.cells, created: c.end})
				}
			}
			w.send(c)
			w.settle()
			used := w.m.lookups.probed.Load() - before
			if !merge && used != 90 || merge && (used == 0 || used == 90) {
				t.Errorf("%d of 90 lookups used what was found together", used)
			}
			w.check(w.m.Check(ctx))
			w.audit()
			w.end()
		})
	}
}
