package mirror

import (
	"context"
	"errors"
	"strings"
	"testing"

	"pgmirror/iceberg"
)

// TestOpenBatchesAreFlushedWhenMemoryIsShort: with many tables the memory lies in open batches; when no full one is left, the
// largest open one goes.
func TestOpenBatchesAreFlushedWhenMemoryIsShort(t *testing.T) {
	w := newWorld(t, 1)
	w.start()
	w.check(w.m.inTurn(context.Background(), func() error { w.m.cfg.BatchRows, w.m.cfg.Memory = 1<<20, 100<<10; return nil }))
	var chosen []*table
	for i := 0; len(chosen) == 0 && i < 100; i++ {
		w.transactionOf(3)
		w.settle()
		w.check(w.m.inTurn(context.Background(), func() error {
			for _, tab := range w.m.tables {
				if tab.open != nil && tab.open.batch.rows > 0 {
					// What a batch with a large value weighs.
					w.m.memory.Add(sealLeast)
					tab.open.batch.weight += sealLeast
				}
			}
			return nil
		}))
		chosen = w.chooseToFlush(false)
	}
	if len(chosen) == 0 {
		t.Fatal("nothing is flushed although memory is short")
	}
	w.end()
}

// TestMachineFaultFailsNoTable: a data file that cannot be read because of the machine ends the mirror, which recovers; one that
// is corrupt fails its table.
func TestMachineFaultFailsNoTable(t *testing.T) {
	m := &Mirror{warehouse: brokenWarehouse{err: errors.New("too many open files")}}
	loc := location{segment: &segment{file: &file{data: iceberg.DataFile{Path: "/w/a.parquet"}}}}
	var machine *machineError
	if _, err := m.readRow(loc, &shape{}, nil); !errors.As(err, &machine) || !strings.Contains(err.Error(), "/w/a.parquet") {
		t.Fatalf("too many open files: %v", err)
	}
	m.warehouse = brokenWarehouse{err: iceberg.ErrCorrupt}
	if _, err := m.readRow(loc, &shape{}, nil); err == nil || errors.As(err, &machine) {
		t.Fatalf("a corrupt file: %v", err)
	}
}

type brokenWarehouse struct {
	Warehouse
	err error
}

func (b brokenWarehouse) OpenData(string) (DataReader, error) { return nil, b.err }
