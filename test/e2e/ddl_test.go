package e2e

import (
	"context"
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"pgmirror/mirror"
	"pgmirror/test/harness"
)

var (
	ddlSeed  = flag.Uint64("ddl.seed", 1, "first seed of TestRandomSchemaChanges")
	ddlSeeds = flag.Uint64("ddl.seeds", 2, "seeds of TestRandomSchemaChanges")
	ddlSteps = flag.Int("ddl.steps", 40, "schema changes of each seed of TestRandomSchemaChanges")
)

// Whatever becomes of the tables' definitions, names and places in the publication while clients write and pgmirror is killed and
// stopped, it comes to hold exactly the source's rows by itself. Meanwhile a query that waits for the source gets what the source had,
// or an error, and never what was there before.
func TestRandomSchemaChanges(t *testing.T) {
	t.Parallel()
	for seed := *ddlSeed; seed < *ddlSeed+*ddlSeeds; seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			newAlterer(t, seed).run()
		})
	}
}

// alterer is one run: a source whose tables change, two writers, two readers, and the mirror.
type alterer struct {
	t       *testing.T
	r       *rand.Rand
	pg      *harness.Postgres
	session *harness.Session
	ddl     *pgconn.PgConn // for the schema changes
	m       *Mirror
	rec     *recorder
	gate    sync.RWMutex // writers hold it to write, comparisons to keep them from it
	epoch   atomic.Int64 // of the newest definition of the table epoch that is committed
	serial  int
	refused int
	jobs    sync.WaitGroup
	quit    chan struct{}
}

// alteredNames are all names that tables may have. At first those up to t4 do.
var alteredNames = []string{"t0", "t1", "t2", "t3", "t4", "u0", "u1", "u2"}

const alteredTable = "(id int primary key, v text, m mood default 'a', p part)"

func newAlterer(t *testing.T, seed uint64) *alterer {
	a := &alterer{t: t, r: rand.New(rand.NewPCG(seed, 0xdd1)), quit: make(chan struct{})}
	s := &script{Settings: alteredSettings, Setup: []string{"create type mood as enum('a', 'b', 'c')", "create type part as (m mood, n int)", "alter default privileges grant select on tables to public",
		"create table left_half(id int primary key, v bigint)", "insert into left_half select i, 100 from generate_series(1, 300) i",
		"create table right_half(id int primary key, v bigint)", "insert into right_half select i, -100 from generate_series(1, 300) i",
		"create table epoch(id int primary key, e int)", "insert into epoch values (1, 0)", "create publication p for table left_half, right_half, epoch"}}
	for _, name := range alteredNames[:5] {
		s.Setup = append(s.Setup, "create table "+name+alteredTable, "insert into "+name+" select g, md5(g::text) from generate_series(1, 500) g", "alter publication p add table "+name)
	}
	s.Args = []string{"--catalog-poll", "200ms", "--checkpoint-interval", oneOf("200ms", "1s", "30s")(a.r), "--batch-rows", oneOf("20", "500", "8192")(a.r),
		"--history", oneOf("0s", "3s")(a.r), "--memory", oneOf("1MiB", "25%")(a.r)}
	a.begin(seed, s)
	return a
}

// alteredSettings are those of the source.
var alteredSettings = []string{"deadlock_timeout=20ms", "lock_timeout=1s", "logical_decoding_work_mem=64kB"}

// begin starts the source and the mirror, and notes what happens from then on.
func (a *alterer) begin(seed uint64, s *script) {
	a.t.Logf("seed %d: %q", seed, s.Args)
	a.pg = s.source(a.t)
	a.session, a.ddl = a.pg.Open("postgres", "postgres"), a.connect()
	a.m, a.rec = StartMirror(a.t, a.pg, "p", s.Args...), record(a.t, s)
}

