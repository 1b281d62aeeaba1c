package e2e

import (
	"context"
	"os"
	"path/filepath"
	"testing"

	"github.com/jackc/pglogrepl"

	"pgmirror/mirror"
	"pgmirror/readstate"
)

// A read state that outlives read_state_limit no longer holds the window back, reads what it read, keeps its files through checkpoints and compaction, and
// leaves nothing behind, whether its connection or the whole process is killed.
func TestOldReadStateSettles(t *testing.T) {
	t.Parallel()
	pg, m := scene(t, []string{"create table t(id int primary key, v text)", "insert into t select i, 'v' || i from generate_series(1, 1000) i"}, "--read-state-limit", "1s")
	pg.Exec("delete from t where id % 10 = 0", "insert into t values (5000, 'memory')")
	answers(t, m, "select count(*) from t", "901")
	pin := func() (*readstate.Client, *readstate.State) {
		client, err := readstate.Dial(context.Background(), m.Data())
		if err != nil {
			t.Fatal(err)
		}
		st, err := client.Pin(context.Background(), readstate.PinRequest{VectorsLater: true})
		if err != nil {
			t.Fatal(err)
		}
		return client, st
	}
	files := func() int {
		list, err := filepath.Glob(filepath.Join(m.Data(), "reads", "*"))
		if err != nil {
			t.Fatal(err)
		}
		return len(list)
	}
	client, st := pin()
	within(t, "the state settles", func() bool { return files() == 1 })
	for range 3 {
		pg.Exec("update t set v = v || '+'")
		m.Checkpoint()
	}
	m.Command("compact", "t")
	m.WaitStatus("the window's floor passes the old state", func(s *mirror.Status) bool {
		floor, err := pglogrepl.ParseLSN(s.WindowFloorLSN)
		return err == nil && floor > st.LSN
	})
	table, err := st.Tables[0].Complete(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	rows := 0
	for _, f := range table.Files {
		if _, err := os.Stat(f.Path); err != nil {
			t.Error(err)
		}
		rows += int(f.Rows) - int(f.Deleted.Cardinality())
	}
	for _, b := range table.Batches {
		if _, err := b.Columns.Read([]int{0, 1}, 0, b.Rows); err != nil {
			t.Error(err)
		}
		rows += b.Rows - int(b.Deleted.Cardinality())
	}
	if rows != 901 {
		t.Errorf("the old state has %d rows", rows)
	}
	client.Close()
	within(t, "its file goes with the connection", func() bool { return files() == 0 })
	client, _ = pin()
	defer client.Close()
	within(t, "another state settles", func() bool { return files() == 1 })
	restart(m)
	if n := files(); n != 0 {
		t.Errorf("%d files are left of a life that was killed", n)
	}
	m.Verify()
}
