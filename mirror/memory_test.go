package mirror

import (
	"encoding/binary"
	"math/rand/v2"
	"runtime"
	"strings"
	"testing"
	"time"
	"unsafe"

	"pgmirror/deletion"
	"pgmirror/readstate"
)

// heap is what is reachable on Go's heap, in bytes.
func heap() int64 {
	var s runtime.MemStats
	runtime.GC()
	runtime.GC() // what pools hold goes with the second
	runtime.ReadMemStats(&s)
	return int64(s.HeapAlloc)
}

// The sum of the kinds of memory stays near what Go's heap has, whatever the rows are doing: in batches, deleted, flushed but seen by a read
// state, copied.
func TestMemoryAccount(t *testing.T) {
	const rows = 400_000
	types := append([]uint32{}, accountColumns...)
	types = append(types, oidText)
	before := heap()
	m, tbl, _ := benchTable(t, types...)
	near := func(phase string, least int64) {
		t.Helper()
		m.weigh(tbl.open.batch)
		m.weighVisibility()
		is, told := heap()-before, m.memory.Load()+m.visible.Load()+m.pinned.Load()+m.copyRows.Load()
		t.Logf("%-10s heap %5.1f MiB, account %5.1f MiB (batches %.1f, visibility %.1f, pinned %.1f, copies %.1f)", phase, float64(is)/(1<<20), float64(told)/(1<<20),
			float64(m.memory.Load())/(1<<20), float64(m.visible.Load())/(1<<20), float64(m.pinned.Load())/(1<<20), float64(m.copyRows.Load())/(1<<20))
		if slack := is/5 + 2<<20; told < is-slack || told > is+slack {
			t.Errorf("%s: the account says %d bytes, the heap has %d", phase, told, is)
		}
		if told < least {
			t.Errorf("%s: the account says %d bytes, less than %d", phase, told, least)
		}
	}
	row := binaryRow(types, strings.Repeat("x", 40))
	for i := range rows {
		binary.BigEndian.PutUint32(row[0].Data, uint32(i))
		if err := m.sealFull(tbl); err != nil {
			t.Fatal(err)
		}
		if err := tbl.add(m, row, nil, location{}, LSN(i+1)); err != nil {
			t.Fatal(err)
		}
	}
	tbl.open.batch.publish()
	near("batches", rows*(40+7*4))

	batches := m.memory.Load()
	random := rand.New(rand.NewPCG(1, 2))
	for _, s := range tbl.sealed {
		for _, r := range random.Perm(s.batch.rows) {
			if err := tbl.remove(location{s, uint32(r)}, rows+1); err != nil {
				t.Fatal(err)
			}
		}
	}
	near("deletions", batches+rows*8)
	if m.visible.Load() < rows*8 {
		t.Errorf("the deletions take %d bytes", m.visible.Load())
	}

	tbl.install()
	m.updateShared()
	st, err := m.stateAt(rows, func() {}, newest) // before the deletions
	if err != nil {
		t.Fatal(err)
	}
	for _, s := range tbl.sealed { // a flush, whose file has no deletions
		s.batch.index, s.batch.hashes = nil, nil
		m.letGo(s.batch)
		s.vis = deletion.NewVisibility(rows + 1)
	}
	tbl.sealed = nil
	tbl.install()
	near("pinned", rows*(40+7*4))
	if m.pinned.Load() < rows*(40+7*4) {
		t.Errorf("the read state pins %d bytes", m.pinned.Load())
	}
	st.Release()
	runtime.KeepAlive(st)
	st = nil
	if m.pinned.Load() != 0 {
		t.Errorf("the read state has ended and pins %d bytes", m.pinned.Load())
	}
	near("released", 0)

	copied := newCopyRows(m, tbl, 1)
	for i := range rows / 4 {
		binary.BigEndian.PutUint32(row[0].Data, uint32(i))
		if err := copied.add(row); err != nil {
			t.Fatal(err)
		}
	}
	copied.weigh(nil)
	near("copies", rows/4*(40+7*4))
	copied.free()
	if m.copyRows.Load() != 0 {
		t.Errorf("%d bytes of copies are left", m.copyRows.Load())
	}
	runtime.KeepAlive(copied)

	m.marks.history = time.Hour
	for i := range rows {
		m.marks.publishCommit(LSN(rows+2+i), someTime.Add(time.Duration(i)*time.Millisecond), someTime)
	}
	near("commit times", rows*int64(unsafe.Sizeof(timedState{})))
	runtime.KeepAlive(m)
}

