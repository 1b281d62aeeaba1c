package mirror

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"pgmirror/iceberg"
	"pgmirror/pgcdc"
)

// verified is a world that has caught up, with rows in files, in batches and deleted ones, ready to be compared.
func verified(t *testing.T) *world {
	w := newWorld(t, 31)
	w.faults, w.pressure = 0, false
	for range 40 {
		w.transaction()
	}
	w.start()
	w.m.shared.set(func(s *sharedState) { s.state = "streaming" })
	for range 30 {
		w.transaction()
	}
	w.settle()
	w.check(w.m.checkpoint(context.Background()))
	for range 30 {
		w.transaction()
	}
	w.settle()
	return w
}

func (w *world) verify(req VerifyRequest) *VerifyReport {
	w.t.Helper()
	args, err := json.Marshal(req)
	w.check(err)
	answer, err := w.m.Call(context.Background(), "verify", args, nil)
	w.check(err)
	rep := new(VerifyReport)
	w.check(json.Unmarshal(answer, rep))
	return rep
}

// outcome finds a table's part of a report.
func (w *world) outcome(rep *VerifyReport, name string) *VerifyTable {
	w.t.Helper()
	i := slices.IndexFunc(rep.Tables, func(r VerifyTable) bool { return r.Name == name })
	if i < 0 {
		w.fatal("the report has no table %s: %+v", name, rep)
	}
	return &rep.Tables[i]
}

// filled waits until a table has at least n rows.
func (w *world) filled(oid uint32, n int) {
	w.t.Helper()
	for len(w.table(oid).at(w.source.end())) < n {
		w.transaction()
	}
	w.settle()
}

// planted changes what the source shows of one table.
func (w *world) planted(oid uint32, plant func(rows [][]cell) [][]cell) {
	honest := w.source.rows
	w.source.rows = func(asked uint32, at LSN) [][]cell {
		rows := honest(asked, at)
		if asked == oid {
			rows = plant(slices.Clone(rows))
		}
		return rows
	}
}

// TestVerifyEqual: every table is equal, with the source's number of rows, whatever its types and identity.
func TestVerifyEqual(t *testing.T) {
	w := verified(t)
	rep := w.verify(VerifyRequest{})
	if !rep.Equal || len(rep.Tables) != len(w.tables) || rep.LSN != w.source.end().String() {
		t.Errorf("the report is %+v", rep)
	}
	for _, r := range rep.Tables {
		i := slices.IndexFunc(w.tables, func(mt *modelTable) bool { return "public."+mt.def.Name == r.Name })
		if rows := int64(len(w.tables[i].at(w.source.end()))); r.SourceRows != rows || r.MirrorRows != rows {
			t.Errorf("table %s: %d and %d rows, want %d", r.Name, r.SourceRows, r.MirrorRows, rows)
		}
	}
	if rep := w.verify(VerifyRequest{Tables: []string{"wide", "public.equals", "public.wide"}}); !rep.Equal || len(rep.Tables) != 2 {
		t.Errorf("the report of two tables is %+v", rep)
	}
	for args, want := range map[string]string{
		`{"tables":["nowhere","keyed","neither"]}`: "no table \"nowhere\" is mirrored\nno table \"neither\" is mirrored",
		`{"sample":101}`:     "not between 0 and 100",
		`{"sample":-1}`:      "not between 0 and 100",
		`{"patience_ms":-1}`: "not between 0 and a day",
		`{"tables":3}`:       "read the command's arguments",
	} {
		if _, err := w.m.Call(context.Background(), "verify", []byte(args), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", args, err, want)
		}
	}
	w.m.setState("reconnecting", "the cable is cut")
	if _, err := w.m.Verify(context.Background(), VerifyRequest{}, func(string) {}); !errors.Is(err, ErrNotConnected) || !strings.Contains(err.Error(), "reconnecting (the cable is cut)") {
		t.Errorf("without a source: %v", err)
	}
	w.end()
}

