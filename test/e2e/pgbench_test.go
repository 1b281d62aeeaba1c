package e2e

import (
	"context"
	"errors"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"pgmirror/pgcdc"
	"pgmirror/readstate"
	"pgmirror/test/harness"
	"pgmirror/test/interop"
)

const (
	benchTime    = 20 * time.Second
	benchClients = 4
)

// pgbench runs PostgreSQL's own load generator against the database postgres.
func pgbench(pg *harness.Postgres, args ...string) error {
	name := "pgbench"
	own := filepath.Join(os.Getenv("PGMIRROR_PG_BIN"), name)
	if _, err := os.Stat(own); err == nil { // not every build of a server has it
		name = own
	} else if installed, _ := filepath.Glob("/usr/lib/postgresql/*/bin/pgbench"); len(installed) > 0 {
		name = slices.Max(installed)
	}
	cmd := exec.Command(name, append(args, "postgres")...)
	cmd.Env = append(environment(), "PGHOST=127.0.0.1", "PGPORT="+strconv.Itoa(pg.Port()), "PGUSER=postgres")
	cmd.SysProcAttr = harness.ChildProc()
	if out, err := cmd.CombinedOutput(); err != nil {
		return fmt.Errorf("pgbench %q: %w\n%s", args, err, out)
	}
	return nil
}

// benchTables are pgbench's.
func benchTables() []*driven {
	number := func(names ...string) []column {
		var columns []column
		for _, name := range names {
			columns = append(columns, column{name: name, typ: kind(pgcdc.KindInt4)})
		}
		return columns
	}
	filler := column{name: "filler", typ: kind(pgcdc.KindText)}
	moment := column{name: "mtime", typ: kind(pgcdc.KindTimestamp)}
	return []*driven{
		{name: "pgbench_accounts", columns: append(number("aid", "bid", "abalance"), filler), unique: true},
		{name: "pgbench_branches", columns: append(number("bid", "bbalance"), filler), unique: true},
		{name: "pgbench_tellers", columns: append(number("tid", "bid", "tbalance"), filler), unique: true},
		{name: "pgbench_history", columns: append(number("tid", "bid", "aid", "delta"), moment, filler), insertOnly: true},
	}
}

// balances are the four sums that are equal after every transaction of pgbench, and the column that each sums up.
var balances = map[string]string{"pgbench_accounts": "abalance", "pgbench_branches": "bbalance", "pgbench_tellers": "tbalance", "pgbench_history": "delta"}

// Under pgbench and through a kill, every read sees whole transactions only, also two reads inside BEGIN and COMMIT, and every
// committed set of snapshots holds whole transactions only. In the end the mirror equals the source.
func TestPgbench(t *testing.T) {
	t.Parallel()
	pg := harness.StartPostgres(t)
	if err := pgbench(pg, "-i", "-q", "-s", "1"); err != nil {
		t.Fatal(err)
	}
	pg.Exec("CREATE TABLE tick (id int PRIMARY KEY)", "CREATE TABLE here (id int PRIMARY KEY)", "CREATE TABLE there (id int PRIMARY KEY)",
		fmt.Sprintf("INSERT INTO here SELECT generate_series(1, %d)", moving))
	pg.CreateMirrorRole(mirrorRole, "postgres")
	pg.Exec("CREATE PUBLICATION p FOR ALL TABLES")
	m := StartMirror(t, pg, "p", "--checkpoint-interval", "1s", "--batch-rows", "1000")

	var load, looking sync.WaitGroup
	loadEnded := make(chan struct{})
	var loadErr, moveErr error
	load.Go(func() {
		loadErr = pgbench(pg, "-n", "-c", strconv.Itoa(benchClients), "-T", strconv.Itoa(int(benchTime.Seconds())), "--protocol=prepared")
		close(loadEnded)
	})
	load.Go(func() { moveErr = moveRows(pg, loadEnded) })
	look := &looker{m: m}
	looking.Go(func() { look.until(loadEnded) })
	count := &counter{data: m.Data()}
	looking.Go(func() { count.until(loadEnded) })

	t.Log(freshness(t, pg, m, 200))
	m.Kill()
	m.Start()
	load.Wait()
	looking.Wait()
	if err := errors.Join(loadErr, moveErr); err != nil {
		t.Fatal(err)
	}
	m.WaitReady()
	if err := errors.Join(look.err, count.err); err != nil {
		t.Fatal(err)
	}
	t.Logf("%d statements, %d blocks and %d read states saw equal sums, %d statements could not be answered", look.statements, look.blocks,
		count.states, look.refused)
	if look.statements < 5 || look.blocks < 5 || count.states < 50 {
		t.Fatal("too few reads were answered")
	}
	m.Verify()
	tables := benchTables()
	want, err := sourceContent(pg, tables, "")
	if err != nil {
		t.Fatal(err)
	}
	got, err := mirrorContent(m, tables)
	if err != nil {
		t.Fatal(err)
	}
	if err := diffContent(tables, want, got); err != nil {
		t.Fatal(err)
	}
	m.Checkpoint()
	checkBalancesOfSnapshots(t, m)
}

