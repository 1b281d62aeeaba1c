package e2e

import (
	"testing"

	"pgmirror/test/harness"
)

// A second instance on the same data directory is refused, and the first runs on.
func TestSecondInstance(t *testing.T) {
	t.Parallel()
	pg := harness.StartPostgres(t)
	pg.Exec("create table t(id int primary key, v text)", "insert into t values (1, 'a'), (2, null), (3, '')")
	pg.CreateMirrorRole(mirrorRole, "postgres")
	pg.Exec("create publication p for all tables")
	m := StartMirror(t, pg, "p")

	_, errs, code := m.Command("run", "--source", m.source, "--publication", "p", "--listen", "off")
	if code != 3 {
		t.Fatalf("a second instance: exit code %d, %s", code, errs)
	}
	pg.Exec("update t set v = 'b' where id = 1")
	if got := m.SQL("select * from t order by id"); len(got) != 3 || got[0][1] != "b" || got[1][1] != null || got[2][1] != "" {
		t.Fatalf("rows %q", got)
	}
	m.Verify()
	if code := m.Stop(); code != 0 {
		t.Fatalf("SIGTERM: exit code %d", code)
	}
}