// TestVerifyFinds: one wrong value, one row lost, resurrected or doubled is found in the table that has it and in no other, and its
// key is named, with how many rows each side has and which columns differ.
func TestVerifyFinds(t *testing.T) {
	// What the mirror holds is right; the source shows something else, as if the mirror had it wrong.
	for name, tc := range map[string]struct {
		plant  func(rows [][]cell) [][]cell
		reason string
		want   func(rows [][]cell) []VerifyDifference
	}{
		"value": {func(rows [][]cell) [][]cell { rows[0] = with(rows[0], 2, val("other")); return rows }, "the values differ",
			func(rows [][]cell) []VerifyDifference {
				return []VerifyDifference{{compositeKey(rows[0]), 1, 1, []string{"c2"}}}
			}},
		"long value": {func(rows [][]cell) [][]cell {
			rows[0] = with(rows[0], 2, val(strings.Repeat("y", 3*longValue)))
			return rows
		}, "the values differ",
			func(rows [][]cell) []VerifyDifference {
				return []VerifyDifference{{compositeKey(rows[0]), 1, 1, []string{"c2"}}}
			}},
		"NULL": {func(rows [][]cell) [][]cell { rows[0] = with(rows[0], 2, nil); return rows }, "the values differ",
			func(rows [][]cell) []VerifyDifference {
				return []VerifyDifference{{compositeKey(rows[0]), 1, 1, []string{"c2"}}}
			}},
		"resurrected": {func(rows [][]cell) [][]cell { return rows[1:] }, "the row counts differ",
			func(rows [][]cell) []VerifyDifference { return []VerifyDifference{{compositeKey(rows[0]), 0, 1, nil}} }},
		"lost": {func(rows [][]cell) [][]cell { return append(rows, []cell{val("99"), val("new"), val("x")}) }, "the row counts differ",
			func(rows [][]cell) []VerifyDifference { return []VerifyDifference{{"c1=new, c0=99", 1, 0, nil}} }},
		"doubled": {func(rows [][]cell) [][]cell { return append(rows, rows[0]) }, "the row counts differ",
			func(rows [][]cell) []VerifyDifference { return []VerifyDifference{{compositeKey(rows[0]), 2, 1, nil}} }},
		"swapped": {func(rows [][]cell) [][]cell {
			rows[0], rows[1] = with(rows[0], 2, rows[1][2]), with(rows[1], 2, rows[0][2])
			return rows
		}, "the values differ", func(rows [][]cell) []VerifyDifference {
			return []VerifyDifference{{compositeKey(rows[0]), 1, 1, []string{"c2"}}, {compositeKey(rows[1]), 1, 1, []string{"c2"}}}
		}},
	} {
		t.Run(name, func(t *testing.T) {
			w := verified(t)
			mt := w.table(2)
			for rows := mt.at(w.source.end()); len(rows) < 3 || rows[0][2] == nil || rows[1][2] == nil; rows = mt.at(w.source.end()) {
				w.transaction()
			}
			w.settle()
			w.planted(2, tc.plant)
			rep := w.verify(VerifyRequest{})
			if rep.Equal {
				t.Errorf("the report is %+v", rep)
			}
			for _, r := range rep.Tables {
				if r.Name != "public.composite" {
					if r.Outcome != VerifyEqual || len(r.Differences) > 0 {
						t.Errorf("table %s is %+v", r.Name, r)
					}
					continue
				}
				want := tc.want(mt.at(w.source.end()))
				slices.SortFunc(want, func(a, b VerifyDifference) int { return strings.Compare(a.Key, b.Key) })
				slices.SortFunc(r.Differences, func(a, b VerifyDifference) int { return strings.Compare(a.Key, b.Key) })
				if r.Outcome != VerifyDifferent || r.Reason != tc.reason || r.More || !reflect.DeepEqual(r.Differences, want) {
					t.Errorf("table %s is %+v, want %s and %+v", r.Name, r, tc.reason, want)
				}
			}
			w.end()
		})
	}
}

// compositeKey is how the key of a row of the table composite is named.
func compositeKey(row []cell) string { return "c1=" + row[1].shown + ", c0=" + row[0].shown }

func with(row []cell, column int, value cell) []cell {
	row = slices.Clone(row)
	row[column] = value
	return row
}

