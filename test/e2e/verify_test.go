package e2e

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"pgmirror/deletion"
	pgiceberg "pgmirror/iceberg"
	"pgmirror/mirror"
	"pgmirror/readstate"
	"pgmirror/test/harness"
)

// verifyJSON runs `verify --json` and returns its report and exit code.
func (m *Mirror) verifyJSON(args ...string) (*mirror.VerifyReport, int) {
	m.t.Helper()
	out, errs, code := m.Command(append([]string{"verify", "--json"}, args...)...)
	report := new(mirror.VerifyReport)
	if err := json.Unmarshal([]byte(out), report); err != nil {
		m.t.Fatalf("verify: exit code %d: %v\n%s%s", code, err, out, errs)
	}
	return report, code
}

// verifiedTable finds a table's part of a report.
func verifiedTable(t testing.TB, report *mirror.VerifyReport, name string) mirror.VerifyTable {
	t.Helper()
	i := slices.IndexFunc(report.Tables, func(v mirror.VerifyTable) bool { return v.Name == name })
	if i < 0 {
		t.Fatalf("the report has no table %s: %+v", name, report)
	}
	return report.Tables[i]
}

// While four clients write to tables of every type and identity, synchronously and not, as fast as they can, each of twenty comparisons
// finds every table equal, at an LSN of its own.
func TestVerifyUnderLoad(t *testing.T) {
	t.Parallel()
	pg := harness.StartPostgres(t, harness.Setting("deadlock_timeout", "20ms"), harness.Setting("lock_timeout", "2s"))
	tables := drivenTables(rand.New(rand.NewPCG(1, 0x7e51f7)), true)
	pg.Exec(typesSQL, `CREATE SCHEMA "Sh op"`)
	for _, table := range tables {
		pg.Exec(table.create()...)
	}
	pg.CreateMirrorRole(mirrorRole, "postgres", "public", "Sh op")
	pg.Exec("ALTER ROLE postgres SET synchronous_commit = off", "CREATE PUBLICATION p FOR ALL TABLES")
	w := startWriters(pg, tables, 1, 2)
	t.Cleanup(w.stop)
	pg.Exec("ALTER ROLE postgres SET synchronous_commit = on")
	w2 := startWriters(pg, tables, 2, 2)
	t.Cleanup(w2.stop)
	w.allowed.Store(5000)
	w2.allowed.Store(5000)
	m := StartMirror(t, pg, "p", "--batch-rows", "500", "--checkpoint-interval", "300ms")
	last, began := "", time.Now()
	var rows int64
	for i := range 20 {
		// They rest only when a comparison takes very long, so that the mirror is not left far behind.
		before := w.changes.Load() + w2.changes.Load()
		w.allowed.Store(w.changes.Load() + 3000)
		w2.allowed.Store(w2.changes.Load() + 3000)
		if err := errors.Join(w.waitFor(w.changes.Load()+10), w2.waitFor(w2.changes.Load()+10)); err != nil {
			t.Fatal(err)
		}
		var args []string
		if i%5 == 4 {
			args = []string{"--sample", "40"}
		}
		report, code := m.verifyJSON(args...)
		if code != 0 || !report.Equal || len(report.Tables) != len(tables) {
			t.Fatalf("comparison %d: exit code %d, %+v", i, code, report)
		}
		if report.LSN == last {
			t.Fatalf("two comparisons at %s, while %d rows were written", last, w.changes.Load()+w2.changes.Load()-before)
		}
		last = report.LSN
		for _, table := range report.Tables {
			rows += table.SourceRows
		}
	}
	w.stop()
	w2.stop()
	if rows == 0 {
		t.Error("the tables were empty")
	}
	t.Logf("%d rows compared while %d were written, in %s", rows, w.changes.Load()+w2.changes.Load(), time.Since(began).Round(time.Millisecond))
}

