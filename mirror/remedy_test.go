package mirror

import (
	"context"
	"log/slog"
	"strings"
	"testing"
)

// TestFailureIsLogged: a table that fails at a row is logged with its column and remedy and without the row's key, which is a value; the next
// life tells of it once.
func TestFailureIsLogged(t *testing.T) {
	b := newBank(10)
	life := func(do func(m *Mirror)) string {
		log := &logText{}
		m := b.mirror(t)
		m.cfg.Log = slog.New(slog.NewTextHandler(log, nil))
		b.run(t, m, func() { do(m) })
		return log.String()
	}
	first := life(func(m *Mirror) {
		b.source.commit([]message{message{'I'}.u32(2).u8('N').tuple([]cell{val("secret-key"), {wire: "no number", bad: true}, nil})})
		until(t, m, stands("failed"))
		st, err := m.status(context.Background())
		if err != nil {
			t.Fatal(err)
		}
		if ts := st.Tables[1]; !strings.Contains(ts.ErrorKey, "secret-key") || ts.Remedy == "" {
			t.Errorf("status: %+v", ts)
		}
	})
	if strings.Count(first, "table failed") != 1 || !strings.Contains(first, "pgmirror resync") || strings.Contains(first, "secret") || !strings.Contains(first, "see pgmirror status") {
		t.Errorf("the log is\n%s", first)
	}
	if next := life(func(*Mirror) {}); strings.Count(next, "a table is still failed") != 1 || strings.Contains(next, "secret") {
		t.Errorf("the next log is\n%s", next)
	}
}

// TestRemedies: a remedy is a whole sentence that begins with what is cheapest.
func TestRemedies(t *testing.T) {
	for _, remedy := range []string{remedyGone, remedyChanged, remedyUnsupported, remedyRow, remedyOutdated, remedyUnrepresentable, remedyDamaged} {
		if strings.HasPrefix(remedy, "then ") || strings.HasPrefix(remedy, "and ") || strings.HasPrefix(remedy, ";") {
			t.Errorf("it begins in the middle: %s", remedy)
		}
	}
	if !strings.HasPrefix(remedyUnrepresentable, "correct the row on the source") {
		t.Error(remedyUnrepresentable)
	}
}
