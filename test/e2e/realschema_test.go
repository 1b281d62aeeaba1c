package e2e

import (
	"context"
	_ "embed"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"pgmirror/mirror"
	"pgmirror/pgcdc"
	"pgmirror/test/harness"
)

var (
	realDuration = flag.Duration("real.duration", 20*time.Second, "how long the clients of TestRealSchema go on")
	realSeed     = flag.Uint64("real.seed", 1, "of the order in which the clients of TestRealSchema call their functions, and of what goes wrong")
)

//go:embed testdata/velo.sql
var veloSQL string

//go:embed testdata/velo_load.sql
var veloLoadSQL string

// veloWork is how often, of 100 transactions, a client calls each function.
var veloWork = []struct {
	function string
	weight   int
}{
	{"hire", 22}, {"give_back", 16}, {"correct_day", 6}, {"pay", 14}, {"book", 8}, {"repair", 10}, {"write_invoice", 10}, {"write_letters", 4},
	{"leave_and_join", 3}, {"renew_bike", 2}, {"take_stock", 4}, {"night", 1},
}

// A database as a business has it, with its triggers, cascades, exclusions, partitions, domains, and functions that catch their errors, is mirrored
// exactly while its clients work and pgmirror is killed and stopped; and what every transaction keeps, every reader sees kept.
func TestRealSchema(t *testing.T) {
	t.Parallel()
	s := newShop(t)
	s.jobs.Go(s.read)
	for n := range uint64(4) {
		s.jobs.Go(func() { s.work(rand.New(rand.NewPCG(*realSeed, n))) })
	}
	end := sync.OnceFunc(func() { close(s.quit); s.jobs.Wait() })
	defer end()
	begun := time.Now()
	for range 4 {
		s.disturb(*realDuration / 4)
		s.compare()
	}
	end()
	s.m.Checkpoint()
	restart(s.m)
	s.compare()
	t.Logf("%d transactions, %d refused by the source, %d reads, %d kills in %s", s.done.Load(), s.refused.Load(), s.reads.Load(), s.kills, time.Since(begun).Round(time.Second))
}

// disturb lets clients and readers work for some time, with mishaps all the while, and then until both have got somewhere since.
func (s *shop) disturb(d time.Duration) {
	done, reads := s.done.Load(), s.reads.Load()
	for begun := time.Now(); time.Since(begun) < d && !s.t.Failed(); {
		s.mishap()
	}
	within(s.t, "clients and readers get somewhere", func() bool { return s.done.Load() >= done+50 && s.reads.Load() >= reads+2 || s.t.Failed() })
}

// shop is the source with its clients, and the mirror.
type shop struct {
	t                    *testing.T
	pg                   *harness.Postgres
	m                    *Mirror
	r                    *rand.Rand // what goes wrong
	tables               []*driven
	gate                 sync.RWMutex // clients hold it through a transaction, comparisons to keep them from it
	quit                 chan struct{}
	jobs                 sync.WaitGroup
	done, refused, reads atomic.Int64
	kills                int
}

func newShop(t *testing.T) *shop {
	s := &shop{t: t, r: rand.New(rand.NewPCG(*realSeed, 0x5e10)), quit: make(chan struct{})}
	s.pg = harness.StartPostgres(t, harness.Setting("deadlock_timeout", "20ms"), harness.Setting("logical_decoding_work_mem", "64kB"))
	s.pg.CreateMirrorRole(mirrorRole, "postgres")
	s.pg.Exec(veloSQL, veloLoadSQL, "create publication p for all tables")
	s.tables = publishedDriven(t, s.pg)
	if len(s.tables) < 15 {
		t.Fatalf("the source has %d tables", len(s.tables))
	}
	s.m = NewMirror(t, s.pg, "p", "--checkpoint-interval", "500ms", "--batch-rows", "300", "--catalog-poll", "500ms")
	s.m.Start()
	return s
}

