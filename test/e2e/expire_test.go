package e2e

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"pgmirror/mirror"
	"pgmirror/readstate"
)

// expire takes out what the setting does not keep and deletes the files of before, but none that a query uses; another start does not either. What a killed
// process left is an orphan, what another program put there is not.
func TestExpire(t *testing.T) {
	t.Parallel()
	pg, m := scene(t, []string{"create table t(id int primary key, v text)", "create table idle(id int primary key)"}, "--checkpoint-interval", "1h", "--compact", "off", "--snapshots", "keep=2,age=1h,grace=0s")
	round := func() {
		t.Helper()
		pg.Exec("truncate t", "insert into t select i, 'v' || i from generate_series(1, 1000) i", "delete from t where id % 10 = 0")
		m.Checkpoint()
	}
	pg.Exec("insert into idle values (1)")
	m.Checkpoint()
	pg.Exec("insert into idle values (2)")
	round()
	client, err := readstate.Dial(t.Context(), m.Data())
	must(t, err)
	defer client.Close()
	state, err := client.Pin(t.Context(), readstate.PinRequest{})
	must(t, err)
	var pinned []string
	for _, table := range state.Tables {
		for _, f := range table.Files {
			pinned = append(pinned, f.Path)
		}
	}
	if len(pinned) < 2 {
		t.Fatalf("the pinned state has files %v", pinned)
	}
	missing := func() (gone []string) {
		for _, path := range pinned {
			if _, err := os.Stat(path); err != nil {
				gone = append(gone, path)
			}
		}
		return gone
	}
	for range 4 {
		round()
	}
	expire := func(args ...string) *mirror.ExpireReport {
		t.Helper()
		out, stderr, code := m.Command(append([]string{"expire", "--json"}, args...)...)
		if code != 0 {
			t.Fatalf("exit code %d: %s%s", code, out, stderr)
		}
		report := &mirror.ExpireReport{}
		must(t, json.Unmarshal([]byte(out), report))
		return report
	}
	snapshots := func(table string) (list []mirror.InspectSnapshot) {
		t.Helper()
		out, stderr, code := m.Command("inspect", table, "--json")
		var report mirror.InspectReport
		if err := json.Unmarshal([]byte(out), &report); err != nil || code != 0 {
			t.Fatalf("exit code %d: %s%s, %v", code, out, stderr, err)
		}
		return report.Snapshots
	}
	idle := len(snapshots("idle"))
	if dry := expire("--dry-run"); len(dry.Tables) != 1 || dry.Tables[0].Name != "public.idle" || len(snapshots("idle")) != idle || idle < 2 {
		t.Errorf("%+v; idle has %d snapshots", dry, idle)
	}
	if r := expire(); len(r.Tables) != 1 || r.Tables[0].Kept != 1 || r.Waiting == 0 {
		t.Errorf("%+v", r)
	}
	if gone := missing(); len(gone) > 0 {
		t.Fatalf("files of a pinned state are gone: %v", gone)
	}
	if got := snapshots("t"); len(got) != 2 || !slices.Equal(got[0].HeldBy, []string{"checkpoint"}) || !slices.Equal(got[1].HeldBy, []string{"current"}) || got[0].LSN >= got[1].LSN {
		t.Errorf("t retains %+v", got)
	}
	state.Release()
	for deadline := time.Now().Add(time.Minute); len(missing()) == 0 && time.Now().Before(deadline); time.Sleep(10 * time.Millisecond) {
		expire() // the release takes a moment to arrive
	}
	if s, err := m.Status(); err != nil || s.WaitingFiles != 0 || len(missing()) == 0 {
		t.Errorf("no reader is there, but %+v wait, %v; of the pinned state are gone %v", s, err, missing())
	}

	data := filepath.Dir(pinned[slices.IndexFunc(pinned, func(path string) bool { return strings.Contains(path, "/t-") })])
	write := func(name string) string {
		path := filepath.Join(data, name)
		must(t, os.WriteFile(path, []byte("left behind"), 0o600))
		must(t, os.Chtimes(path, time.Time{}, time.Now().Add(-time.Hour)))
		return path
	}
	orphan, other := write("01234567-89ab-4cde-8f01-23456789abcd.parquet"), write("00000-0-of-another-program.parquet")
	if r := expire("--orphans", "--dry-run"); !slices.Equal(r.Orphans, []string{orphan}) {
		t.Errorf("orphans: %v", r.Orphans)
	}
	expire()
	if _, err := os.Stat(orphan); err != nil {
		t.Errorf("deleted though nobody asked for it: %v", err)
	}
	if r := expire("--orphans"); !slices.Equal(r.Orphans, []string{orphan}) {
		t.Errorf("orphans: %v", r.Orphans)
	}
	if _, err := os.Stat(orphan); err == nil {
		t.Error("the orphan is still there")
	}
	if _, err := os.Stat(other); err != nil {
		t.Errorf("another program's file: %v", err)
	}
	same := func() {
		t.Helper()
		alike(t, pg, m, "select id, v from t order by id")
		alike(t, pg, m, "select id from idle order by id")
	}
	same()
	restart(m)
	same()
	round()
	same()
	m.Verify()
}
