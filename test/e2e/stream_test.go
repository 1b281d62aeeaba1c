package e2e

import (
	"errors"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgmirror/mirror"
	"pgmirror/test/harness"
)

// streamedSchema: sessions write rows of their own in shared, and a table of their own each.
const streamedSchema = `
	create table shared(id int primary key, v text, w numeric(12,2));
	create table own0(id int primary key, v text);
	create table own1(id int primary key, v text);
	create table own2(id int, v text);
	alter table own2 replica identity full;
	create function caught(first int, n int) returns void language plpgsql as $$
	begin
		for i in first .. first + n - 1 loop
			begin
				insert into shared values (i, repeat('e', 200), i);
				if i % 3 = 0 then raise exception 'no'; end if;
				if i % 5 = 0 then
					begin
						update shared set v = repeat('i', 300) where id = i;
						raise exception 'inner';
					exception when others then
						insert into own0 values (i, 'caught') on conflict do nothing;
					end;
				end if;
			exception when others then
				insert into shared values (-i, 'caught', null);
			end;
		end loop;
	end $$`

// streamedRows reads all of its tables.
const streamedRows = `select 'shared' as t, id, v, w from shared union all select 'own0', id, v, null from own0 union all
	select 'own1', id, v, null from own1 union all select 'own2', id, v, null from own2 order by t, id, v`

// streamedScene mirrors streamedSchema from a server that streams what takes more than 64 kB.
func streamedScene(t *testing.T, args ...string) (*harness.Postgres, *Mirror) {
	t.Helper()
	pg := server(t, []string{streamedSchema}, harness.Setting("logical_decoding_work_mem", "64kB"), harness.Setting("max_prepared_transactions", "10"))
	m := NewMirror(t, pg, "p", args...)
	m.Start()
	m.WaitReady()
	return pg, m
}

// spillFiles counts the files in which transactions wait.
func spillFiles(t *testing.T, m *Mirror) int {
	t.Helper()
	names, err := filepath.Glob(filepath.Join(m.Data(), "spill", "transaction-*"))
	if err != nil && !errors.Is(err, fs.ErrNotExist) {
		t.Fatal(err)
	}
	return len(names)
}

// streamedCount is how many transactions the server has streamed before their end.
func streamedCount(pg *harness.Postgres) string {
	return pg.QueryRow("select sum(stream_txns) from pg_stat_replication_slots")
}

// Transactions that the server streams while they run arrive at their commit, without what was rolled back at any depth, beside
// others, prepared ones at COMMIT PREPARED; a table altered in a part that was rolled back goes on (S-X1, S-X10).
func TestStreamedTransactions(t *testing.T) {
	t.Parallel()
	pg, m := streamedScene(t, "--checkpoint-interval", "300ms")
	a, b, c := pg.Open("postgres", "postgres"), pg.Open("postgres", "postgres"), pg.Open("postgres", "postgres")

	a.Exec("begin", "insert into shared select i, repeat('x', 100), i from generate_series(1, 1500) i", "savepoint a",
		"insert into shared select i, repeat('y', 100), i from generate_series(2001, 3500) i")
	b.Exec("begin", "insert into own1 select i, repeat('b', 100) from generate_series(1, 2500) i")
	c.Exec("insert into shared values (5000, 'between', 1)")
	answers(t, m, "select count(*), min(id) from shared", "1|5000")
	answers(t, m, "select count(*) from own1", "0")
	b.Exec("rollback")
	a.Exec("rollback to a", "insert into shared select i, 'after', i from generate_series(4001, 4003) i", "commit")
	answers(t, m, "select count(*), count(*) filter (v = 'after') from shared", "1504|3")
	answers(t, m, "select count(*) from own1", "0")

	a.Exec("begin", "savepoint a", "alter table own0 add column gone int", "insert into own0 select i, repeat('z', 100), i from generate_series(1, 1500) i", "rollback to a",
		"insert into own0 values (1, 'the shape that holds')", "commit")
	c.Exec("insert into own0 values (2, 'here too')")
	answers(t, m, "select * from own0 order by id", "1|the shape that holds", "2|here too")

	a.Exec("begin", "select caught(10000, 1000)", "commit")
	b.Exec("begin", "insert into own2 select i % 10, repeat('d', 300) from generate_series(1, 1000) i", "delete from own2 where id = 3 and ctid > '(10,0)'",
		"insert into own1 select i, repeat('e', 200) from generate_series(1, 600) i", "prepare transaction 'p'")
	c.Exec("insert into shared values (5001, 'before commit prepared', 1)")
	answers(t, m, "select (select count(*) from own1), (select count(*) from own2), (select count(*) from shared where id = 5001)", "0|0|1")
	c.Exec("commit prepared 'p'", "begin", "insert into own1 select i, repeat('f', 200) from generate_series(1001, 1600) i", "truncate own1",
		"insert into own1 select i, repeat('g', 200) from generate_series(2001, 2600) i", "commit")
	alike(t, pg, m, streamedRows)
	if n := streamedCount(pg); n == "" || n == "0" {
		t.Fatal("the server streamed nothing")
	}
	m.Verify()
}

