package mirror

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"pgmirror/iceberg"
	"pgmirror/readstate"
)

// metric is the value of a mirror's metric for the second table of a bank; -1 when there is none.
func metric(t *testing.T, m *Mirror, name string) float64 {
	t.Helper()
	registry := prometheus.NewPedanticRegistry()
	if err := registry.Register(m); err != nil {
		t.Fatal(err)
	}
	families, err := registry.Gather()
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range families {
		for _, x := range f.GetMetric() {
			labels := x.GetLabel()
			if f.GetName() == name && (len(labels) == 0 || labels[0].GetValue() == "public.b") {
				return x.GetGauge().GetValue()
			}
		}
	}
	return -1
}

// readB sums up the second table of a bank at an LSN, or gives the error of its read.
func (b *bank) readB(t *testing.T, m *Mirror, at LSN) (int64, string) {
	t.Helper()
	st, err := m.Pin(t.Context(), readstate.PinRequest{At: at})
	if err != nil {
		return 0, err.Error()
	}
	defer st.Release()
	rt, ok := st.Table(readstate.TableName{Schema: "public", Name: "b"})
	if !ok {
		return 0, "no such table"
	}
	if rt.Err != "" {
		return 0, rt.Err
	}
	sum, _, err := b.sum(st, "b")
	if err != nil {
		t.Fatal(err)
	}
	return sum, ""
}

// TestTableIsGone: a table that the source does not publish any more is gone and not failed, in status, verify and the metrics, in this
// life and the next; what it held last can be read. Put back, it is copied again.
func TestTableIsGone(t *testing.T) {
	b := newBank(7)
	held := int64(0)
	gone := func(m *Mirror) {
		t.Helper()
		until(t, m, stands("gone"))
		st, err := m.status(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		good := LSN(0)
		for _, ts := range st.Tables {
			if ts.Name == "public.b" {
				good = parseLSN(t, ts.DurableLSN)
			}
		}
		if _, text := b.readB(t, m, 0); !strings.Contains(text, "gone since") || !strings.Contains(text, "--at "+good.String()) || !strings.Contains(text, "pgmirror forget") {
			t.Errorf("reading it: %q", text)
		}
		if _, text := b.readB(t, m, 1); !strings.Contains(text, "history (0s)") || !strings.Contains(text, "start of run") || !strings.Contains(text, "table public.b, which is gone, can be read at "+good.String()) {
			t.Errorf("reading it below the window: %q", text)
		}
		if sum, text := b.readB(t, m, good); sum != held || text != "" {
			t.Errorf("its last content adds up to %d, want %d: %s", sum, held, text)
		}
		rep, err := m.Verify(t.Context(), VerifyRequest{}, func(string) {})
		if err != nil || !rep.Equal || rep.Tables[1].Outcome != VerifySkipped || !rep.Tables[1].Gone {
			t.Errorf("verify: %+v, %v", rep, err)
		}
		if failed, gone := metric(t, m, "pgmirror_table_failed"), metric(t, m, "pgmirror_table_gone"); failed != 0 || gone != 1 {
			t.Errorf("the metrics say failed %v, gone %v", failed, gone)
		}
	}
	b.live(t, func(m *Mirror) {
		for range 20 {
			b.transfer()
		}
		b.equal(t, m)
		held, _ = b.readB(t, m, 0)
		b.show(1, 3)
		gone(m)
	})
	b.live(t, func(m *Mirror) {
		gone(m)
		b.show(1, 2, 3)
		until(t, m, stands("streaming"))
		b.equal(t, m)
	})
}

// TestFailedTableIsGone: a table that had failed is gone once the source does not publish it any more.
func TestFailedTableIsGone(t *testing.T) {
	b := newBank(7)
	b.spoil(2)
	m := b.failing(t)
	if metric(t, m, "pgmirror_table_failed") != 1 {
		t.Error("the metrics do not say that it has failed")
	}
	b.show(1, 3)
	until(t, m, stands("gone"))
}

// TestForget: a table that is gone is removed from the mirror and the catalog while a reader of it goes on, and is not there in the next life;
// one that is published is refused; one that comes back is copied.
func TestForget(t *testing.T) {
	b := newBank(7)
	forget := func(m *Mirror) error {
		_, err := m.Call(t.Context(), "forget", []byte(`{"tables": ["b"]}`), nil)
		return err
	}
	inCatalog := func() bool {
		st, err := b.ware.Load(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		return slices.ContainsFunc(st.Tables, func(s iceberg.TableState) bool { return s.Name.Name == "b" })
	}
	b.live(t, func(m *Mirror) {
		for range 20 {
			b.transfer()
		}
		b.equal(t, m)
		if err := forget(m); err == nil || !strings.Contains(err.Error(), "is published") {
			t.Errorf("a table that is published: %v", err)
		}
		reader, err := m.Pin(t.Context(), readstate.PinRequest{})
		if err != nil {
			t.Fatal(err)
		}
		defer reader.Release()
		before, _, err := b.sum(reader, "b")
		if err != nil {
			t.Fatal(err)
		}
		b.show(1, 3)
		until(t, m, stands("gone"))
		if err := forget(m); err != nil {
			t.Fatal(err)
		}
		if inCatalog() {
			t.Error("the catalog still has it")
		}
		if _, text := b.readB(t, m, 0); text != "no such table" {
			t.Errorf("reading it: %q", text)
		}
		for range 20 {
			b.transfer()
		}
		if _, err := m.Call(t.Context(), "checkpoint", nil, nil); err != nil {
			t.Fatal(err)
		}
		if after, _, err := b.sum(reader, "b"); err != nil || after != before {
			t.Errorf("the reader finds %d where it found %d: %v", after, before, err)
		}
		if err := m.Check(t.Context()); err != nil {
			t.Error(err)
		}
	})
	b.live(t, func(m *Mirror) {
		if _, text := b.readB(t, m, 0); text != "no such table" {
			t.Errorf("in the next life: %q", text)
		}
		b.show(1, 2, 3)
		until(t, m, stands("streaming"))
		b.equal(t, m)
	})
}

func parseLSN(t *testing.T, text string) LSN {
	t.Helper()
	var high, low uint32
	if n, err := fmt.Sscanf(text, "%X/%X", &high, &low); n != 2 || err != nil {
		t.Fatalf("no LSN: %q", text)
	}
	return LSN(high)<<32 | LSN(low)
}