// publishedDriven describes the published tables from the catalogue, with the columns that a mirror has.
func publishedDriven(t *testing.T, pg *harness.Postgres) (tables []*driven) {
	t.Helper()
	rows, err := pg.Query(`with recursive published as (
			select format('%I.%I', p.schemaname, p.tablename) as name, a.attnum, a.attname, a.atttypid as type, a.atttypmod as mod
				from pg_publication_tables p join pg_attribute a on a.attrelid = format('%I.%I', p.schemaname, p.tablename)::regclass
				where a.attnum > 0 and not a.attisdropped and a.attgenerated = ''),
		based as (
			select * from published
			union all
			select b.name, b.attnum, b.attname, d.typbasetype, d.typtypmod from based b join pg_type d on d.oid = b.type and d.typtype = 'd')
		select name, attname, format_type(b.type, b.mod) from based b join pg_type y on y.oid = b.type where y.typtype <> 'd' order by name, attnum`)
	if err != nil {
		t.Fatal(err)
	}
	for _, row := range rows {
		if len(tables) == 0 || tables[len(tables)-1].name != row[0] {
			tables = append(tables, &driven{name: row[0]})
		}
		last := tables[len(tables)-1]
		last.columns = append(last.columns, column{name: row[1], ddl: row[2], typ: mirroredAs(row[2])})
	}
	return tables
}

// mirroredAs is what the mirror holds a type as, by the name that PostgreSQL gives it.
func mirroredAs(name string) *pgcdc.Type {
	if elem, ok := strings.CutSuffix(name, "[]"); ok {
		return listOf(mirroredAs(elem))
	}
	if modifier, ok := strings.CutPrefix(name, "numeric("); ok {
		precision, scale, _ := strings.Cut(strings.TrimSuffix(modifier, ")"), ",")
		p, _ := strconv.Atoi(precision)
		s, _ := strconv.Atoi(scale)
		return decimal(p, s)
	}
	kinds := map[string]pgcdc.Kind{
		"boolean": pgcdc.KindBool, "smallint": pgcdc.KindInt2, "integer": pgcdc.KindInt4, "bigint": pgcdc.KindInt8, "real": pgcdc.KindFloat4,
		"double precision": pgcdc.KindFloat8, "uuid": pgcdc.KindUUID, "bytea": pgcdc.KindBytea, "date": pgcdc.KindDate,
		"time without time zone": pgcdc.KindTime, "timestamp without time zone": pgcdc.KindTimestamp, "timestamp with time zone": pgcdc.KindTimestampTZ,
		"json": pgcdc.KindJSON, "jsonb": pgcdc.KindJSON,
	}
	if k, ok := kinds[name]; ok {
		return kind(k)
	}
	return kind(pgcdc.KindText)
}

// work calls one function after the other on a connection of its own. What the source refuses because of other clients is rolled back.
func (s *shop) work(r *rand.Rand) {
	conn, err := pgconn.Connect(context.Background(), s.pg.SocketURL("postgres", "postgres"))
	if err != nil {
		s.t.Errorf("connect a client: %v", err)
		return
	}
	defer conn.Close(context.Background())
	conn.Exec(context.Background(), `set search_path = velo, "Werkstatt", public`).ReadAll()
	for {
		select {
		case <-s.quit:
			return
		case <-time.After(time.Duration(r.IntN(12)) * time.Millisecond):
		}
		sql := "select " + veloFunction(r) + "()"
		if r.IntN(6) == 0 {
			sql = "begin; " + sql + "; savepoint s; select " + veloFunction(r) + "(); rollback to s; select " + veloFunction(r) + "(); commit"
		}
		s.gate.RLock()
		_, err := execTransaction(conn, []string{sql})
		s.gate.RUnlock()
		s.done.Add(1)
		if err != nil {
			s.refused.Add(1)
			if isTestFault(err) {
				s.t.Errorf("%s: %v", sql, err)
				return
			}
		}
	}
}

func veloFunction(r *rand.Rand) string {
	n := r.IntN(100)
	for _, w := range veloWork {
		if n -= w.weight; n < 0 {
			return w.function
		}
	}
	panic("the weights are less than 100")
}