// TestVerifyKeys: keys of every type are named as PostgreSQL prints them; ten at most, and the report says when there are more. A
// table without a key is different without names.
func TestVerifyKeys(t *testing.T) {
	w := verified(t)
	w.filled(8, 1)
	var added [][]cell
	for i := range 2*maxDifferences + 1 {
		added = append(added, []cell{val(fmt.Sprint(1000 + i)), nil, nil, nil, nil, nil, nil, nil, nil, nil, nil})
	}
	w.planted(8, func(rows [][]cell) [][]cell { return append(rows, added...) })
	w.planted(9, func(rows [][]cell) [][]cell {
		return append(rows, []cell{uuidCell([16]byte{0xab, 15: 1}), nil, nil})
	})
	w.planted(10, func(rows [][]cell) [][]cell { return append(rows, []cell{nil, nil, nil}) })
	rep := w.verify(VerifyRequest{})
	r := w.outcome(rep, "public.wide")
	if len(r.Differences) != maxDifferences || !r.More || r.Differences[0].Key != "c0=1000" || r.Differences[9].Key != "c0=1009" {
		t.Errorf("the report is %+v", r)
	}
	if r := w.outcome(rep, "public.colliding"); len(r.Differences) != 1 || r.More || r.Differences[0].Key != "c0=ab000000-0000-0000-0000-000000000001" {
		t.Errorf("the report is %+v", r)
	}
	if r := w.outcome(rep, "public.equals"); r.Outcome != VerifyDifferent || len(r.Differences) != 0 || !strings.Contains(r.Reason, "no key") {
		t.Errorf("the report is %+v", r)
	}
	w.end()
}

// TestVerifySample: both sides choose the same rows, a part of them that grows with the percentage and is the same in each run; a
// fault among them is found, whichever sample it falls into.
func TestVerifySample(t *testing.T) {
	w := verified(t)
	for oid := range uint32(10) {
		w.filled(oid+1, 3)
	}
	last := map[string]int64{}
	for _, percent := range []float64{0.001, 20, 50, 80, 99.9, 100} {
		rep := w.verify(VerifyRequest{Sample: percent})
		if !rep.Equal || rep.Sample != percent {
			t.Errorf("%v percent: the report is %+v", percent, rep)
		}
		if again := w.verify(VerifyRequest{Sample: percent}); !reflect.DeepEqual(rep, again) {
			t.Errorf("%v percent: %+v, and then %+v", percent, rep, again)
		}
		for _, r := range rep.Tables {
			if r.SourceRows < last[r.Name] {
				t.Errorf("%v percent of %s are %d rows, a smaller part was %d", percent, r.Name, r.SourceRows, last[r.Name])
			}
			last[r.Name] = r.SourceRows
		}
	}
	for _, mt := range w.tables {
		if rows := int64(len(mt.at(w.source.end()))); last["public."+mt.def.Name] != rows {
			t.Errorf("all of %s are %d rows, want %d", mt.def.Name, last["public."+mt.def.Name], rows)
		}
	}
	var added [][]cell
	for i := range 200 {
		added = append(added, []cell{val(fmt.Sprint(1000 + i)), val("x"), nil})
	}
	w.planted(1, func(rows [][]cell) [][]cell { return append(rows, added...) })
	r := w.outcome(w.verify(VerifyRequest{Sample: 25}), "public.keyed")
	if found := r.SourceRows - r.MirrorRows; r.Outcome != VerifyDifferent || found < 25 || found > 75 {
		t.Errorf("a quarter of 200 rows are %d: %+v", r.SourceRows-r.MirrorRows, r)
	}
	w.end()
}

// TestVerifyWhileWritten: commits that come between the snapshot and the pin, and while tables are compared, change nothing: both
// sides stand still at F, also when what was deleted is forgotten as soon as it may be.
func TestVerifyWhileWritten(t *testing.T) {
	w := verified(t)
	w.m.marks.history = 0
	at := w.source.end()
	commits := 0
	more := func() {
		for range 5 {
			w.transaction()
			commits++
		}
		w.fold()
	}
	w.source.copied = func(uint32) error { more(); return nil }
	w.m.source = writtenSource{w.source, more}
	rep := w.verify(VerifyRequest{})
	if !rep.Equal || rep.LSN != at.String() {
		t.Errorf("while %d commits came: %+v, want the LSN %s", commits, rep, at)
	}
	if high := w.m.marks.high(); high <= at {
		t.Errorf("nothing was applied meanwhile: %s", high)
	}
	if n, _ := w.m.marks.readerCount(); n != 0 {
		t.Errorf("%d readers are left", n)
	}
	w.end()
}

// writtenSource has more commits as soon as it has given a snapshot.
type writtenSource struct {
	*fakeSource
	more func()
}

