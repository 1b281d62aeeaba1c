package mirror

import (
	"context"
	"sync"
	"testing"
)

// TestStopInsideTransaction: a stop does not wait for the end of a transaction, which may be hours away: what was visible
// before it is made durable, nothing of the transaction is, and the next life gets it whole.
func TestStopInsideTransaction(t *testing.T) {
	b := newBank(3)
	for range 50 {
		b.transfer()
	}
	ctx, stop := context.WithCancel(context.Background())
	defer stop()
	m := b.mirror(t)
	var stopOnce sync.Once
	var large LSN // where the large transaction begins; the applier reads it after the commit was sent
	m.cfg.Effect = func(name string) error {
		if name == "batch sealed" && large != 0 && m.steps > 0 && m.applied >= large {
			stopOnce.Do(func() { stop(); <-m.stop })
		}
		return nil
	}
	ended := make(chan error, 1)
	go func() { ended <- m.Run(ctx) }()
	opened(t, m)
	for range 20 {
		b.transfer()
	}
	if _, err := m.Call(ctx, "checkpoint", nil, nil); err != nil {
		t.Fatal(err)
	}
	b.mu.Lock()
	var changes []message
	for i := range 40_000 {
		account := i % bankAccounts
		table := i / bankAccounts % 2
		changes = append(changes, message{'U'}.u32(uint32(table+1)).u8('N').tuple(accountRow(account, b.amounts[table][account])))
	}
	changes = append(changes, message{'I'}.u32(3).u8('N').tuple([]cell{val("1"), val("1"), nil}))
	b.logged++
	err := m.inTurn(context.Background(), func() error { large = b.source.insert; return nil })
	b.source.commit(changes)
	end := b.source.insert
	b.mu.Unlock()
	if err != nil {
		t.Fatal(err)
	}
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
	cut := b.ware.lastCut()
	if slot, _, _ := b.source.Slot(context.Background()); cut != m.marks.high() || cut >= end || slot.ConfirmedFlush != cut {
		t.Fatalf("visible %s, durable %s, acknowledged %s, the transaction ends at %s", m.marks.high(), cut, slot.ConfirmedFlush, end)
	}
	ctx, stop = context.WithCancel(context.Background())
	defer stop()
	next := b.mirror(t)
	go func() { ended <- next.Run(ctx) }()
	opened(t, next)
	b.equal(t, next)
	stop()
	if err := <-ended; err != nil {
		t.Fatal(err)
	}
}
