package main

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"

	"pgmirror/pgcdc"
	"pgmirror/test/harness"
)

// fakeSlots is a source with at most one slot.
type fakeSlots struct {
	info    pgcdc.SlotInfo
	found   bool
	err     error
	dropErr error
	dropped bool
}

func (f *fakeSlots) Slot(context.Context) (pgcdc.SlotInfo, bool, error) {
	return f.info, f.found, f.err
}

func (f *fakeSlots) DropSlot(context.Context) error {
	f.dropped = f.dropErr == nil
	return f.dropErr
}

// Only a pgoutput slot of this database is dropped; what is gone is no error; what may remain is named with its remedy.
func TestDropSlot(t *testing.T) {
	mine := pgcdc.SlotInfo{Name: "m_1", Plugin: "pgoutput", Database: "shop"}
	for name, c := range map[string]struct {
		source  fakeSlots
		dropped bool
		out     string // "" means an error
		err     string
	}{
		"found":           {fakeSlots{info: mine, found: true}, true, "dropped slot m_1", ""},
		"gone":            {fakeSlots{}, false, "gone already", ""},
		"database gone":   {fakeSlots{err: &pgconn.PgError{Code: "3D000"}}, false, "database shop is gone", ""},
		"other plugin":    {fakeSlots{info: pgcdc.SlotInfo{Plugin: "wal2json", Database: "shop"}, found: true}, false, "", "not this mirror's"},
		"other database":  {fakeSlots{info: pgcdc.SlotInfo{Plugin: "pgoutput", Database: "shop2"}, found: true}, false, "", "not this mirror's"},
		"source gone":     {fakeSlots{err: errors.New("connection refused")}, false, "", "SELECT pg_drop_replication_slot('m_1')"},
		"slot is in use":  {fakeSlots{info: mine, found: true, dropErr: pgcdc.ErrSlotActive}, false, "", "in use"},
		"password is bad": {fakeSlots{err: &pgconn.PgError{Code: "28P01"}}, false, "", "was not dropped"},
	} {
		var out strings.Builder
		a := &app{program: program{stdout: &out}}
		err := a.dropSlot(t.Context(), &c.source, target{slot: "m_1", database: "shop"})
		if c.source.dropped != c.dropped || (err == nil) != (c.err == "") || err != nil && !strings.Contains(err.Error(), c.err) || !strings.Contains(out.String(), c.out) {
			t.Errorf("%s: dropped %v, %q, %v", name, c.source.dropped, out.String(), err)
		}
	}
}

// Only "yes" is a yes.
func TestConfirm(t *testing.T) {
	for answer, want := range map[string]bool{"yes\n": true, "yes": true, " yes \r\n": true, "y\n": false, "YES\n": false, "no\n": false, "": false, "\nyes\n": false} {
		var out strings.Builder
		a := &app{program: program{stdin: strings.NewReader(answer), stderr: &out}}
		if err := a.confirm("Go on? "); (err == nil) != want {
			t.Errorf("%q: %v", answer, err)
		}
	}
}

// dropOnce runs drop and returns its exit code and output.
func dropOnce(t *testing.T, source, data string, more ...string) (int, string) {
	t.Helper()
	var out strings.Builder
	args := append([]string{"drop", "--yes", "--source", source, "--data", data}, more...)
	code := execute(t.Context(), args, program{stdin: strings.NewReader(""), stdout: &out, stderr: &out})
	return code, out.String()
}