// connect opens a connection on which statements may fail.
func (a *alterer) connect() *pgconn.PgConn {
	conn, err := pgconn.Connect(context.Background(), a.pg.SocketURL("postgres", "postgres"))
	must(a.t, err)
	a.t.Cleanup(func() { conn.Close(context.Background()) })
	return conn
}

// tried says whether the source did what was asked; what it refused is rolled back.
func tried(conn *pgconn.PgConn, sql string) bool {
	_, err := conn.Exec(context.Background(), sql).ReadAll()
	if err != nil {
		conn.Exec(context.Background(), "rollback").ReadAll()
	}
	return err == nil
}

// done is tried, and noted.
func (a *alterer) done(conn *pgconn.PgConn, sql string) bool {
	ok := tried(conn, sql)
	if ok {
		a.rec.add(act{Do: "sql", SQL: []string{sql}})
	}
	return ok
}

// kill ends pgmirror by SIGKILL, stop by SIGTERM; both start it again.
func (a *alterer) kill() {
	a.rec.add(act{Do: "kill"})
	a.m.Kill()
	a.m.Start()
}

func (a *alterer) stop() {
	a.rec.add(act{Do: "stop"})
	a.m.WaitStatus("answering", func(*mirror.Status) bool { return true })
	if code := a.m.Stop(); code != 0 {
		a.t.Fatalf("SIGTERM: exit code %d", code)
	}
	a.m.Start()
}

func (a *alterer) run() {
	for n := range uint64(2) {
		writer := a.connect()
		r := rand.New(rand.NewPCG(a.r.Uint64(), n))
		a.jobs.Go(func() { a.write(writer, r) })
	}
	a.jobs.Go(a.readHalves)
	a.jobs.Go(a.readEpoch)
	stop := sync.OnceFunc(func() { close(a.quit); a.jobs.Wait() })
	defer stop()
	for step := 1; step <= *ddlSteps && !a.t.Failed(); step++ {
		a.change()
		switch {
		case step%20 == 0:
			a.compare()
		case a.r.IntN(12) == 0:
			a.kill()
		case a.r.IntN(25) == 0:
			a.stop()
		}
		time.Sleep(time.Duration(a.r.IntN(120)) * time.Millisecond)
	}
	stop()
	a.compare()
	a.t.Logf("%d schema changes were refused", a.refused)
}

// write changes rows of any table, whatever it has become. What the source refuses is rolled back.
func (a *alterer) write(conn *pgconn.PgConn, r *rand.Rand) {
	for {
		select {
		case <-a.quit:
			return
		case <-time.After(time.Duration(r.IntN(10)) * time.Millisecond):
		}
		a.gate.RLock()
		sql := []string{"begin"}
		for range 1 + r.IntN(4) {
			name, from := alteredNames[r.IntN(len(alteredNames))], r.IntN(2000)
			switch r.IntN(7) {
			case 6:
				sql = append(sql, fmt.Sprintf("update %s set p.m = (enum_range(null::mood))[1 + id %% 3] where id %% 19 = %d", name, r.IntN(19)))
			case 0, 1:
				sql = append(sql, fmt.Sprintf("insert into %s(id, v) select g, md5(g::text) from generate_series(%d, %d) g on conflict do nothing", name, from, from+r.IntN(200)))
			case 2:
				sql = append(sql, fmt.Sprintf("update %s set v = left(v, 20) || '%d' where id %% 17 = %d", name, from, r.IntN(17)))
			case 3:
				sql = append(sql, fmt.Sprintf("update %s set m = (enum_range(null::mood))[1 + id %% 3] where id %% 13 = %d", name, r.IntN(13)))
			case 4:
				sql = append(sql, fmt.Sprintf("delete from %s where id %% 11 = %d", name, r.IntN(11)))
			case 5:
				sql = append(sql, fmt.Sprintf("savepoint s; delete from %s where id < %d; rollback to s", name, from))
			}
		}
		a.done(conn, strings.Join(append(sql, "commit"), "; "))
		id, amount := 1+r.IntN(300), r.IntN(50)
		a.done(conn, fmt.Sprintf("begin; update left_half set v = v + %d where id = %d; update right_half set v = v - %d where id = %d; commit", amount, id, amount, 301-id))
		a.gate.RUnlock()
	}
}

