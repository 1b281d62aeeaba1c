package mirror

import (
	"strings"
	"testing"
	"time"

	"pgmirror/pgcdc"
	"pgmirror/readstate"
)

// replaced gives the name of the bank's second table to another one, which gets a row by the stream; looks show that from now on.
func (b *bank) replaced(shown bool) {
	b.mu.Lock()
	defer b.mu.Unlock()
	def := tableDef(4, "b", 'd', []int{0}, []int{0, 1}, oidText, oidInt8, oidText)
	rows := b.source.rows
	b.source.rows = func(oid uint32, at LSN) [][]cell {
		if oid == def.OID {
			return [][]cell{accountRow(0, 4000), accountRow(1, 4000)}
		}
		return rows(oid, at)
	}
	b.source.mu.Lock()
	b.source.tables = []pgcdc.Table{b.source.tables[0], def, b.source.tables[2]}
	if !shown {
		b.source.catalog = []pgcdc.Table{b.source.tables[0], tableDef(2, "b", 'd', []int{0}, []int{0}, oidText, oidInt8, oidText), b.source.tables[2]}
	}
	b.source.mu.Unlock()
	b.source.commit([]message{relationMessage(&def), message{'I'}.u32(4).u8('N').tuple(accountRow(0, 4000)), message{'I'}.u32(4).u8('N').tuple(accountRow(1, 4000))})
}

// TestNameTaken: from the commit on by which the stream shows that a name is another table's, the table that had it is not read under it, long
// before a look at the catalogue.
func TestNameTaken(t *testing.T) {
	b := newBank(1)
	m := b.mirror(t)
	m.cfg.CatalogPoll = time.Hour
	b.going(t, m)
	opened(t, m)
	b.transfer()
	b.replaced(false)
	if err := m.marks.wait(t.Context(), b.source.end()); err != nil {
		t.Fatal(err)
	}
	if sum, why := b.readB(t, m, 0); !strings.Contains(why, reasonTaken) {
		t.Errorf("b is read: %d, %s", sum, why)
	}
	if st, err := m.status(t.Context()); err != nil || !stands("failed")(st) {
		t.Errorf("status: %v, %v", st.Tables, err)
	}
	b.source.mu.Lock()
	b.source.catalog = nil
	b.source.mu.Unlock()
	if _, err := m.look(t.Context(), true); err != nil {
		t.Fatal(err)
	}
	b.source.idle()
	until(t, m, stands("streaming"))
	if sum, why := b.readB(t, m, 0); why != "" || sum != 8000 {
		t.Errorf("the new table: %d, %s", sum, why)
	}
}

// TestReadAmongCatalogChanges: a read that waits for the source does not show a table that was replaced after the look that the read waited for,
// and by then without a row event.
func TestReadAmongCatalogChanges(t *testing.T) {
	b := newBank(1)
	m := b.mirror(t)
	m.cfg.CatalogPoll = time.Hour
	b.going(t, m)
	opened(t, m)
	looks := 0
	b.source.mu.Lock()
	b.source.looking = func() {
		if looks++; looks == 2 { // the one after the read has its LSN
			b.show(1, 3)
		}
	}
	b.source.mu.Unlock()
	st, err := m.Pin(t.Context(), readstate.PinRequest{WaitSource: true})
	if err != nil {
		t.Fatal(err)
	}
	defer st.Release()
	if rt, ok := st.Table(readstate.TableName{Schema: "public", Name: "b"}); !ok || !strings.Contains(rt.Err, reasonGone) {
		t.Errorf("b after %d looks: %+v", looks, rt)
	}
	if rt, ok := st.Table(readstate.TableName{Schema: "public", Name: "a"}); !ok || rt.Err != "" {
		t.Errorf("a: %+v", rt)
	}
}