// On a real server drop takes exactly its own slot and publication, also when half of everything is gone already.
func TestDropOnServer(t *testing.T) {
	pg := harness.StartPostgres(t)
	pg.Exec("CREATE DATABASE shop", "CREATE DATABASE other")
	pg.ExecIn("shop", "CREATE TABLE t(id int PRIMARY KEY)", "CREATE PUBLICATION p_1 FOR TABLE t", "CREATE PUBLICATION p_10 FOR TABLE t")
	for _, slot := range []string{"m_1", "m_10"} {
		pg.ExecIn("shop", "SELECT pg_create_logical_replication_slot('"+slot+"', 'pgoutput')")
	}
	pg.ExecIn("other", "SELECT pg_create_logical_replication_slot('elsewhere', 'pgoutput')")
	source := pg.SocketURL("postgres", "shop")
	data := filepath.Join(t.TempDir(), "data")
	slots := func() string {
		return pg.QueryRow("SELECT string_agg(slot_name, ',' ORDER BY slot_name) FROM pg_replication_slots")
	}

	// The data directory is absent; another database's slot and a slot in use are left alone.
	if code, out := dropOnce(t, source, data, "--slot", "elsewhere"); code != exitFinding || !strings.Contains(out, "not this mirror's") {
		t.Errorf("another database's slot: %d\n%s", code, out)
	}
	mustCreate(t, data)
	for _, name := range []string{"index", "spill", "warehouse"} {
		if err := os.Mkdir(filepath.Join(data, name), 0o700); err != nil {
			t.Fatal(err)
		}
	}

	// While a run holds the lock nothing is touched.
	held, err := openDataDir(data)
	if err != nil {
		t.Fatal(err)
	}
	if code, out := dropOnce(t, source, data, "--slot", "m_1"); code != exitCannotRun || !strings.Contains(out, "another pgmirror") {
		t.Errorf("while running: %d\n%s", code, out)
	}
	if err := held.Close(); err != nil {
		t.Fatal(err)
	}
	if got := slots(); got != "elsewhere,m_1,m_10" {
		t.Errorf("slots are %s", got)
	}

	if code, out := dropOnce(t, source, data, "--slot", "m_1", "--publication=p_1"); code != exitOK || !strings.Contains(out, "dropped slot m_1") || !strings.Contains(out, "dropped publication p_1\n") {
		t.Errorf("drop: %d\n%s", code, out)
	}
	if got := slots(); got != "elsewhere,m_10" {
		t.Errorf("slots are %s", got)
	}
	rows, err := pg.Open("postgres", "shop").Query("SELECT pubname FROM pg_publication")
	if err != nil || len(rows) != 1 || rows[0][0] != "p_10" {
		t.Errorf("publications are %v, %v", rows, err)
	}
	if remain := names(t, data); !slices.Equal(remain, []string{"FORMAT", "catalog.db", "lock", "warehouse"}) && !slices.Equal(remain, []string{"FORMAT", "lock", "warehouse"}) {
		t.Errorf("%q remain", remain)
	}

	// Again: everything is gone already, which is no fault.
	if code, out := dropOnce(t, source, data, "--slot", "m_1", "--publication=p_1", "--warehouse"); code != exitOK || !strings.Contains(out, "slot m_1 is gone already") || !strings.Contains(out, "publication p_1 is gone already") {
		t.Errorf("drop again: %d\n%s", code, out)
	}
	if _, err := os.Stat(data); err == nil {
		t.Errorf("%q remain", names(t, data))
	}
	if code, out := dropOnce(t, source, data, "--slot", "m_1"); code != exitOK || !strings.Contains(out, "no data directory") {
		t.Errorf("without a data directory: %d\n%s", code, out)
	}
	if code, out := dropOnce(t, pg.SocketURL("postgres", "vanished"), data, "--slot", "m_1"); code != exitOK || !strings.Contains(out, "database vanished is gone") {
		t.Errorf("without the database: %d\n%s", code, out)
	}

	// Without the server the local files go, and the finding says how to remove the slot.
	mustCreate(t, data)
	if err := os.Mkdir(filepath.Join(data, "index"), 0o700); err != nil {
		t.Fatal(err)
	}
	pg.Stop(harness.Fast)
	if code, out := dropOnce(t, source, data, "--slot", "m_10"); code != exitFinding || !strings.Contains(out, "pg_drop_replication_slot('m_10')") || !strings.Contains(out, "removed index") {
		t.Errorf("without the server: %d\n%s", code, out)
	}
	pg.Start()
	if got := slots(); got != "elsewhere,m_10" {
		t.Errorf("slots are %s", got)
	}
}

func names(t *testing.T, dir string) (names []string) {
	t.Helper()
	entries, err := os.ReadDir(dir)
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}