// Interleaved transactions with savepoints, exceptions and many rows arrive as Postgres has them, also when pgmirror is killed while
// some are being streamed.
func TestStreamedRandom(t *testing.T) {
	t.Parallel()
	for seed := range uint64(2) {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			r := rand.New(rand.NewPCG(seed, 0x57e4))
			pg, m := streamedScene(t, "--checkpoint-interval", oneOf("100ms", "1s")(r), "--memory", oneOf("1MiB", "64MiB")(r), "--batch-rows", oneOf("100", "8192")(r))
			w := &streamWriter{r: r}
			for i := range 3 {
				w.sessions = append(w.sessions, &streamSession{Session: pg.Open("postgres", "postgres"), next: (i + 1) * 10_000_000, own: i})
			}
			for round := range 3 {
				for range 60 {
					w.step(w.sessions[r.IntN(len(w.sessions))])
				}
				switch round {
				case 0:
					m.Kill()
					m.Start()
					m.WaitReady()
				case 1:
					pg.Exec("select pg_terminate_backend(active_pid) from pg_replication_slots where active")
				}
				alike(t, pg, m, streamedRows)
			}
			for _, s := range w.sessions {
				w.end(s)
			}
			alike(t, pg, m, streamedRows)
			m.Verify()
		})
	}
}

// streamWriter lets sessions write, each rows of its own, so that none waits for another.
type streamWriter struct {
	r        *rand.Rand
	sessions []*streamSession
	serial   int
}

type streamSession struct {
	*harness.Session
	own, next int
	open      bool
	saved     []string
}

func (w *streamWriter) end(s *streamSession) {
	if !s.open {
		return
	}
	switch w.r.IntN(5) {
	case 0:
		s.Exec("rollback")
	case 1:
		w.serial++
		s.Exec(fmt.Sprintf("prepare transaction 'r%d'", w.serial), fmt.Sprintf("%s prepared 'r%d'", oneOf("commit", "rollback")(w.r), w.serial))
	default:
		s.Exec("commit")
	}
	s.open, s.saved = false, nil
}

func (w *streamWriter) step(s *streamSession) {
	if !s.open {
		s.Exec("begin")
		s.open = true
	}
	switch w.r.IntN(16) {
	case 0, 1, 2:
		w.serial++
		s.saved = append(s.saved, fmt.Sprintf("s%d", w.serial))
		s.Exec("savepoint " + s.saved[len(s.saved)-1])
	case 3, 4:
		if n := len(s.saved); n > 0 {
			to := w.r.IntN(n)
			s.Exec("rollback to " + s.saved[to])
			s.saved = s.saved[:to+1]
		}
	case 5:
		if n := len(s.saved); n > 0 {
			to := w.r.IntN(n)
			s.Exec("release " + s.saved[to])
			s.saved = slices.Clone(s.saved[:to])
		}
	case 6, 7:
		w.end(s)
	case 8:
		s.Exec(fmt.Sprintf("select caught(%d, 60)", s.next))
		s.next += 60
	case 9:
		s.Exec(fmt.Sprintf("update shared set w = %d, v = v || 'u' where id between %d and %d", w.r.IntN(1000), s.next-w.r.IntN(600), s.next))
	case 10:
		s.Exec(fmt.Sprintf("delete from shared where id between %d and %d", s.next-w.r.IntN(600), s.next-w.r.IntN(200)))
	case 11:
		s.Exec(fmt.Sprintf("delete from own%d where id %% 5 = %d", s.own, w.r.IntN(5)))
	default:
		n := 1 + w.r.IntN(500)
		into := "shared (id, v)"
		if s.own > 0 && w.r.IntN(2) == 0 {
			into = fmt.Sprintf("own%d", s.own)
		}
		s.Exec(fmt.Sprintf("insert into %s select i, repeat('v', %d) from generate_series(%d, %d) i", into, w.r.IntN(300), s.next, s.next+n-1))
		s.next += n
	}
}

