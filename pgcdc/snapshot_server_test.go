package pgcdc_test

import (
	"context"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"
	"github.com/jackc/pgx/v5/pgconn"

	"pgmirror/pgcdc"
	"pgmirror/test/harness"
)

// TestSnapshot uses a server with two slots, so that a snapshot is easily one too many.
func TestSnapshot(t *testing.T) {
	p := harness.StartPostgres(t, harness.Setting("max_replication_slots", "2"), harness.Setting("max_prepared_transactions", "2"))
	for _, test := range []struct {
		name string
		run  serverTest
	}{{"Exact", snapshotExact}, {"SlotLimit", snapshotSlotLimit}, {"HeldBack", snapshotHeldBack}, {"Prepared", snapshotPrepared}, {"Sample", copySample}, {"Connections", copiesShareConnections}} {
		t.Run(test.name, func(t *testing.T) { test.run(t, p.For(t)) })
	}
}

// snapshotOf takes a snapshot that nothing holds back.
func snapshotOf(t *testing.T, s *pgcdc.Source) (pgcdc.ExportedSnapshot, func()) {
	t.Helper()
	snapshot, release, err := s.Snapshot(t.Context(), patience, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	return snapshot, release
}

// A snapshot sees the rows of exactly those commits that the stream says end at or below its consistent point, however many
// connections commit, synchronously or not, in transactions with subtransactions and without. It is read when the slot that
// made it is gone, and nothing stays on the server.
func snapshotExact(t *testing.T, p *harness.Postgres) {
	r := newRig(t, p)
	r.exec("CREATE TABLE t(id bigint PRIMARY KEY)")
	r.publish("FOR TABLE t")
	r.createSlot()
	r.CloseSnapshot()
	f := r.stream(r.Source, true)

	var writers sync.WaitGroup
	var stop atomic.Bool
	for i := range 4 {
		conn, err := pgconn.Connect(t.Context(), p.SocketURL("postgres", r.name))
		if err != nil {
			t.Fatal(err)
		}
		defer conn.Close(context.Background())
		exec := func(sql string) error {
			_, err := conn.Exec(context.Background(), sql).ReadAll()
			return err
		}
		if i%2 == 1 {
			if err := exec("SET synchronous_commit = off"); err != nil {
				t.Fatal(err)
			}
		}
		writers.Add(1)
		go func() {
			defer writers.Done()
			for n := 0; !stop.Load(); n++ {
				id := i + 4*n
				sql := fmt.Sprintf("INSERT INTO t VALUES (%d)", id)
				switch n % 5 {
				case 3:
					sql = fmt.Sprintf("BEGIN; SAVEPOINT s; INSERT INTO t VALUES (%d); ROLLBACK TO s; SAVEPOINT s; INSERT INTO t VALUES (%d); COMMIT", id, id)
				case 4:
					sql = fmt.Sprintf("BEGIN; INSERT INTO t VALUES (%d); ROLLBACK", id)
				}
				if err := exec(sql); err != nil {
					t.Error(err)
					return
				}
			}
		}()
	}
	type taken struct {
		at   pglogrepl.LSN
		seen []int
	}
	var snapshots []taken
	table := r.table("t")
	for range 20 {
		snapshot, release := snapshotOf(t, r.Source)
		if n := p.QueryRow("SELECT count(*) FROM pg_replication_slots WHERE temporary"); n != "0" {
			t.Fatalf("%s temporary slots are left", n)
		}
		s := taken{at: snapshot.ConsistentPoint}
		err := r.Copy(t.Context(), snapshot, table, func(tuple pgcdc.Tuple) error {
			s.seen = append(s.seen, int(int64(beUint64(tuple[0].Data))))
			return nil
		})
		release()
		if err != nil {
			t.Fatal(err)
		}
		snapshots = append(snapshots, s)
	}
	stop.Store(true)
	writers.Wait()
	eventually(t, "no transaction is left open", func() bool { // the server learns a little later that a connection is closed
		return p.QueryRow("SELECT count(*) FROM pg_stat_activity WHERE usename = '"+r.name+"' AND state LIKE 'idle in%'") == "0"
	})

	committed := map[int]pglogrepl.LSN{}
	last := snapshots[len(snapshots)-1].at
	for reached := pglogrepl.LSN(0); reached <= last; {
		transaction, rows := f.rows()
		reached = transaction.EndLSN
		for _, row := range rows {
			id, err := strconv.ParseInt(row[strings.LastIndexByte(row, ' ')+1:], 16, 64)
			if err != nil {
				t.Fatalf("%s: %v", row, err)
			}
			committed[int(id)] = reached
		}
	}
	for _, s := range snapshots {
		var want []int
		for id, at := range committed {
			if at <= s.at {
				want = append(want, id)
			}
		}
		slices.Sort(want)
		slices.Sort(s.seen)
		if !slices.Equal(s.seen, want) {
			t.Errorf("at %s the snapshot sees %d rows, %d were committed", s.at, len(s.seen), len(want))
		}
	}
	t.Logf("%d commits, %d rows in the last snapshot", len(committed), len(snapshots[len(snapshots)-1].seen))
}

func beUint64(b []byte) (v uint64) {
	for _, c := range b {
		v = v<<8 | uint64(c)
	}
	return v
}

// A server without a free slot is told from other faults.
func snapshotSlotLimit(t *testing.T, p *harness.Postgres) {
	r := newRig(t, p)
	for i := range 2 {
		p.Exec(fmt.Sprintf("SELECT pg_create_physical_replication_slot('taken_%d')", i))
		t.Cleanup(func() { p.Exec(fmt.Sprintf("SELECT pg_drop_replication_slot('taken_%d')", i)) })
	}
	_, _, err := r.Snapshot(t.Context(), patience, func(string) {})
	if !errors.Is(err, pgcdc.ErrSlotLimit) || pgcdc.IsRetryable(err) {
		t.Fatalf("a snapshot without a free slot: %v", err)
	}
}

// A transaction that has written holds a snapshot back. It is named, with its process and age, while Snapshot waits and in the
// error when it gives up; a role that may not see the age learns for how long it has been waited for. Nothing is left
// behind, and the next snapshot is there as soon as the transaction has ended.
func snapshotHeldBack(t *testing.T, p *harness.Postgres) {
	r := newRig(t, p)
	r.exec("CREATE TABLE t(id int PRIMARY KEY)")
	writer := p.Open("postgres", r.name)
	writer.Exec("BEGIN", "INSERT INTO t VALUES (1)")
	rows, _ := writer.Query("SELECT pg_backend_pid()")
	pid := rows[0][0]
	var told []string
	_, _, err := r.Snapshot(t.Context(), 1500*time.Millisecond, func(whom string) { told = append(told, whom) })
	who := "process " + pid + " (role postgres, database " + r.name
	if !errors.Is(err, pgcdc.ErrHeldBack) || !strings.Contains(err.Error(), who+") has been in a transaction for at least ") ||
		!strings.Contains(err.Error(), "pg_terminate_backend("+pid+")") {
		t.Fatalf("a snapshot that is held back: %v", err)
	}
	if len(told) != 1 || !strings.Contains(told[0], who) { // the same one is told again after ten seconds
		t.Errorf("while it waits it tells %q", told)
	}
	eventually(t, "the slot is gone", func() bool { return p.QueryRow("SELECT count(*) FROM pg_replication_slots") == "0" })
	r.exec("GRANT pg_read_all_stats TO " + r.name)
	if _, _, err = r.open().Snapshot(t.Context(), 1100*time.Millisecond, func(string) {}); err == nil ||
		!strings.Contains(err.Error(), who+", idle in transaction) has been in a transaction for ") || strings.Contains(err.Error(), "at least") {
		t.Errorf("a role that may see the age: %v", err)
	}
	ctx, cancel := context.WithCancel(t.Context())
	_, _, err = r.Snapshot(ctx, patience, func(string) { cancel() })
	if !errors.Is(err, context.Canceled) {
		t.Errorf("a snapshot that was given up: %v", err)
	}
	var snapshot pgcdc.ExportedSnapshot
	snapshot, release, err := r.Snapshot(t.Context(), patience, func(string) { writer.Exec("COMMIT") })
	if err != nil || snapshot.ConsistentPoint == 0 {
		t.Fatalf("a snapshot for which the transaction ends: %v", err)
	}
	release()
}

// A prepared transaction holds a snapshot back too, and is named.
func snapshotPrepared(t *testing.T, p *harness.Postgres) {
	r := newRig(t, p)
	r.exec("CREATE TABLE t(id int PRIMARY KEY)")
	writer := p.Open("postgres", r.name)
	writer.Exec("BEGIN", "INSERT INTO t VALUES (1)", "PREPARE TRANSACTION 'it''s'")
	defer writer.Exec("ROLLBACK PREPARED 'it''s'")
	_, _, err := r.Snapshot(t.Context(), 100*time.Millisecond, func(string) {})
	if !errors.Is(err, pgcdc.ErrHeldBack) || !strings.Contains(err.Error(), "prepared transaction 'it''s' (role postgres, database "+r.name+")") || !strings.Contains(err.Error(), "ROLLBACK PREPARED 'it''s'") {
		t.Fatalf("a snapshot that is held back: %v", err)
	}
}

// A sample is a part of the rows, about as large as its limit says, and contains every smaller sample. Of keys that the source
// cannot choose by, all rows come.
func copySample(t *testing.T, p *harness.Postgres) {
	r := newRig(t, p)
	r.exec(`CREATE TABLE keyed(a int, "b""c" text, d timestamptz, f date, g uuid, h bytea, PRIMARY KEY (a, "b""c", d, f, g, h))`,
		"INSERT INTO keyed SELECT i, 'ä' || i, now(), 'infinity', gen_random_uuid(), int4send(i) FROM generate_series(1, 10000) i",
		"CREATE TABLE floats(a float8 PRIMARY KEY)", "INSERT INTO floats SELECT i FROM generate_series(1, 100) i")
	r.publish("FOR TABLE keyed, floats")
	snapshot, release := snapshotOf(t, r.Source)
	defer release()
	keyed, floats := r.table("keyed"), r.table("floats")
	chosen := func(table *pgcdc.Table, limit uint64) map[string]bool {
		rows := map[string]bool{}
		if err := r.CopySample(t.Context(), snapshot, table, table.Key, limit, func(tuple pgcdc.Tuple) error {
			rows[texts(tuple[:1])] = true
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		return rows
	}
	smaller := map[string]bool{}
	for _, c := range []struct {
		limit       uint64
		least, most int
	}{{0, 0, 0}, {math.MaxUint64 / 100, 60, 140}, {math.MaxUint64 / 4, 2300, 2700}, {math.MaxUint64, 10000, 10000}} {
		rows := chosen(keyed, c.limit)
		if len(rows) < c.least || len(rows) > c.most {
			t.Errorf("below %x are %d rows, want %d to %d", c.limit, len(rows), c.least, c.most)
		}
		for row := range smaller {
			if !rows[row] {
				t.Errorf("row %s of a smaller sample is not below %x", row, c.limit)
			}
		}
		smaller = rows
	}
	if rows := chosen(floats, 0); floats.Sampled(floats.Key) || len(rows) != 100 {
		t.Errorf("of a float key come %d rows", len(rows))
	}
}

// The hash that chooses samples is the server's, for texts of every length.
func TestSampleHash(t *testing.T) {
	p := harness.StartPostgres(t)
	rows, err := p.Query(`SELECT s, hashtextextended(s COLLATE "C", 0) FROM (SELECT repeat('', 0) s UNION SELECT left(md5(i::text) || md5((-i)::text), i % 61) FROM generate_series(1, 500) i) x`)
	if err != nil || len(rows) < 300 {
		t.Fatalf("%d rows, %v", len(rows), err)
	}
	for _, row := range rows {
		want, err := strconv.ParseInt(row[1], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		if got := pgcdc.SampleHash([]byte(row[0])); int64(got) != want {
			t.Errorf("the hash of %q is %d, the server's is %d", row[0], int64(got), want)
		}
	}
}
