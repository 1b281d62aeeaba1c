package mirror

import (
	"context"
	"runtime"
	"slices"
	"sync/atomic"
	"testing"
	"time"
	"weak"
)

// TestLargeTransactionIsFlushed: a transaction of many times the memory bound goes to files while it is applied. The batches that are accounted for stay within
// the bound, those that were flushed are given back, and of all that nothing is committed before the transaction is.
func TestLargeTransactionIsFlushed(t *testing.T) {
	const bound, times = 512 << 10, 8
	b := newBank(5)
	m := b.mirror(t)
	m.cfg.BatchRows, m.cfg.Memory = 256, bound
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	var end atomic.Uint64 // of the transaction; 0 before it is sent
	var batches []weak.Pointer[batch]
	var weighed, most, heaviest int64 // bytes: of all batches, of those there at once, of one
	looked := false
	m.cfg.Effect = func(name string) error {
		if name != "batch sealed" || end.Load() == 0 || m.applied >= LSN(end.Load()) {
			return nil
		}
		held := 0
		for _, tab := range m.tables {
			held += len(tab.sealed) + 1
			for _, s := range tab.sealed {
				if p := weak.Make(s.batch); !slices.Contains(batches, p) {
					batches = append(batches, p)
					weighed += s.batch.weight
					heaviest = max(heaviest, s.batch.weight)
				}
			}
		}
		most = max(most, m.memory.Load())
		if looked || weighed < times*bound {
			return nil
		}
		looked = true
		alive := func() (n int) {
			runtime.GC()
			for _, p := range batches {
				if p.Value() != nil {
					n++
				}
			}
			return n
		}
		// A flush that has just been installed is about to let go of its batches.
		for deadline := time.Now().Add(time.Minute); alive() > held; {
			if time.Now().After(deadline) {
				t.Errorf("of %d batches, %d are alive and %d not flushed yet", len(batches), alive(), held)
				break
			}
		}
		return nil
	}
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	opened(t, m)
	b.mu.Lock()
	var changes []message
	for i := range 100_000 {
		account, table := i%bankAccounts, i/bankAccounts%2
		changes = append(changes, message{'U'}.u32(uint32(table+1)).u8('N').tuple(accountRow(account, b.amounts[table][account])))
	}
	changes = append(changes, message{'I'}.u32(3).u8('N').tuple([]cell{val("1"), val("1"), nil}))
	b.logged++
	b.source.commit(changes)
	end.Store(uint64(b.source.insert))
	b.mu.Unlock()
	b.equal(t, m)
	if err := m.inTurn(ctx, func() error {
		if !looked {
			t.Errorf("%d bytes of batches were seen, want %d and more", weighed, times*bound)
		}
		if most > bound+heaviest*int64(len(m.tables)) {
			t.Errorf("batches of %d bytes at once, the bound is %d", most, bound)
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}
