package mirror

import (
	"context"
	"testing"
)

// TestTruncatedIndexesGo: the FileIndexes of files that a TRUNCATE ended are removed from the disk once nobody sees the files.
func TestTruncatedIndexesGo(t *testing.T) {
	b := newBank(4)
	ctx := context.Background()
	w := &world{t: t}
	m := b.mirror(t)
	m.cfg.Memory = 1 << 30
	run, stop := context.WithCancel(ctx)
	ended := make(chan error, 1)
	go func() { ended <- m.applyLoop(run) }()
	w.check(m.recover(ctx))
	id, _ := b.source.Identify(ctx)
	b.logged = 20
	w.check(m.firstCopy(ctx, id))
	before := len(b.files.files)
	w.check(m.inTurn(ctx, func() error {
		lsn := m.applied + 10
		for _, tab := range m.tables {
			m.touch(tab)
			w.check(tab.truncate(m, lsn))
		}
		m.applied = lsn
		m.marks.publish(lsn, m.clock.Now())
		return nil
	}))
	w.check(m.checkpoint(ctx))
	if before == 0 || len(b.files.files) != 0 {
		t.Errorf("%d file indexes before the TRUNCATE, %d after it", before, len(b.files.files))
	}
	stop()
	<-ended
}
