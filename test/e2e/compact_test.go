package e2e

import (
	"strings"
	"testing"

	"pgmirror/mirror"
)

// S-I8: files that many checkpoints made become few by themselves, compact makes one of them, and all readers go on finding the source's rows,
// over a restart too.
func TestCompact(t *testing.T) {
	t.Parallel()
	pg, m := scene(t, []string{"create table t(id int primary key, v text, n numeric(8,2), a int[])", "create table log(line text)"}, "--checkpoint-interval", "1h")
	for i := range 40 {
		n := itoa(i * 100)
		pg.Exec("begin; insert into t select i, 'v' || i, i / 3.0, array[i, null] from generate_series(" + n + ", " + n + " + 99) i; update t set v = v || '+' where id % 7 = " + itoa(i%7) + "; " +
			"delete from t where id % 11 = " + itoa(i%11) + "; insert into log values ('line " + n + "'); commit")
		m.Checkpoint()
	}
	few := func(most int) {
		t.Helper()
		m.WaitStatus("few files are left", func(s *mirror.Status) bool {
			return Table(t, s, "public.t").Files <= most && Table(t, s, "public.log").Files <= most
		})
	}
	few(12)
	alike(t, pg, m, "select id, v, n from t order by id")
	stop := writeBehind(t, pg, "insert into t values ($1, 'w', 1, null)", "update t set v = 'x' where id % 97 = $1 % 97", "delete from t where id = $1 - 5")
	out, stderr, code := m.Command("compact", "t")
	if code != 0 || !strings.Contains(out, "public.t") {
		t.Fatalf("exit code %d: %s%s", code, out, stderr)
	}
	if _, stderr, code := m.Command("compact"); code != 0 {
		t.Fatalf("exit code %d: %s", code, stderr)
	}
	stop()
	few(3) // none of t, where the writes behind have updated every row since
	m.Checkpoint()
	few(3)
	if s, err := m.Status(); err != nil || Table(t, s, "public.t").Files == 0 || Table(t, s, "public.log").Files != 1 {
		t.Errorf("%+v, %v", s, err)
	}
	same := func() {
		t.Helper()
		alike(t, pg, m, "select id, v, n from t order by id")
		alike(t, pg, m, "select line from log order by line")
	}
	same()
	m.Verify()
	restart(m)
	same()
	pg.Exec("update t set v = 'after' where id % 3 = 0", "delete from t where id % 5 = 0")
	same()
	m.Checkpoint()
	m.Verify()
}