func (s writtenSource) Snapshot(ctx context.Context, patience time.Duration, waiting func(string)) (pgcdc.ExportedSnapshot, func(), error) {
	snapshot, release, err := s.fakeSource.Snapshot(ctx, patience, waiting)
	s.more()
	return snapshot, release, err
}

// TestVerifyRewritten: a table that is rewritten while it waits to be compared is compared in a newer snapshot; after three of
// them it is skipped, which is neither equal nor different.
func TestVerifyRewritten(t *testing.T) {
	w := verified(t)
	w.source.rewritten[1], w.source.rewritten[8] = 2, 3
	rep := w.verify(VerifyRequest{})
	if rep.Equal {
		t.Error("a table that could not be read counts as equal")
	}
	for _, r := range rep.Tables {
		want := VerifyEqual
		if r.Name == "public.wide" {
			want = VerifySkipped
		}
		if r.Outcome != want {
			t.Errorf("table %s is %+v, want %s", r.Name, r, want)
		}
	}
	w.end()
}

// TestVerifyFailed: a failed table makes the report unequal and gives its reason, wherever F lies.
func TestVerifyFailed(t *testing.T) {
	w := verified(t)
	w.check(w.m.inTurn(context.Background(), func() error {
		w.m.fail(w.m.byOID[1], w.m.applied, &failure{Reason: "planted"})
		return nil
	}))
	rep := w.verify(VerifyRequest{})
	if rep.Equal {
		t.Errorf("the report is %+v", rep)
	}
	for _, r := range rep.Tables {
		if failed := r.Name == "public.keyed"; failed != (r.Outcome == VerifyFailed) || failed && !strings.Contains(r.Reason, "planted") {
			t.Errorf("table %s is %s: %s", r.Name, r.Outcome, r.Reason)
		}
	}
	w.end()
}

// TestVerifyUnpublished: a table that the publication has no more is skipped, which is no fault.
func TestVerifyUnpublished(t *testing.T) {
	w := verified(t)
	w.source.catalog = slices.DeleteFunc(slices.Clone(w.source.tables), func(t pgcdc.Table) bool { return t.Name == "keyed" })
	if r := w.outcome(w.verify(VerifyRequest{Tables: []string{"keyed"}}), "public.keyed"); r.Outcome != VerifySkipped || !r.Gone || !strings.Contains(r.Reason, "publication") {
		t.Errorf("the report is %+v", r)
	}
	w.end()
}

// damagedWarehouse reads some data files as damaged, or as if they had lost a row.
type damagedWarehouse struct {
	Warehouse
	corrupt func(path string) bool
	short   func(path string) bool
}

func (d damagedWarehouse) OpenData(path string) (DataReader, error) {
	r, err := d.Warehouse.OpenData(path)
	if err == nil && d.corrupt(path) {
		return damagedReader{r, fmt.Errorf("%w: %s", iceberg.ErrCorrupt, path)}, nil
	}
	if err == nil && d.short(path) {
		return damagedReader{r, nil}, nil
	}
	return r, err
}

// damagedReader ends with an error, or silently one batch early.
type damagedReader struct {
	DataReader
	err error
}

func (d damagedReader) Columns(ctx context.Context, ids []int32, each func(arrow.RecordBatch, int64) error) error {
	if d.err != nil {
		return d.err
	}
	return d.DataReader.Columns(ctx, ids, func(rec arrow.RecordBatch, first int64) error {
		if first > 0 {
			return nil
		}
		return each(rec.NewSlice(0, rec.NumRows()-1), first)
	})
}

// TestVerifyDamaged: a data file that cannot be read, or that has fewer rows than the catalog says, is a finding about its table,
// which names the file; the other tables are compared. A fault of the machine is an error.
func TestVerifyDamaged(t *testing.T) {
	w := verified(t)
	w.filled(1, 2)
	w.filled(8, 2)
	w.check(w.m.checkpoint(context.Background()))
	in := func(table string) func(string) bool {
		return func(path string) bool { return strings.Contains(path, "/"+table+"/") }
	}
	honest := w.m.warehouse
	w.m.warehouse = damagedWarehouse{honest, in("keyed"), in("wide")}
	rep := w.verify(VerifyRequest{})
	if rep.Equal {
		t.Errorf("the report is %+v", rep)
	}
	for _, r := range rep.Tables {
		damaged := r.Name == "public.keyed" || r.Name == "public.wide"
		if damaged != (r.Outcome == VerifyDamaged) || damaged && !strings.Contains(r.Reason, ".parquet") || !damaged && r.Outcome != VerifyEqual {
			t.Errorf("table %s is %s: %s", r.Name, r.Outcome, r.Reason)
		}
	}
	w.m.warehouse = brokenMachine{honest}
	if _, err := w.m.Verify(context.Background(), VerifyRequest{}, func(string) {}); !errors.Is(err, errPowerCut) {
		t.Errorf("with a broken machine: %v", err)
	}
	w.end()
}