// moving is how many rows one transaction moves from one table to another: so many that it takes a while to apply.
const moving = 10_000

// moveRows moves all rows there and back, a few times a second, until the load ends. Without a pause they would be most of the
// load, and the mirror of a busy machine would fall behind.
func moveRows(pg *harness.Postgres, ended <-chan struct{}) error {
	session, err := pgconn.Connect(context.Background(), pg.SocketURL("postgres", "postgres"))
	if err != nil {
		return err
	}
	defer session.Close(context.Background())
	from, to := "here", "there"
	for {
		select {
		case <-ended:
			return nil
		case <-time.After(300 * time.Millisecond):
		}
		move := fmt.Sprintf("WITH gone AS (DELETE FROM %s RETURNING id) INSERT INTO %s SELECT id FROM gone", from, to)
		if _, err := session.Exec(context.Background(), move).ReadAll(); err != nil {
			return err
		}
		from, to = to, from
	}
}

// looker reads the sums, and the number of rows that are moved, until the load ends.
type looker struct {
	m                           *Mirror
	statements, blocks, refused int
	err                         error
}

func (l *looker) until(ended <-chan struct{}) {
	var sums []string
	for _, table := range []string{"pgbench_accounts", "pgbench_branches", "pgbench_tellers", "pgbench_history"} {
		sums = append(sums, fmt.Sprintf("(SELECT coalesce(sum(%s), 0) FROM %s) AS s", balances[table], table))
	}
	const moved = "(SELECT count(*) FROM here) + (SELECT count(*) FROM there) AS s"
	one := "SELECT " + strings.Join(sums, ", ") + ", " + moved
	block := "BEGIN; SELECT " + sums[0] + ", (SELECT count(*) FROM here) AS n; SELECT count(*) AS s FROM range(10000000); " +
		"SELECT " + sums[3] + ", (SELECT count(*) FROM there) AS n; SELECT " + sums[1] + "; COMMIT"
	for {
		select {
		case <-ended:
			return
		default:
		}
		for _, script := range []string{one, block} {
			out, _, code := l.m.Command("sql", "--format", "csv", "-c", script)
			if code != 0 { // between the kill and the end of recovery
				l.refused++
				continue
			}
			rows, err := parseCSV(out)
			if err == nil && script == one {
				l.statements++
				err = sameSums(rows)
			} else if err == nil {
				l.blocks++
				err = sameInBlock(rows)
			}
			if err != nil {
				l.err = fmt.Errorf("%s: %w: %q", script, err, rows)
				return
			}
		}
	}
}

// sameSums judges the answer of the one statement: a header and a line.
func sameSums(rows [][]string) error {
	if len(rows) != 2 || len(rows[1]) != 5 {
		return errors.New("not one line of five sums")
	}
	line := rows[1]
	if line[0] != line[1] || line[0] != line[2] || line[0] != line[3] || line[4] != strconv.Itoa(moving) {
		return errors.New("a part of a transaction was read")
	}
	return nil
}

// sameInBlock judges the answers of the block: accounts and here, a number of no meaning, history and there, branches, each
// with a header.
func sameInBlock(rows [][]string) error {
	if len(rows) != 8 || len(rows[1]) != 2 || len(rows[5]) != 2 {
		return errors.New("not the answers of four statements")
	}
	here, err := strconv.Atoi(rows[1][1])
	if err != nil {
		return err
	}
	there, err := strconv.Atoi(rows[5][1])
	if err != nil {
		return err
	}
	if rows[1][0] != rows[5][0] || rows[1][0] != rows[7][0] || here+there != moving {
		return errors.New("statements of a block read different states")
	}
	return nil
}

// counter takes read states, many more than statements can be run, and counts the rows that are moved.
type counter struct {
	data   string
	states int
	err    error
}

func (c *counter) until(ended <-chan struct{}) {
	ctx := context.Background()
	for {
		client, err := readstate.Dial(ctx, c.data)
		for err == nil {
			var state *readstate.State
			if state, err = client.Pin(ctx, readstate.PinRequest{}); err != nil {
				break
			}
			rows := movedRows(state)
			state.Release()
			if c.states++; rows != moving {
				c.err = errors.Join(fmt.Errorf("the read state at %s has %d of %d moved rows", state.LSN, rows, moving), client.Close())
				return
			}
			select {
			case <-ended:
				c.err = client.Close()
				return
			case <-time.After(2 * time.Millisecond):
			}
		}
		if client != nil {
			client.Close() // it is lost already
		}
		select {
		case <-ended:
			return
		case <-time.After(20 * time.Millisecond): // pgmirror was killed, and recovers
		}
	}
}