// readHalves reads what every transaction and every schema change keeps.
func (a *alterer) readHalves() {
	a.reading(func() act {
		return act{SQL: []string{"select (select sum(v) from left_half) + (select sum(v) from right_half), (select count(*) from left_half), (select count(*) from right_half)"}, Want: "0|300|300"}
	})
}

// readEpoch reads what the schema changes of a table put into its rows, with no row event.
func (a *alterer) readEpoch() {
	a.reading(func() act {
		return act{SQL: []string{"select max(e), count(*) from epoch"}, Want: fmt.Sprintf("%d|1", a.epoch.Load()), Least: true}
	})
}

// reading asks a question again and again. The answer is an error, or what is wanted at least.
func (a *alterer) reading(question func() act) {
	for {
		select {
		case <-a.quit:
			return
		case <-time.After(20 * time.Millisecond):
		}
		q := question()
		q.Do = "read"
		if wrong := q.answered(a.m); wrong != "" {
			a.rec.add(q)
			a.t.Error(wrong)
			return
		}
	}
}

// change makes one schema change.
func (a *alterer) change() {
	a.serial++
	name, other := a.table(), a.table()
	free := alteredNames[slices.IndexFunc(alteredNames, func(n string) bool { return !slices.Contains(a.tables(), n) })]
	extra := fmt.Sprintf("x%d", a.serial)
	columns, err := a.session.Query("select attname from pg_attribute where attrelid = '" + name + "'::regclass and attnum > 4 and not attisdropped")
	must(a.t, err)
	some := "v"
	if len(columns) > 0 {
		some = columns[a.r.IntN(len(columns))][0]
	}
	forms := []string{
		"alter table NAME add column EXTRA int",
		"alter table NAME add column EXTRA int default 7",
		"alter table NAME add column EXTRA int default (random() * 1000000)::int",
		"alter table NAME rename to FREE",
		"alter table NAME alter v type varchar(100) using 'z' || left(v, 30)",
		"alter table NAME alter v type text using 'y' || left(v, 30)",
		"truncate NAME",
		"begin; truncate NAME, OTHER; insert into NAME(id, v) values (1, 'first'); commit",
		"begin; drop table NAME; create table NAME" + alteredTable + "; insert into NAME values (1, 'anew'); alter publication p add table NAME; commit",
		"begin; drop table NAME; create table FREE" + alteredTable + "; insert into FREE values (1, 'anew'); alter publication p add table FREE; commit",
		"alter table NAME replica identity full", "alter table NAME replica identity default",
		"alter type mood add value 'nSERIAL'",
		"do $$ begin execute format('alter type mood rename value %L to %L', (enum_range(null::mood))[2], 'rSERIAL'); end $$",
		"alter type part add attribute EXTRA int",
		"do $$ begin execute (select format('alter type part drop attribute %I', attname) from pg_attribute where attrelid = 'part'::regclass and attnum > 1 and not attisdropped order by attnum limit 1); end $$",
		"begin; savepoint s; alter table NAME add column gone int default 5; insert into NAME(id, v) values (9001, 'gone'); rollback to s; " +
			"update NAME set v = 'kept' where id = 1; savepoint s; truncate NAME; rollback to s; commit",
		"begin; update NAME set v = 'before' where id % 5 = 0; alter table NAME add column EXTRA text default 'd'; update NAME set v = 'after' where id % 5 = 1; commit",
		"vacuum full NAME",
		"begin; alter table left_half rename to halves; alter table right_half rename to left_half; alter table halves rename to right_half; commit",
		"begin; alter table left_half add column c int default 1; alter table left_half drop column c; commit",
		"begin; lock table right_half in access exclusive mode; create table halves(id int primary key, v bigint); insert into halves select * from right_half; drop table right_half; " +
			"alter table halves rename to right_half; alter publication p add table right_half; commit",
	}
	if some != "v" {
		forms = append(forms, "alter table NAME drop column SOME", "alter table NAME rename column SOME to EXTRA", "alter table NAME alter SOME type text",
			"alter table NAME drop column SOME", "begin; alter table NAME drop column SOME; alter table NAME add column SOME int default 3; commit")
	}
	if other != name {
		forms = append(forms, "begin; alter table NAME rename to swapping; alter table OTHER rename to NAME; alter table swapping rename to OTHER; commit")
		if third := a.table(); third != name && third != other {
			forms = append(forms, "begin; alter table NAME rename to swapping; alter table OTHER rename to NAME; alter table "+third+" rename to OTHER; alter table swapping rename to "+third+"; commit")
		}
	}
	n := a.r.IntN(len(forms) + 6)
	switch {
	case n < len(forms):
		a.exec(strings.NewReplacer("NAME", name, "FREE", free, "EXTRA", extra, "SOME", some, "OTHER", other, "SERIAL", itoa(a.serial)).Replace(forms[n]))
	case n < len(forms)+4:
		a.nextEpoch()
	default:
		a.leave(name)
	}
}

