package pgcdc_test

import (
	"errors"
	"fmt"
	"os"
	"slices"
	"testing"

	"pgmirror/pgcdc"
	"pgmirror/test/harness"
)

// newStreamedRig is a rig whose walsender streams what takes more than 64 kB, and whose Source spills at spillBytes.
func newStreamedRig(t *testing.T, p *harness.Postgres, spillBytes int64) *rig {
	t.Helper()
	r := newRig(t, p, func(c *pgcdc.Config) { c.SpillBytes = spillBytes })
	p.Exec("ALTER ROLE " + r.name + " SET logical_decoding_work_mem = '64kB'")
	r.exec("CREATE TABLE t(id int PRIMARY KEY, v text)")
	r.publish("FOR TABLE t")
	r.createSlot()
	r.CloseSnapshot()
	return r
}

// spills names the files in the rig's spill directory.
func (r *rig) spills() (names []string) {
	r.t.Helper()
	entries, err := os.ReadDir(r.cfg.SpillDir)
	if err != nil {
		r.t.Fatal(err)
	}
	for _, entry := range entries {
		names = append(names, entry.Name())
	}
	return names
}

// taken takes a feed's events as they come, so that the stream never waits for the test.
func (f *feed) taken() *feed {
	from, to, ended := f.events, make(chan pgcdc.Event, 10_000), make(chan struct{})
	buffered := *f
	buffered.events = to
	f.t.Cleanup(func() { close(ended) })
	go func() {
		for {
			select {
			case e := <-from:
				to <- e
			case <-ended:
				return
			}
		}
	}()
	return &buffered
}

// A transaction that is streamed while it runs holds back neither others nor what is acknowledged. When the connection is lost it
// comes again from its first row, what was staged of it is gone, and so is a file that an earlier life left. The server is its own: the
// making of another test's slot would wait for the open transaction.
func TestStreamInProgress(t *testing.T) {
	p := harness.StartPostgres(t)
	r := newStreamedRig(t, p, 100_000)
	if err := os.WriteFile(r.cfg.SpillDir+"/transaction-earlier.spill", []byte("x"), 0o600); err != nil {
		t.Fatal(err)
	}
	f := r.stream(r.Source, false).taken()
	open, aborted := p.Open("postgres", r.name), p.Open("postgres", r.name)
	open.Exec("BEGIN", "INSERT INTO t SELECT i, repeat('a', 100) FROM generate_series(1, 2000) i")
	aborted.Exec("BEGIN", "INSERT INTO t SELECT i, repeat('b', 100) FROM generate_series(10001, 12000) i")
	eventually(t, "both are staged in files", func() bool { return len(r.spills()) == 2 && !slices.Contains(r.spills(), "transaction-earlier.spill") })
	aborted.Exec("ROLLBACK")
	r.exec("INSERT INTO t VALUES (20000, 'between')", "CHECKPOINT")
	later, rows := f.rows()
	if !slices.Equal(rows, []string{"insert public.t 20000|between"}) {
		t.Fatalf("%q", rows)
	}
	if names := r.spills(); len(names) != 1 {
		t.Errorf("after a rollback: %v", names)
	}
	r.Acknowledge(later.EndLSN)
	eventually(t, "the slot moves past the open transaction's start", func() bool { return r.slot().ConfirmedFlush >= later.EndLSN })

	before := r.spills()
	p.Exec(fmt.Sprintf("SELECT pg_terminate_backend(%d)", r.slot().ActivePID))
	if err := f.end(); !pgcdc.IsRetryable(err) {
		t.Fatal(err)
	}
	f = r.stream(r.Source, false).taken()
	open.Exec("SAVEPOINT a", "INSERT INTO t SELECT i, repeat('c', 100) FROM generate_series(2001, 4000) i", "ROLLBACK TO a",
		"INSERT INTO t SELECT i, repeat('d', 100) FROM generate_series(2001, 2003) i")
	eventually(t, "it is staged again", func() bool { names := r.spills(); return len(names) == 1 && names[0] != before[0] })
	open.Exec("COMMIT")
	transaction, rows := f.rows()
	if len(rows) != 2003 || transaction.Rows != 2003 || !transaction.Spilled || transaction.EndLSN <= later.EndLSN {
		t.Fatalf("%d rows, %d counted, %+v", len(rows), transaction.Rows, transaction)
	}
	for i, row := range rows {
		if want := fmt.Sprintf("insert public.t %d|", i+1); row[:len(want)] != want {
			t.Fatalf("row %d is %.60s", i, row)
		}
	}
	if names := r.spills(); len(names) != 0 {
		t.Errorf("in the end: %v", names)
	}
	if p.QueryRow("SELECT sum(stream_txns) > 0 FROM pg_stat_replication_slots WHERE slot_name = '"+r.name+"'") != "t" {
		t.Error("the server streamed nothing")
	}
}

// A transaction that the server cannot decode while it runs arrives whole, at the next try (PostgreSQL 14 to 17: a table
// altered in a part that was rolled back, and truncated later).
func streamUndecodable(t *testing.T, p *harness.Postgres) {
	r := newStreamedRig(t, p, 0)
	r.exec("CREATE TABLE filler(id int PRIMARY KEY, v text)", "ALTER PUBLICATION "+r.name+" ADD TABLE filler")
	writer := p.Open("postgres", r.name)
	writer.Exec("BEGIN", "SAVEPOINT a", "ALTER TABLE t ADD COLUMN c int DEFAULT 1",
		"INSERT INTO filler SELECT i, repeat('v', 34) FROM generate_series(1, 400) i",
		"ALTER TABLE t ADD COLUMN d int DEFAULT 2", "ROLLBACK TO a",
		"INSERT INTO t SELECT 1, string_agg(md5(i::text), '') FROM generate_series(1, 5127) i",
		"TRUNCATE t", "INSERT INTO t VALUES (2, 'kept')", "COMMIT")
	// nextRows is the first transaction with rows, or the error with which the stream ends before.
	nextRows := func() ([]string, error) {
		f := r.stream(r.Source, false)
		for {
			select {
			case err := <-f.result:
				f.result <- err
				return nil, err
			case e := <-f.events:
				if e.Transaction == nil {
					continue
				}
				rows := describe(t, e.Transaction)
				e.Transaction.Release()
				if len(rows) > 0 {
					return rows, nil
				}
			}
		}
	}
	rows, err := nextRows()
	if err != nil {
		if !errors.Is(err, pgcdc.ErrStreaming) || !pgcdc.IsRetryable(err) {
			t.Fatal(err)
		}
		if rows, err = nextRows(); err != nil {
			t.Fatal(err)
		}
	}
	if len(rows) != 3 || rows[1] != "truncate 1" || rows[2] != "insert public.t 2|kept" {
		t.Errorf("%.200q", rows)
	}
}
