package e2e

import (
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"pgmirror/mirror"
)

// On a disk of 48 MiB that something else fills, the mirror pauses before the end, answers queries, and goes on by itself when there is room; on
// one that is full to the last byte it ends by nothing, and loses nothing either.
func TestFullDisk(t *testing.T) {
	t.Parallel()
	pg := server(t, []string{"create table t(id int primary key, v text)", "insert into t select g, md5(g::text) from generate_series(1, 1000) g"})
	for name, least := range map[string]string{"paused": "8MiB", "full": "0"} {
		t.Run(name, func(t *testing.T) {
			m := NewMirror(t, pg, "p", "--min-free-disk", least, "--checkpoint-interval", "200ms", "--slot", "disk_"+name)
			must(t, os.MkdirAll(m.data, 0o700))
			if err := syscall.Mount("tmpfs", m.data, "tmpfs", 0, "size=48m"); err != nil {
				t.Skipf("mounting a small file system, which takes root: %v", err)
			}
			t.Cleanup(func() {
				m.Kill()
				must(t, syscall.Unmount(m.data, syscall.MNT_DETACH))
			})
			m.Start()
			m.WaitReady()
			filler := filepath.Join(m.data, "something-else")
			fill(t, filler, name == "full", 41<<20)
			pg.Exec("insert into t select g, md5(g::text) from generate_series((select max(id) + 1 from t), (select max(id) + 20000 from t)) g", "delete from t where id % 7 = 0")
			m.WaitStatus("it is paused", func(s *mirror.Status) bool {
				return s.State == "paused" && strings.Contains(s.Reason, "free space there")
			})
			if rows := m.SQLWith("select count(*) > 0 from t"); rows[0][0] != "true" {
				t.Errorf("a query while it is paused: %v", rows)
			}
			pg.Exec("update t set v = 'later' where id % 5 = 0")
			must(t, os.Remove(filler))
			m.WaitReady()
			alike(t, pg, m, "select count(*), count(*) filter (where v = 'later'), sum(id) from t")
			m.Checkpoint()
			restart(m)
			alike(t, pg, m, "select count(*), count(*) filter (where v = 'later'), sum(id) from t")
			m.Verify()
		})
	}
}

// fill writes a file until nothing more fits, or so many bytes.
func fill(t testing.TB, path string, all bool, bytes int) {
	t.Helper()
	f, err := os.Create(path)
	must(t, err)
	defer f.Close()
	for part := make([]byte, 4096); all || bytes > 0; bytes -= len(part) {
		if _, err := f.Write(part); err != nil {
			if !all {
				t.Fatal(err)
			}
			return
		}
	}
}
