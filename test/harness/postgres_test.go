package harness

import (
	"os"
	"path/filepath"
	"testing"
)

// What was committed survives a kill and a fast stop, and an older copy of the data directory brings the older rows back.
func TestPostgresLife(t *testing.T) {
	p := StartPostgres(t, Setting("work_mem", "5MB"), Setting("fsync", "on"))
	if got := p.QueryRow("select current_setting('work_mem'), current_setting('wal_level'), current_setting('fsync')"); got != "5MB|logical|on" {
		t.Fatalf("settings are %s", got)
	}
	p.Exec("create table t(id int)", "insert into t values (1)")
	p.Kill()
	p.Start()
	if got := p.QueryRow("select count(*) from t"); got != "1" {
		t.Fatalf("%s rows after a kill", got)
	}
	p.Stop(Fast)
	older := filepath.Join(t.TempDir(), "older")
	p.CopyDataDir(older)
	p.Start()
	p.Exec("insert into t values (2)")
	p.Stop(Immediate)
	p.Start()
	if got := p.QueryRow("select count(*) from t"); got != "2" {
		t.Fatalf("%s rows after an immediate stop", got)
	}
	p.Stop(Fast)
	p.RestoreDataDir(older)
	p.Start()
	if got := p.QueryRow("select count(*) from t"); got != "1" {
		t.Fatalf("%s rows in the restored cluster", got)
	}
}

// A missing server is told with what to install.
func TestMissingPrograms(t *testing.T) {
	t.Setenv("PGMIRROR_PG_BIN", filepath.Join(t.TempDir(), "none"))
	dir := t.TempDir()
	if _, err := Start(dir); err == nil {
		t.Fatal("a server was started from a directory that does not exist")
	}
	if entries, _ := os.ReadDir(dir); len(entries) != 0 {
		t.Fatalf("%d entries were left behind", len(entries))
	}
}
