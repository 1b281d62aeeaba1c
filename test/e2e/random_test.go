package e2e

import (
	"fmt"
	"math/rand/v2"
	"os"
	"strconv"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"pgmirror/mirror"
	"pgmirror/test/harness"
	"pgmirror/test/interop"
)

func parseLSN(text string) (interop.LSN, error) { return pglogrepl.ParseLSN(text) }

// randomSeeds is how many runs TestRandomChanges makes; PGMIRROR_E2E_SEED names the only one instead.
const randomSeeds = 20

// randomChanges is how many rows each run changes at least.
const randomChanges = 20_000

// Whatever clients write, and however often pgmirror is killed and the source restarted meanwhile, the mirror holds exactly
// the source's rows: as `verify` says, as `pgmirror sql` answers, and as strangers read the committed snapshots.
func TestRandomChanges(t *testing.T) {
	t.Parallel()
	first, last := uint64(1), uint64(randomSeeds)
	if text := os.Getenv("PGMIRROR_E2E_SEED"); text != "" {
		seed, err := strconv.ParseUint(text, 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		first, last = seed, seed
	}
	for seed := first; seed <= last; seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			newTrial(t, seed).run()
		})
	}
}

// trial is one run of TestRandomChanges: a cluster, a mirror, writers, and what goes wrong.
type trial struct {
	t       *testing.T
	seed    uint64
	r       *rand.Rand
	pg      *harness.Postgres
	m       *Mirror
	tables  []*driven
	writers *writers
	points  []*quietPoint
	kills   int
	begun   time.Time
}

func newTrial(t *testing.T, seed uint64) *trial {
	r := rand.New(rand.NewPCG(seed, 0xe2e))
	binary := seed%3 != 0
	tr := &trial{t: t, seed: seed, r: r, tables: drivenTables(r, binary), begun: time.Now()}
	tr.pg = harness.StartPostgres(t, harness.Setting("deadlock_timeout", "20ms"), harness.Setting("lock_timeout", "2s"),
		harness.Setting("synchronous_commit", oneOf("on", "off")(r)), harness.KeepWAL(), harness.Setting("logical_decoding_work_mem", "64kB"))
	tr.pg.Exec(typesSQL, `CREATE SCHEMA "Sh op"`, "CREATE TABLE marker (v text PRIMARY KEY)") // the writers leave marker alone
	for _, table := range tr.tables {
		tr.pg.Exec(table.create()...)
	}
	tr.pg.CreateMirrorRole(mirrorRole, "postgres", "public", "Sh op")
	if r.IntN(2) == 0 { // settings that change what a server prints
		tr.pg.Exec("ALTER DATABASE postgres SET datestyle = 'German'", "ALTER DATABASE postgres SET intervalstyle = 'sql_standard'",
			"ALTER DATABASE postgres SET timezone = 'Asia/Kolkata'", "ALTER DATABASE postgres SET bytea_output = 'escape'",
			"ALTER DATABASE postgres SET extra_float_digits = 0")
	}
	tr.pg.Exec("CREATE PUBLICATION p FOR ALL TABLES")
	args := []string{
		"--batch-rows", oneOf("7", "64", "500", "8192")(r),
		"--checkpoint-interval", oneOf("100ms", "300ms", "1s", "30s")(r),
		"--memory", oneOf("1MiB", "8MiB", "25%")(r),
		"--flush-workers", oneOf("1", "2", "3")(r),
		"--history", oneOf("0s", "0s", "2s")(r),
		"--catalog-poll", "500ms",
	}
	t.Logf("seed %d, binary %t: %q", seed, binary, args)
	tr.m = NewMirror(t, tr.pg, "p", args...)
	tr.writers = startWriters(tr.pg, tr.tables, seed, 4)
	t.Cleanup(tr.writers.stop)
	return tr
}

func (tr *trial) must(err error) {
	tr.t.Helper()
	must(tr.t, err)
}

func must(t testing.TB, err error) {
	t.Helper()
	if err != nil {
		t.Fatal(err)
	}
}

// mishaps are what may happen while the writers go on. Each returns with pgmirror started.
func (tr *trial) mishaps() []func() {
	killAtOnce := func() { tr.kill(); tr.kill() }
	withSourceDown := func(stop func()) func() {
		return func() {
			stop()
			if tr.r.IntN(3) == 0 {
				tr.kill() // pgmirror starts without its source
			}
			tr.pg.Start()
		}
	}
	return []func(){
		tr.kill, tr.kill, killAtOnce,
		tr.stop,
		withSourceDown(func() { tr.pg.Stop(harness.Fast) }),
		withSourceDown(func() { tr.pg.Stop(harness.Immediate) }),
		tr.cutStream,
		tr.compare,
	}
}