type brokenMachine struct{ Warehouse }

func (brokenMachine) OpenData(string) (DataReader, error) { return nil, errPowerCut }

// TestVerifyTells: progress tells each step, and whom the source waits for.
func TestVerifyTells(t *testing.T) {
	w := verified(t)
	w.filled(1, 1)
	w.m.source = blockedSource{w.source}
	var steps, notices []string
	_, err := w.m.Verify(context.Background(), VerifyRequest{Tables: []string{"keyed"}, PatienceMS: 1500}, func(line string) {
		var p VerifyProgress
		w.check(json.Unmarshal([]byte(line), &p))
		if p.Notice != "" {
			notices = append(notices, p.Notice)
		} else if len(steps) == 0 || steps[len(steps)-1] != p.Step {
			steps = append(steps, p.Step)
		}
	})
	w.check(err)
	if want := []string{"take a snapshot of the source", "compare public.keyed"}; !slices.Equal(steps, want) {
		t.Errorf("the steps are %q, want %q", steps, want)
	}
	if len(notices) != 1 || !strings.Contains(notices[0], "process 7 for 1.5s") {
		t.Errorf("the notices are %q", notices)
	}
	w.end()
}

type blockedSource struct{ *fakeSource }

func (s blockedSource) Snapshot(ctx context.Context, patience time.Duration, waiting func(string)) (pgcdc.ExportedSnapshot, func(), error) {
	waiting("process 7 for " + patience.String())
	return s.fakeSource.Snapshot(ctx, patience, waiting)
}

// TestVerifyWaitsForCopies: a table that has changed on the source is compared once it is copied again; one whose copy does not end in
// time is skipped, for that reason, and is no difference.
func TestVerifyWaitsForCopies(t *testing.T) {
	for _, ends := range []bool{true, false} {
		b := newBank(11)
		m := b.begin(t)
		opened(t, m)
		for range 20 {
			b.transfer()
		}
		if !ends {
			b.hold(2)
		}
		b.source.mu.Lock()
		b.source.tables[1].Fingerprint += "'"
		b.source.mu.Unlock()
		b.source.idle()
		patience := time.Minute
		if !ends {
			patience = 50 * time.Millisecond
		}
		rep, err := m.Verify(t.Context(), VerifyRequest{PatienceMS: patience.Milliseconds()}, func(string) {})
		if err != nil {
			t.Fatal(err)
		}
		if r := rep.Tables[1]; ends != rep.Equal || !ends && (r.Outcome != VerifySkipped || !strings.Contains(r.Reason, "being copied")) {
			t.Errorf("its copy ends: %v, the report is %+v", ends, rep)
		}
	}
}

// TestVerifyCountsNulls: values that the mirror holds as NULL because it cannot represent them count as equal and are told.
func TestVerifyCountsNulls(t *testing.T) {
	b := newBank(11)
	b.source.tables[2] = tableDef(3, "log", 'd', []int{0}, []int{0}, oidInt4, oidNumeric, oidText)
	b.source.rows = func(oid uint32, _ LSN) [][]cell {
		if oid != 3 {
			return nil
		}
		return [][]cell{{val("1"), {wire: "NaN"}, nil}, {val("2"), val("1.50"), nil}, {val("3"), {wire: "Infinity"}, nil}, {val("4"), nil, nil}}
	}
	m := b.mirror(t)
	m.cfg.NullUnrepresentable = true
	b.going(t, m)
	opened(t, m)
	rep, err := m.Verify(t.Context(), VerifyRequest{}, func(string) {})
	if err != nil {
		t.Fatal(err)
	}
	if r := rep.Tables[2]; !rep.Equal || r.Nulled != 2 || rep.Tables[0].Nulled != 0 {
		t.Errorf("the report is %+v", rep)
	}
}