// movedRows is how many rows the two tables have together.
func movedRows(state *readstate.State) (rows int64) {
	for _, table := range state.Tables {
		if table.Name.Name != "here" && table.Name.Name != "there" {
			continue
		}
		for _, f := range table.Files {
			rows += f.Rows - int64(f.Deleted.Cardinality())
		}
		for _, b := range table.Batches {
			rows += int64(b.Rows) - int64(b.Deleted.Cardinality())
		}
	}
	return rows
}

// freshness commits n rows one by one and says how long each took from the commit's return until a read state showed it. It
// is a figure to read, on whatever machine runs the tests, not a promise.
func freshness(t *testing.T, pg *harness.Postgres, m *Mirror, n int) string {
	t.Helper()
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	client, err := readstate.Dial(ctx, m.Data())
	if err != nil {
		t.Fatal(err)
	}
	defer client.Close()
	session := pg.Open("postgres", "postgres")
	defer session.Close()
	took := make([]time.Duration, n)
	for i := range took {
		session.Exec(fmt.Sprintf("INSERT INTO tick VALUES (%d)", i))
		begin := time.Now()
		rows, _ := session.Query("SELECT pg_current_wal_insert_lsn()")
		lsn, err := parseLSN(rows[0][0])
		if err != nil {
			t.Fatal(err)
		}
		state, err := client.Pin(ctx, readstate.PinRequest{WaitLSN: lsn})
		if err != nil {
			t.Fatal(err)
		}
		took[i] = time.Since(begin)
		state.Release()
	}
	slices.Sort(took)
	return fmt.Sprintf("freshness under pgbench: P50 %s, P99 %s over %d commits", took[n/2], took[n*99/100], n)
}

// checkBalancesOfSnapshots reads the four tables as they were at some of the retained checkpoints. At each, the balance of every
// account, teller and branch is the sum of its own lines in the history: the checkpoint holds whole transactions and all of them.
func checkBalancesOfSnapshots(t *testing.T, m *Mirror) {
	t.Helper()
	all, err := readers()
	if err != nil {
		t.Fatal(err)
	}
	found, err := interop.Tables(m.Data())
	if err != nil {
		t.Fatal(err)
	}
	snapshots := map[string][]interop.Snapshot{}
	tables := map[string]interop.Table{}
	var cuts []interop.LSN
	for _, table := range found {
		if _, ok := balances[table.Name]; !ok {
			continue
		}
		tables[table.Name] = table
		if snapshots[table.Name], err = table.Snapshots(); err != nil {
			t.Fatal(err)
		}
		for _, s := range snapshots[table.Name] {
			cuts = append(cuts, s.LSN)
		}
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	if len(tables) != len(balances) || len(cuts) < 5 {
		t.Fatalf("the catalog has %d of %d tables, and %d checkpoints of %s", len(tables), len(balances), len(cuts), benchTime)
	}
	const samples = 4
	for i := 1; i <= samples; i++ {
		cut := cuts[len(cuts)*i/samples-1]
		read := func(name string) interop.Result {
			var at interop.Snapshot
			for _, s := range snapshots[name] {
				if s.LSN <= cut {
					at = s
				}
			}
			result, err := all.Named("duckdb").Read(interop.Query{Table: tables[name], Snapshot: at.ID})
			if err != nil {
				t.Fatal(err)
			}
			return result
		}
		history := read("pgbench_history")
		for name, key := range map[string]string{"pgbench_accounts": "aid", "pgbench_tellers": "tid", "pgbench_branches": "bid"} {
			want, got := sumsBy(t, history, key, "delta"), sumsBy(t, read(name), key, balances[name])
			if !maps.Equal(want, got) {
				t.Errorf("at %s the balances of %s are not the sums of the %d lines of the history", cut, name, len(history.Rows))
			}
		}
	}
}

// sumsBy adds up a column for each value of another. Sums of 0 are left out.
func sumsBy(t *testing.T, rows interop.Result, key, value string) map[string]int64 {
	t.Helper()
	k, v := slices.Index(rows.Columns, key), slices.Index(rows.Columns, value)
	sums := map[string]int64{}
	for _, row := range rows.Rows {
		n, err := strconv.ParseInt(row[v], 10, 64)
		if err != nil {
			t.Fatal(err)
		}
		sums[row[k]] += n
	}
	maps.DeleteFunc(sums, func(_ string, n int64) bool { return n == 0 })
	return sums
}