// largeRows is how many rows TestLargeTransaction writes; PGMIRROR_E2E_LARGE_ROWS says otherwise (make soak: 10 million).
const largeRows = 300_000

// largeResident bounds pgmirror's memory in TestLargeTransaction, in bytes, however many rows there are.
const largeResident = 1000 << 20

// A transaction larger than the memory for it becomes visible at once and whole, while readers go on seeing what was before; killed
// in the middle, pgmirror leaves nothing of it behind and has all of it in the end (S-X2).
func TestLargeTransaction(t *testing.T) {
	t.Parallel()
	rows := largeRows
	if text := os.Getenv("PGMIRROR_E2E_LARGE_ROWS"); text != "" {
		var err error
		if rows, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	pg, m := scene(t, []string{"create table big(id bigint primary key, a int, v text, at timestamptz)", "create table small(id int primary key)", "insert into big values (-1)", "insert into small values (1)"},
		"--memory", "512MiB")
	writer := pg.Open("postgres", "postgres")
	began := time.Now()
	insert := func(from, to int) string {
		return fmt.Sprintf("insert into big select i, i %% 1000, md5(i::text) || md5((-i)::text), timestamptz '2024-01-01 00:00Z' + i * interval '1 s' from generate_series(%d, %d) i", from, to)
	}
	writer.Exec("begin", insert(1, rows/3))
	within(t, "some of it has arrived", func() bool {
		return pg.QueryRow("select coalesce(sum(stream_bytes), 0) > 0 from pg_stat_replication_slots") == "t" || rows < 500_000
	})
	m.Kill()
	m.Start()
	m.WaitReady()
	if n := spillFiles(t, m); n > 1 {
		t.Errorf("%d spill files after the start", n)
	}
	writer.Exec("savepoint a", insert(-rows-10, -11), "rollback to a", insert(rows/3+1, rows), "update big set a = -1 where id % 100 = 0", "insert into small values (2)", "commit")
	wrote := time.Since(began)
	committed := time.Now()
	seen := map[string]bool{}
	for seen["2"] == false { // readers go on meanwhile, and see all or nothing
		row := m.SQLWith("select (select count(*) from big), (select count(*) filter (a = -1) from big), (select count(*) from small)")[0]
		seen[row[2]] = true
		want := []string{"1", "0", "1"}
		if row[2] == "2" {
			want = []string{strconv.Itoa(rows + 1), strconv.Itoa(rows / 100), "2"}
		}
		if !slices.Equal(row, want) {
			t.Fatalf("a reader sees %v, want %v", row, want)
		}
		if time.Since(committed) > patience+time.Duration(rows)*100*time.Microsecond {
			t.Fatal("it does not become visible")
		}
	}
	took := time.Since(committed)
	m.Checkpoint()
	peak := peakResident(t, m)
	t.Logf("%d rows: written in %s, visible %s after the commit, peak of resident memory %d MiB", rows, wrote.Round(time.Millisecond), took.Round(time.Millisecond), peak>>20)
	if peak > largeResident {
		t.Errorf("resident memory reached %d MiB", peak>>20)
	}
	query := "select count(*), sum(id), sum(a), min(v), max(v), count(distinct id) from big"
	alike(t, pg, m, query)
	if n := spillFiles(t, m); n != 0 {
		t.Errorf("%d spill files are left", n)
	}
	m.WaitStatus("the slot moves past it", func(s *mirror.Status) bool { return s.AcknowledgedLSN >= s.DurableLSN })
}

// peakResident is the most resident memory that the running pgmirror had, in bytes. Its process is the one that names its data
// directory.
func peakResident(t *testing.T, m *Mirror) int64 {
	t.Helper()
	names, err := filepath.Glob("/proc/[0-9]*/cmdline")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		command, err := os.ReadFile(name)
		if err != nil || !strings.Contains(string(command), "\x00run\x00") || !strings.Contains(string(command), m.Data()) {
			continue // also one that has ended
		}
		status, err := os.ReadFile(filepath.Join(filepath.Dir(name), "status"))
		if err != nil {
			t.Fatal(err)
		}
		for _, line := range strings.Split(string(status), "\n") {
			if fields := strings.Fields(line); len(fields) == 3 && fields[0] == "VmHWM:" {
				kib, err := strconv.ParseInt(fields[1], 10, 64)
				if err != nil {
					t.Fatal(err)
				}
				return kib << 10
			}
		}
	}
	t.Fatal("the process is not found")
	return 0
}