func (tr *trial) run() {
	chunk := int64(randomChanges) / int64(len(tr.mishaps())+2)
	tr.writers.allowed.Store(chunk)
	tr.must(tr.writers.waitFor(chunk / 2))
	tr.m.Start() // the first copy, under writes
	for range 1 + tr.r.IntN(2) {
		time.Sleep(time.Duration(tr.r.IntN(600)) * time.Millisecond)
		tr.kill()
	}
	tr.must(tr.writers.waitFor(chunk))
	tr.m.WaitReady()
	tr.writers.truncate.Store(true)

	mishaps := tr.mishaps()
	tr.r.Shuffle(len(mishaps), func(i, j int) { mishaps[i], mishaps[j] = mishaps[j], mishaps[i] })
	for i, mishap := range mishaps {
		at := chunk * int64(i+2)
		tr.writers.allowed.Store(at + chunk/2) // they go on during the mishap
		tr.must(tr.writers.waitFor(at - tr.r.Int64N(chunk/2)))
		mishap()
		if tr.r.IntN(2) == 0 {
			tr.m.WaitReady()
		}
	}
	if tr.seed%10 == 5 {
		tr.bigTransactions()
	}
	tr.writers.allowed.Store(randomChanges)
	tr.must(tr.writers.waitFor(randomChanges))
	tr.compare()
	tr.must(sameColumns(tr.m, tr.tables))
	tr.checkReaders()
	if code := tr.m.Stop(); code != 0 {
		tr.t.Fatalf("SIGTERM: exit code %d", code)
	}
	tr.writers.stop()
	tr.must(tr.pg.Stop(harness.Fast))
	checkRetained(tr.t, tr.pg, tr.m, tr.tables)
	tr.t.Logf("%d changes, %d transactions refused, %d kills, %d quiet points in %s", tr.writers.changes.Load(), tr.writers.failed.Load(),
		tr.kills, len(tr.points), time.Since(tr.begun).Round(time.Millisecond))
}

// kill ends pgmirror by SIGKILL and starts it again. Now and then that comes so soon after the start before that nothing was
// done, and now and then in the middle of everything.
func (tr *trial) kill() {
	if !tr.m.Running() {
		tr.t.Fatal("pgmirror has ended by itself")
	}
	time.Sleep(time.Duration(tr.r.IntN(150)) * time.Millisecond)
	tr.m.Kill()
	tr.kills++
	tr.m.Start()
}

// stop ends pgmirror by SIGTERM and starts it again. Before it answers, it may be too young to know the signal.
func (tr *trial) stop() {
	tr.m.WaitStatus("answering", func(*mirror.Status) bool { return true })
	if code := tr.m.Stop(); code != 0 {
		tr.t.Fatalf("SIGTERM: exit code %d", code)
	}
	tr.m.Start()
}

// cutStream ends the server's side of the stream.
func (tr *trial) cutStream() {
	tr.m.WaitReady()
	tr.pg.Query("SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE backend_type = 'walsender'")
}

// bigTransactions are two of more than pgmirror stages in memory, and of every size of value.
func (tr *trial) bigTransactions() {
	tr.pg.Exec("INSERT INTO t_fullpk (id, big) SELECT 1000000 + g, repeat(md5(g::text), 290) FROM generate_series(1, 8000) g")
	time.Sleep(time.Duration(tr.r.IntN(500)) * time.Millisecond)
	tr.kill()
	tr.pg.Exec("BEGIN; SAVEPOINT a; DELETE FROM t_fullpk WHERE id > 1000000; ROLLBACK TO a; UPDATE t_fullpk SET id = -id WHERE id > 1004000; " +
		"DELETE FROM t_fullpk WHERE id > 1000200 OR id < -1004200; COMMIT")
}

// compare holds the mirror against the source while nothing writes, and remembers the snapshots of that point.
func (tr *trial) compare() {
	tr.writers.gate.Lock()
	defer tr.writers.gate.Unlock()
	status := tr.m.WaitReady()
	for _, table := range status.Tables {
		if table.State != "streaming" || table.InsertOnly != (table.Name == "public.t_none") {
			tr.t.Fatalf("table %s is %s: %s (insert only: %t)", table.Name, table.State, table.Error, table.InsertOnly)
		}
	}
	tr.catchUp()
	want, err := sourceContent(tr.pg, tr.tables, "")
	tr.must(err)
	got, err := mirrorContent(tr.m, tr.tables)
	tr.must(err)
	tr.must(diffContent(tr.tables, want, got))
	tr.m.Verify()
	point, err := markQuietPoint(tr.m, tr.pg, tr.tables)
	tr.must(err)
	tr.points = append(tr.points, point)
	total := 0
	for _, rows := range want {
		total += len(rows)
	}
	tr.t.Logf("equal at %s: %d rows after %d changes and %d kills", point.lsn, total, tr.writers.changes.Load(), tr.kills)
}

// catchUp waits until the mirror shows everything that was committed. A busy machine may take longer than --wait-lsn waits.
func (tr *trial) catchUp() {
	end, err := parseLSN(tr.pg.QueryRow("SELECT pg_current_wal_insert_lsn()"))
	tr.must(err)
	tr.pg.Exec("SELECT pg_logical_emit_message(true, '', '')") // its commit ends above
	tr.m.WaitStatus("caught up", func(s *mirror.Status) bool {
		visible, err := parseLSN(s.VisibleLSN)
		return err == nil && visible >= end
	})
}

// checkReaders reads the snapshots of the last quiet point, row by row and with their columns, with the readers of the issue, and a
// third of the tables in further ways, which cost more. The snapshots of other points are checkRetained's.
func (tr *trial) checkReaders() {
	all, err := readers()
	tr.must(err)
	pyiceberg, duck, java := all.Named("pyiceberg"), all.Named("duckdb"), all.Named("java")
	first, last := tr.points[0], tr.points[len(tr.points)-1]
	tr.must(checkSnapshots(tr.m, tr.tables, last, pyiceberg, duck, interop.IcebergGo))
	var third []*driven
	for i, table := range tr.tables {
		if (uint64(i)+tr.seed)%3 == 0 {
			third = append(third, table)
		}
	}
	tr.must(checkSnapshots(tr.m, third, last, java))
	tr.must(checkByDirectory(third, last, duck))
	tr.must(checkOldMetadata(third, first, duck))
	tr.must(checkAbove(tr.pg, third, first, last, pyiceberg, duck, interop.IcebergGo))
}