// read asks again and again for rows that break what the source's triggers keep in every transaction. There are none.
func (s *shop) read() {
	const broken = `select 'station ' || s.id from velo.station s where s.here <> (select count(*) from velo.bike b where b.station = s.id)
		union all select 'invoice ' || i."no" from velo.invoice i where i.lines <> (select count(*) from velo.invoice_line l where l.invoice = i."no")
		union all select 'bike ' || b.id from velo.bike b where b.state = 'in repair' and not exists (select 1 from "Werkstatt".repair r where r.bike = b.id and r.state <> 'done')`
	for {
		select {
		case <-s.quit:
			return
		case <-time.After(50 * time.Millisecond):
		}
		rows, err := s.m.TrySQL(broken)
		if err != nil {
			continue // it is not running, or has no content yet
		}
		s.reads.Add(1)
		if len(rows) > 0 {
			s.t.Errorf("a reader saw a part of a transaction: %s", show(rows))
			return
		}
	}
}

// mishap lets some time pass and then ends pgmirror or its stream, or makes it store what it has, under load.
func (s *shop) mishap() {
	time.Sleep(time.Duration(200+s.r.IntN(1500)) * time.Millisecond)
	answering := func() { s.m.WaitStatus("answering", func(*mirror.Status) bool { return true }) }
	switch s.r.IntN(6) {
	case 0, 1:
		s.m.Kill()
		s.kills++
		s.m.Start()
	case 2:
		s.m.Kill()
		s.m.Start()
		time.Sleep(time.Duration(s.r.IntN(300)) * time.Millisecond)
		s.m.Kill()
		s.kills += 2
		s.m.Start()
	case 3:
		answering()
		if code := s.m.Stop(); code != 0 {
			s.t.Fatalf("SIGTERM: exit code %d", code)
		}
		s.m.Start()
	case 4:
		s.pg.Query("select pg_terminate_backend(pid) from pg_stat_activity where backend_type = 'walsender'")
	case 5:
		s.m.WaitReady()
		s.m.Checkpoint()
	}
}

// compare holds every row of every table against the source, and its views against what DuckDB makes of the same queries, while nobody writes.
func (s *shop) compare() {
	s.t.Helper()
	s.gate.Lock()
	defer s.gate.Unlock()
	status := s.m.WaitReady()
	if len(status.Tables) != len(s.tables) {
		s.t.Fatalf("the mirror has %d tables, the source %d", len(status.Tables), len(s.tables))
	}
	caughtUp(s.pg, s.m) // which takes a look at the catalogue
	// One that was truncated under its first copy, or while pgmirror was down, may have to be copied again.
	s.m.WaitStatus("every table is streaming", func(status *mirror.Status) bool {
		for _, table := range status.Tables {
			if table.State == "failed" || table.InsertOnly {
				s.t.Fatalf("table %s is %s: %s (insert only: %t)", table.Name, table.State, table.Error, table.InsertOnly)
			}
		}
		return !slices.ContainsFunc(status.Tables, func(table mirror.TableStatus) bool { return table.State != "streaming" })
	})
	want, err := sourceContent(s.pg, s.tables, "")
	must(s.t, err)
	got, err := mirrorContent(s.m, s.tables)
	must(s.t, err)
	must(s.t, diffContent(s.tables, want, got))
	must(s.t, sameColumns(s.m, s.tables))
	alike(s.t, s.pg, s.m, "select station, count(*) from velo.bike where state = 'free' group by station order by station")
	leaves := `(select * from velo."Rental 2024" union all select * from velo."Rental 2025" union all select * from velo."Rental_rest")`
	alike(s.t, s.pg, s.m, `select u.email, count(*), sum(r.price), count(r.track) from `+leaves+` r join velo."user" u on u.id = r."user" where r.ended is null or r.price > 1 group by u.email order by min(u.id)`)
	s.m.Verify()
	rows := 0
	for _, table := range s.tables {
		rows += len(want[table.name])
	}
	empty := slices.DeleteFunc(slices.Clone(s.tables), func(t *driven) bool { return len(want[t.name]) > 0 })
	s.t.Logf("equal: %d tables, %d rows after %d transactions and %d kills; %s", len(s.tables), rows, s.done.Load(), s.kills, fmt.Sprintf("%d tables are empty", len(empty)))
}
