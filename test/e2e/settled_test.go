package e2e

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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
	m.WaitStatus("status tells of it", func(s *mirror.Status) bool {
		return s.Readers == 1 && s.SettledReaders == 1 && s.SettledBytes > 0 && s.EndedReaders == 0
	})
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
	m.WaitStatus("status tells of none", func(s *mirror.Status) bool { return s.Readers == 0 && s.SettledReaders == 0 && s.SettledBytes == 0 })
	client, _ = pin()
	defer client.Close()
	within(t, "another state settles", func() bool { return files() == 1 })
	restart(m)
	if n := files(); n != 0 {
		t.Errorf("%d files are left of a life that was killed", n)
	}
	m.Verify()
}

// A change feed settles too, and goes on showing its rows.
func TestOldChangeFeedSettles(t *testing.T) {
	t.Parallel()
	pg, m := scene(t, []string{"create table t(id int primary key, v text)", "insert into t select i, 'v' || i from generate_series(1, 10) i"}, "--read-state-limit", "1s")
	ctx := context.Background()
	client, err := readstate.Dial(ctx, m.Data())
	must(t, err)
	defer client.Close()
	before, err := client.Pin(ctx, readstate.PinRequest{})
	must(t, err)
	pg.Exec("update t set v = v || '+' where id <= 3", "delete from t where id = 10")
	m.SQL("from t limit 0")
	feed, err := client.Pin(ctx, readstate.PinRequest{Changes: &readstate.Changes{Table: readstate.TableName{Schema: "public", Name: "t"}, From: before.LSN}})
	must(t, err)
	for range 2 {
		pg.Exec("update t set v = v || '+'")
		m.Checkpoint()
	}
	m.WaitStatus("the window's floor passes the feed", func(s *mirror.Status) bool {
		floor, err := pglogrepl.ParseLSN(s.WindowFloorLSN)
		return err == nil && floor > feed.LSN
	})
	table, err := feed.Tables[0].Complete(ctx)
	must(t, err)
	var got []string
	for _, b := range table.Batches {
		columns, err := b.Columns.Read([]int{0, 2, 3}, 0, b.Rows)
		must(t, err)
		for row := range b.Rows {
			got = append(got, fmt.Sprintf("%s %s %s", columns[0].ValueStr(row), columns[1].ValueStr(row), columns[2].ValueStr(row)))
		}
	}
	slices.Sort(got)
	want := []string{"delete 1 v1", "delete 10 v10", "delete 2 v2", "delete 3 v3", "insert 1 v1+", "insert 2 v2+", "insert 3 v3+"}
	if !slices.Equal(got, want) {
		t.Errorf("the feed has %q, want %q", got, want)
	}
}