// Whatever kind of memory it is that grows, batches are flushed and changes wait before the bound is reached, down to a quarter of it for the batches.
func TestMemoryRoom(t *testing.T) {
	const bound = 64 << 20
	for name, grow := range map[string]func(m *Mirror, n int64){
		"batches":    func(m *Mirror, n int64) { m.memory.Add(n) },
		"visibility": func(m *Mirror, n int64) { m.visible.Add(n) },
		"pinned":     func(m *Mirror, n int64) { m.pinned.Add(n) },
		"copies":     func(m *Mirror, n int64) { m.copyRows.Add(n) },
	} {
		m, _, _ := benchTable(t, accountColumns...)
		m.cfg.Memory = bound
		m.memory.Store(bound/4 + 1)
		if m.short() || m.full() {
			t.Errorf("%s: memory is short from the start", name)
		}
		grow(m, bound/2)
		if !m.short() {
			t.Errorf("%s: memory is not short", name)
		}
		grow(m, bound/4)
		if !m.full() {
			t.Errorf("%s: changes do not wait at the bound", name)
		}
		if m.memory.Store(bound/4 - 1); name != "batches" {
			grow(m, 100*bound)
			if m.full() {
				t.Errorf("%s: the batches have less than a quarter of the bound", name)
			}
		}
	}
}

// What is left in open batches that are too small to be sealed stays below half of the bound, of however many tables.
func TestSmallOpenBatches(t *testing.T) {
	m, _, _ := benchTable(t, accountColumns...)
	for _, tables := range []int{1, 100, 5000, 20_000} {
		for _, bound := range []int64{256 << 20, 1 << 30} {
			m.cfg.Memory, m.tables = bound, make([]*table, tables)
			if left := int64(tables) * (m.sealLeast() - 1); left > bound/2 {
				t.Errorf("%d tables: %d bytes of %d could stay", tables, left, bound)
			}
		}
	}
}

// A lot of visibility is folded before its time, and not again before it has grown.
func TestVisibilityAsksForFolding(t *testing.T) {
	m, tbl, _ := benchTable(t, accountColumns...)
	m.cfg.Memory = 8 << 10
	row := binaryRow(accountColumns, "")
	asked := func() bool {
		m.weighVisibility()
		select {
		case <-m.wantFold:
			return true
		default:
			return false
		}
	}
	tbl.install()
	if asked() {
		t.Error("nothing is deleted")
	}
	for i := range 1000 {
		binary.BigEndian.PutUint32(row[0].Data, uint32(i))
		if err := tbl.add(m, row, nil, location{}, LSN(i+1)); err != nil {
			t.Fatal(err)
		}
	}
	for i := range 1000 {
		if err := tbl.remove(location{tbl.open, uint32(i)}, LSN(2000+i)); err != nil {
			t.Fatal(err)
		}
	}
	if !asked() {
		t.Errorf("%d bytes of deletions, and nothing is to be folded", m.visible.Load())
	}
	if m.folded = m.visible.Load(); asked() {
		t.Error("what was folded is to be folded again")
	}
}

// TestVectorsOfReadStatesCount: each vector that read states see counts once, from the first that sees it to the last, and when they weigh a quarter of the bound
// it is said.
func TestVectorsOfReadStatesCount(t *testing.T) {
	const rows = 100_000
	m, tbl, _ := benchTable(t, oidInt4)
	m.cfg.Memory = 1 << 20
	row := binaryRow([]uint32{oidInt4}, "")
	for i := range rows {
		binary.BigEndian.PutUint32(row[0].Data, uint32(i))
		if err := tbl.add(m, row, nil, location{}, 1); err != nil {
			t.Fatal(err)
		}
	}
	tbl.open.batch.publish()
	var states []*readstate.State
	random := rand.New(rand.NewPCG(1, 2)).Perm(rows)
	for lsn := LSN(2); lsn < 10; lsn++ {
		for _, r := range random[:rows/20] {
			if err := tbl.remove(location{tbl.open, uint32(r)}, lsn); err != nil {
				t.Fatal(err)
			}
		}
		random = random[rows/20:]
		tbl.install()
		m.updateShared()
		var before int64
		for again := range 2 {
			st, err := m.stateAt(lsn, func() {}, newest)
			if err != nil {
				t.Fatal(err)
			}
			states = append(states, st)
			if now := m.pinned.Load(); (now > before) != (again == 0) {
				t.Errorf("at %s, state %d: %d bytes after %d", lsn, again, now, before)
			} else {
				before = now
			}
		}
	}
	if n := m.pinned.Load(); n < 8*rows/8 || n > 20*rows/8 || m.ReadersWeigh() != (n >= 1<<18) {
		t.Errorf("%d bytes, too much: %v", n, m.ReadersWeigh())
	}
	m.cfg.Memory = 4 * m.pinned.Load()
	if !m.ReadersWeigh() {
		t.Error("a quarter is not too much")
	}
	for i, st := range states {
		if i%2 == 0 {
			st.Settle()
		}
		st.Release()
		st.Release()
	}
	if n := m.pinned.Load(); n != 0 || m.ReadersWeigh() {
		t.Errorf("%d bytes are counted for no state", n)
	}
}