// plantTable changes what a stopped mirror holds of a table: its only data file is written anew by change, which gets its rows with
// the hidden column, and the positions that are deleted. Catalog, metadata and deletion vectors are as a checkpoint
// would leave them.
func plantTable(t *testing.T, data, name string, change func(rec arrow.RecordBatch, deleted []uint32) (arrow.RecordBatch, []uint32)) {
	t.Helper()
	ctx := context.Background()
	warehouse, err := pgiceberg.Open(ctx, pgiceberg.Config{Dir: data})
	if err != nil {
		t.Fatal(err)
	}
	defer warehouse.Close()
	state, err := warehouse.Load(ctx)
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(state.Tables, func(s pgiceberg.TableState) bool { return s.Name.Name == name })
	if at < 0 || len(state.Tables[at].Files) != 1 {
		t.Fatalf("table %s is not there with one file: %+v", name, state.Tables)
	}
	table := state.Tables[at]
	file := table.Files[0]
	reader, err := warehouse.OpenData(file.Path)
	if err != nil {
		t.Fatal(err)
	}
	fields := slices.Clone(table.Schema.Fields())
	var ids []int32
	for _, f := range fields {
		text, _ := f.Metadata.GetValue(readstate.FieldIDKey)
		id, err := strconv.ParseInt(text, 10, 32)
		if err != nil {
			t.Fatal(err)
		}
		ids = append(ids, int32(id))
	}
	fields = append(fields, arrow.Field{Name: pgiceberg.LSNColumn, Type: arrow.PrimitiveTypes.Int64})
	var rows arrow.RecordBatch
	err = reader.Columns(ctx, append(ids, pgiceberg.LSNFieldID), func(rec arrow.RecordBatch, first int64) error {
		if first != 0 {
			return fmt.Errorf("more than one batch")
		}
		rows = array.NewRecordBatch(arrow.NewSchema(fields, nil), rec.Columns(), rec.NumRows())
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if err := reader.Close(); err != nil {
		t.Fatal(err)
	}
	changed, deleted := change(rows, slices.Collect(file.Deleted.Positions()))
	writer, err := warehouse.NewWriter(ctx, pgiceberg.TableLocation{Name: table.Name, UUID: table.UUID, Schema: table.Schema})
	if err != nil {
		t.Fatal(err)
	}
	if err := writer.Write(changed); err != nil {
		t.Fatal(err)
	}
	written, err := writer.Close()
	if err != nil {
		t.Fatal(err)
	}
	commit := pgiceberg.TableCommit{Name: table.Name, UUID: table.UUID, Add: []pgiceberg.DataFile{written}, Remove: []string{file.Path}}
	if len(deleted) > 0 {
		vector := deletion.NewVector(uint32(changed.NumRows()))
		for _, p := range deleted {
			vector.Set(p)
		}
		commit.Vectors = map[string]*deletion.Vector{written.Path: vector.Freeze()}
	}
	if _, err := warehouse.Commit(ctx, pgiceberg.Commit{LSN: state.LSN, Tables: []pgiceberg.TableCommit{commit}}); err != nil {
		t.Fatal(err)
	}
}

// gather is the rows of a batch at some positions.
func gather(t *testing.T, rec arrow.RecordBatch, rows []int) arrow.RecordBatch {
	t.Helper()
	columns := make([]arrow.Array, rec.NumCols())
	for c := range columns {
		var parts []arrow.Array
		for _, row := range rows {
			parts = append(parts, array.NewSlice(rec.Column(c), int64(row), int64(row+1)))
		}
		joined, err := array.Concatenate(parts, memory.DefaultAllocator)
		if err != nil {
			t.Fatal(err)
		}
		columns[c] = joined
	}
	return array.NewRecordBatch(rec.Schema(), columns, int64(len(rows)))
}

func upTo(n int64) (rows []int) {
	for i := range n {
		rows = append(rows, int(i))
	}
	return rows
}

// position finds the row whose first column, an integer, is id.
func position(t *testing.T, rec arrow.RecordBatch, id int32) int {
	t.Helper()
	i := slices.Index(rec.Column(0).(*array.Int32).Int32Values(), id)
	if i < 0 {
		t.Fatalf("no row %d", id)
	}
	return i
}

// In a mirror whose stored content is wrong in one row (a changed value, a lost row, a doubled one, one deleted row that is
// back) verify finds that table, no other, and names the key; and so does a verify for which no run is started. One row
// among thousands is named, whatever the key's type.
func TestVerifyFindsPlantedFaults(t *testing.T) {
	t.Parallel()
	var tables []string
	for _, name := range []string{"untouched", "changed", "lost", "doubled", "resurrected"} {
		tables = append(tables, "create table "+name+"(id int primary key, total numeric(10,2), note text)",
			"insert into "+name+" select i, i * 1.5, repeat('note ', i % 50) from generate_series(1, 5000) i")
	}
	tables = append(tables, `create table wide("k ey" uuid, at timestamptz, id int, v bytea, primary key(id, "k ey", at))`,
		"insert into wide select md5(i::text)::uuid, '2026-01-02 03:04:05.5+00', i, int4send(i) from generate_series(1, 100) i",
		"create table keyless(a int, b text)", "alter table keyless replica identity full", "insert into keyless values (1, 'x'), (1, 'x'), (2, NULL)")
	pg, m := scene(t, tables)
	pg.Exec("delete from resurrected where id % 7 = 0", "delete from untouched where id % 7 = 0")
	caughtUp(pg, m)
	m.Checkpoint()
	m.Verify()
	if code := m.Stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}

	plantTable(t, m.Data(), "changed", func(rec arrow.RecordBatch, deleted []uint32) (arrow.RecordBatch, []uint32) {
		row := position(t, rec, 4321)
		from := gather(t, rec, []int{position(t, rec, 17)}) // another row's note
		notes, err := array.Concatenate([]arrow.Array{array.NewSlice(rec.Column(2), 0, int64(row)), from.Column(2),
			array.NewSlice(rec.Column(2), int64(row+1), rec.NumRows())}, memory.DefaultAllocator)
		if err != nil {
			t.Fatal(err)
		}
		columns := slices.Clone(rec.Columns())
		columns[2] = notes
		return array.NewRecordBatch(rec.Schema(), columns, rec.NumRows()), deleted
	})
	plantTable(t, m.Data(), "lost", func(rec arrow.RecordBatch, deleted []uint32) (arrow.RecordBatch, []uint32) {
		return rec, append(deleted, uint32(position(t, rec, 77)))
	})
	plantTable(t, m.Data(), "doubled", func(rec arrow.RecordBatch, deleted []uint32) (arrow.RecordBatch, []uint32) {
		return gather(t, rec, append(upTo(rec.NumRows()), position(t, rec, 5000))), deleted
	})
	plantTable(t, m.Data(), "resurrected", func(rec arrow.RecordBatch, deleted []uint32) (arrow.RecordBatch, []uint32) {
		i := slices.Index(deleted, uint32(position(t, rec, 700)))
		if i < 0 {
			t.Fatal("row 700 was not deleted")
		}
		return rec, slices.Delete(deleted, i, i+1)
	})
	plantTable(t, m.Data(), "wide", func(rec arrow.RecordBatch, deleted []uint32) (arrow.RecordBatch, []uint32) {
		return gather(t, rec, upTo(rec.NumRows()-1)), deleted
	})
	plantTable(t, m.Data(), "keyless", func(rec arrow.RecordBatch, deleted []uint32) (arrow.RecordBatch, []uint32) {
		return gather(t, rec, []int{0, 2, 2}), deleted
	})

	want := map[string][]mirror.VerifyDifference{
		"public.changed":     {{Key: "id=4321", SourceRows: 1, MirrorRows: 1, Columns: []string{"note"}}},
		"public.lost":        {{Key: "id=77", SourceRows: 1}},
		"public.doubled":     {{Key: "id=5000", SourceRows: 1, MirrorRows: 2}},
		"public.resurrected": {{Key: "id=700", MirrorRows: 1}},
		"public.wide":        {{Key: "id=100, k ey=f899139d-f5e1-0593-9643-1415e770c6dd, at=2026-01-02 03:04:05.5+00", SourceRows: 1}},
		"public.keyless":     nil,
	}
	judge := func(report *mirror.VerifyReport, code int) {
		t.Helper()
		if code != 1 || report.Equal || len(report.Tables) != len(want)+1 {
			t.Errorf("exit code %d, %+v", code, report)
		}
		for _, table := range report.Tables {
			differences, planted := want[table.Name]
			if planted != (table.Outcome == mirror.VerifyDifferent) || fmt.Sprint(table.Differences) != fmt.Sprint(differences) || table.More {
				t.Errorf("%s is %+v, want %+v", table.Name, table, differences)
			}
		}
	}
	judge(m.verifyJSON("--source", m.source)) // no run
	m.Start()
	m.WaitReady()
	judge(m.verifyJSON())
	out, errs, code := m.Command("verify", "changed", "resurrected", "public.untouched")
	for _, line := range []string{"public.untouched          4,286        4,286  equal", "id=4321: other values in note", "id=700: not on the source"} {
		if code != 1 || !strings.Contains(out, line) {
			t.Errorf("verify of three tables does not print %q: exit code %d\n%s%s", line, code, out, errs)
		}
	}
	if strings.Count(errs, "verify:") > 1 {
		t.Errorf("the error says it twice: %s", errs)
	}
	m.Verify("untouched")
	// A key belongs to a sample or not, always: 4321 is found by those that hold it.
	found := 0
	for _, percent := range []string{"10", "50", "90", "100"} {
		report, code := m.verifyJSON("changed", "--sample", percent)
		table := verifiedTable(t, report, "public.changed")
		switch {
		case code == 1 && len(table.Differences) == 1:
			found++
		case code != 0 || found > 0 || table.Outcome != mirror.VerifyEqual:
			t.Errorf("%s percent: exit code %d, %+v", percent, code, table)
		}
	}
	if found == 0 {
		t.Error("a sample of all rows does not find the fault")
	}
}

// The source and the mirror choose the same sample by keys of every type, extreme values included, in memory and in files.
func TestVerifySample(t *testing.T) {
	t.Parallel()
	const n = 400
	keys := map[string]string{
		"int2": "(i - 200)::int2", "int4": "i * 5368709 - 1073741824", "int8": "i::int8 * 4611686018427387 - 922337203685477580", "oid": "(i::int8 * 10737418)::oid",
		"bool": "i = 1", "text": "'ż' || i || chr(39)", "varchar(9)": "'v' || i", "char(9)": "'c' || i", "uuid": "md5(i::text)::uuid",
		"bytea": "int4send(i)", "date": "'4713-01-01 BC'::date + i * 10000", "time": "time '00:00' + i * interval '1.000001 s'",
		"timestamp": "timestamp '0001-01-01 BC' + i * interval '9.7 years'", "timestamptz": "timestamptz '1700-01-01' + i * interval '1.3 years 0.1 s'",
		"numeric(10,2)": "(i - 200) / 100.0", "numeric(5,0)": "i - 7", "float8": "i / 3.0::float8", "inet": "'10.0.0.0'::inet + i", "interval": "i * interval '1 hour'", "int4[]": "array[i, i]",
	}
	special := map[string]string{"date": "'infinity', '-infinity'", "timestamp": "'infinity', '-infinity'", "timestamptz": "'infinity', '-infinity'", "float8": "'infinity', '-0'"}
	var statements []string
	var names []string
	for i, typ := range slices.Sorted(func(yield func(string) bool) {
		for typ := range keys {
			if !yield(typ) {
				return
			}
		}
	}) {
		name := fmt.Sprintf("by_%d", i)
		names = append(names, typ)
		rows := n
		if typ == "bool" {
			rows = 2
		}
		statements = append(statements, fmt.Sprintf(`create table %s("K" %s primary key, v text)`, name, typ),
			fmt.Sprintf("insert into %s select %s, 'v' || i from generate_series(1, %d) i", name, keys[typ], rows))
		if values := special[typ]; values != "" {
			for _, value := range strings.Split(values, ", ") {
				statements = append(statements, fmt.Sprintf("insert into %s values (%s)", name, value))
			}
		}
	}
	pg, m := scene(t, statements)
	for i := range names {
		pg.Exec(fmt.Sprintf("update by_%d set v = v || '!' where right(v, 1) in ('3', '7')", i))
	}
	caughtUp(pg, m)
	for _, percent := range []string{"0.5", "30"} {
		report, code := m.verifyJSON("--sample", percent)
		if code != 0 || !report.Equal {
			t.Fatalf("%s percent: exit code %d, %+v", percent, code, report)
		}
		for i, typ := range names {
			table := verifiedTable(t, report, fmt.Sprintf("public.by_%d", i))
			if typ != "bool" && percent == "30" && (table.SourceRows < n/5 || table.SourceRows > n*2/5) {
				t.Errorf("30 percent of %d rows with a key of type %s are %d", n, typ, table.SourceRows)
			}
		}
	}
	m.Verify()
}

// What keeps verify from comparing is an error that says what to do, with exit code 3; what is wrong with one table is a finding.
func TestVerifyErrors(t *testing.T) {
	t.Parallel()
	pg := server(t, []string{"create table a(id int primary key, v text)", "insert into a select i, 'v' from generate_series(1, 1000) i",
		"create table b(id int primary key)", "insert into b values (1)"}, harness.Setting("max_replication_slots", "2"))
	m := StartMirror(t, pg, "p")
	refused := func(what string, code int, parts []string, args ...string) {
		t.Helper()
		out, errs, got := m.Command(append([]string{"verify"}, args...)...)
		for _, part := range parts {
			if got != code || !strings.Contains(out+errs, part) || strings.Count(errs, "verify: ") > 1 {
				t.Errorf("%s: exit code %d, want %d and %q\n%s%s", what, got, code, part, out, errs)
			}
		}
	}
	refused("unknown tables", 3, []string{`no table "c" is mirrored`, `no table "d" is mirrored`}, "c", "a", "d")

	pg.Exec("select pg_create_physical_replication_slot('other')")
	refused("no free slot", 3, []string{"no free replication slot", "max_replication_slots"})
	pg.Exec("select pg_drop_replication_slot('other')")

	writer := pg.Open("postgres", "postgres")
	writer.Exec("begin", "insert into a values (-1, 'open')")
	rows, err := writer.Query("select pg_backend_pid()")
	if err != nil {
		t.Fatal(err)
	}
	pid := rows[0][0]
	refused("an open transaction", 3, []string{"process " + pid + " (role postgres, database postgres", "for at least", "pg_terminate_backend(" + pid + ")"}, "--patience", "1500ms")
	writer.Exec("rollback")
	within(t, "the temporary slots are gone", func() bool { return pg.QueryRow("select count(*) from pg_replication_slots") == "1" })
	m.Verify()

	// A file with a damaged page: its table is a finding, the other one is compared.
	m.Checkpoint()
	if code := m.Stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	refused("no run and no source", 3, []string{"no running pgmirror answers", "source is not set"})
	out, errs, code := m.Command("verify", "--source", m.source)
	if code != 0 || strings.Count(out, "equal") != 2 {
		t.Errorf("with no run: exit code %d\n%s%s", code, out, errs)
	}
	m.Start()
	m.WaitReady()
	var path string
	for _, file := range inspectFiles(t, m, "a") {
		path = file
	}
	content, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	damaged := slices.Clone(content)
	for i := 4; i < 64; i++ {
		damaged[i] ^= 0xff
	}
	if err := os.WriteFile(path, damaged, 0o600); err != nil {
		t.Fatal(err)
	}
	report, code := m.verifyJSON()
	a, b := verifiedTable(t, report, "public.a"), verifiedTable(t, report, "public.b")
	if code != 1 || a.Outcome != mirror.VerifyDamaged || !strings.Contains(a.Reason, path) || b.Outcome != mirror.VerifyEqual {
		t.Errorf("with a damaged file: exit code %d, %+v", code, report)
	}
	if err := os.Remove(path); err != nil {
		t.Fatal(err)
	}
	report, code = m.verifyJSON()
	if a := verifiedTable(t, report, "public.a"); code != 1 || a.Outcome != mirror.VerifyDamaged || !strings.Contains(a.Reason, path) {
		t.Errorf("with a lost file: exit code %d, %+v", code, report)
	}
	if err := os.WriteFile(path, content, 0o600); err != nil {
		t.Fatal(err)
	}
	m.Verify()

	// A table that was altered, without a row event, is compared when it is copied again.
	pg.Exec("alter table b alter column id type bigint")
	report, code = m.verifyJSON()
	if b := verifiedTable(t, report, "public.b"); code != 0 || b.Outcome != mirror.VerifyEqual {
		t.Errorf("with an altered table: exit code %d, %+v", code, report)
	}
	m.Verify("a")
}

// inspectFiles lists the data files of a table.
func inspectFiles(t *testing.T, m *Mirror, table string) (paths []string) {
	t.Helper()
	out, errs, code := m.Command("inspect", table, "--json")
	var report mirror.InspectReport
	if err := json.Unmarshal([]byte(out), &report); err != nil || code != 0 || len(report.Files) == 0 {
		t.Fatalf("inspect %s: exit code %d, %v\n%s%s", table, code, err, out, errs)
	}
	for _, f := range report.Files {
		paths = append(paths, f.Path)
	}
	return paths
}