// exec runs one schema change; a source that waits too long for a lock refuses it.
func (a *alterer) exec(sql string) bool {
	if !a.done(a.ddl, sql) {
		a.refused++
		return false
	}
	return true
}

// nextEpoch gives the table epoch's only row another value by a change of the schema.
func (a *alterer) nextEpoch() {
	next := a.epoch.Load() + 1
	forms := []string{
		"begin; alter table epoch drop column e; alter table epoch add column e int default %d; commit",
		"alter table epoch alter e type int using %d",
		"begin; drop table epoch; create table epoch(id int primary key, e int); insert into epoch values (1, %d); alter publication p add table epoch; commit",
		"begin; create table epochs(id int primary key, e int); insert into epochs values (1, %d); drop table epoch; alter table epochs rename to epoch; alter publication p add table epoch; commit",
		"update epoch set e = %d",
	}
	if a.exec(fmt.Sprintf(forms[a.r.IntN(len(forms))], next)) {
		a.epoch.Store(next)
	}
}

// leave takes a table out of the publication for a while.
func (a *alterer) leave(name string) {
	if !a.exec("alter publication p drop table " + name) {
		return
	}
	a.m.WaitStatus("its leaving is found", func(s *mirror.Status) bool {
		i := slices.IndexFunc(s.Tables, func(ts mirror.TableStatus) bool { return ts.Name == "public."+name })
		return i < 0 || s.Tables[i].State != "streaming" && s.Tables[i].State != "copying"
	})
	a.exec("insert into " + name + "(id, v) values (9002, 'unseen') on conflict do nothing")
	if !a.done(a.ddl, "alter publication p add table "+name) {
		a.t.Fatalf("%s cannot be put back", name)
	}
}

// tables are the names of the tables that the writers change.
func (a *alterer) tables() (names []string) {
	a.t.Helper()
	rows, err := a.session.Query("select tablename from pg_publication_tables where tablename ~ '^[tu][0-9]$' order by 1")
	must(a.t, err)
	for _, row := range rows {
		names = append(names, row[0])
	}
	return names
}

// table is the name of any of them.
func (a *alterer) table() string {
	names := a.tables()
	return names[a.r.IntN(len(names))]
}

// compare waits until all tables can be read and holds them against the source's, row by row, while nobody writes.
func (a *alterer) compare() {
	a.t.Helper()
	a.gate.Lock()
	defer a.gate.Unlock()
	names := append(a.tables(), "left_half", "right_half", "epoch")
	var queries []string
	for _, name := range names {
		queries = append(queries, "select * from "+name+" order by id")
	}
	a.rec.add(act{Do: "compare", SQL: queries})
	compareAll(a.t, a.pg, a.m, queries)
}
