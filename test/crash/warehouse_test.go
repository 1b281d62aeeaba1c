package crash

import (
	"context"
	"errors"
	"fmt"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"pgmirror/deletion"
	"pgmirror/iceberg"
	"pgmirror/test/interop"
)

// world is a warehouse on a disk that loses power, and what each of its cuts should show.
type world struct {
	t       *testing.T
	dir     string
	life    int
	schema  *arrow.Schema
	rows    map[iceberg.LSN][]interop.Row // by cut, of the only table
	durable iceberg.LSN                   // the last cut whose Commit returned
	tried   iceberg.LSN                   // the last cut whose Commit began
}

var worldTable = iceberg.TableName{Schema: "public", Name: "t"}

const worldUUID = "0a1b2c3d-0000-4000-8000-000000000000"

func newWorld(t *testing.T) *world {
	schema, _ := iceberg.AssignFieldIDs(arrow.NewSchema([]arrow.Field{{Name: "id", Type: arrow.PrimitiveTypes.Int64}}, nil), 0)
	return &world{t: t, dir: t.TempDir(), schema: schema, rows: map[iceberg.LSN][]interop.Row{0: nil}}
}

// live opens the warehouse for one life, lets do work with it, and takes the power away. It returns do's error, unless the
// process was meant to die.
func (w *world) live(effects *Effects, seed uint64, do func(context.Context, *iceberg.Warehouse, *iceberg.State) error) error {
	w.t.Helper()
	w.life++
	files := NewFS(w.t.TempDir(), effects)
	ctx := context.Background()
	err := func() (err error) {
		warehouse, err := iceberg.Open(ctx, iceberg.Config{Dir: w.dir, Files: files, Effect: effects.Hook, KeepSnapshots: 2})
		if err != nil {
			return err
		}
		defer func() { err = errors.Join(err, warehouse.Close()) }()
		state, err := warehouse.Load(ctx)
		if err != nil {
			return err
		}
		for _, fault := range state.Faults {
			return fault.Err
		}
		return do(ctx, warehouse, state)
	}()
	if err := files.Crash(seed); err != nil {
		w.t.Fatal(err)
	}
	if _, died := effects.Crashed(); died {
		return nil
	}
	return err
}

// change commits one cut: 10 more rows, of which the fifth is deleted at once; every file's first row deleted; from the
// third file on, the oldest file leaves.
func (w *world) change(ctx context.Context, warehouse *iceberg.Warehouse, files []iceberg.DataFile, serial int) ([]iceberg.DataFile, error) {
	lsn := iceberg.LSN(serial * 100)
	b := array.NewRecordBuilder(memory.DefaultAllocator, arrow.NewSchema([]arrow.Field{
		{Name: "id", Type: arrow.PrimitiveTypes.Int64}, {Name: iceberg.LSNColumn, Type: arrow.PrimitiveTypes.Int64}}, nil))
	defer b.Release()
	for i := range 10 {
		b.Field(0).(*array.Int64Builder).Append(int64(serial*10 + i))
		b.Field(1).(*array.Int64Builder).Append(int64(lsn))
	}
	batch := b.NewRecordBatch()
	defer batch.Release()

	out, err := warehouse.NewWriter(ctx, iceberg.TableLocation{Name: worldTable, UUID: worldUUID, Schema: w.schema})
	if err != nil {
		return nil, err
	}
	if err := out.Write(batch); err != nil {
		return nil, err
	}
	file, err := out.Close()
	if err != nil {
		return nil, err
	}

	change := iceberg.TableCommit{Name: worldTable, UUID: worldUUID, Add: []iceberg.DataFile{file}, Vectors: map[string]*deletion.Vector{}}
	if serial == 1 {
		change.Create, change.Schema = true, w.schema
	}
	first := max(1, serial-1) // the oldest file that stays holds the rows of this change
	if serial > 2 {
		change.Remove = []string{files[0].Path}
		files = files[1:]
	}
	files = append(files, file)
	var rows []interop.Row
	for i, f := range files {
		v := deletion.NewVector(10)
		v.SetRange(0, uint32(len(files)-i))
		v.Set(5)
		change.Vectors[f.Path] = v.Freeze()
		for row := range uint32(10) {
			if !v.Contains(row) {
				made := first + i
				rows = append(rows, interop.Row{fmt.Sprint(made*10 + int(row)), fmt.Sprint(made * 100)})
			}
		}
	}
	w.rows[lsn], w.tried = rows, lsn
	result, err := warehouse.Commit(ctx, iceberg.Commit{Mirror: fmt.Appendf(nil, `{"serial":%d}`, serial), LSN: lsn, Tables: []iceberg.TableCommit{change}})
	if result != nil {
		w.durable = lsn
	}
	if err != nil {
		return nil, err
	}
	return result.Tables[worldTable].Files, warehouse.DeleteUnreachable(ctx, result.Unreachable)
}

// changes is how many cuts work commits.
const changes = 3

// work goes on from the stored state until all changes are committed. As the mirror does, it stores a document before the first file.
func (w *world) work(ctx context.Context, warehouse *iceberg.Warehouse, state *iceberg.State) error {
	if state.Mirror == nil {
		if _, err := warehouse.Commit(ctx, iceberg.Commit{Mirror: []byte(`{"serial":0}`)}); err != nil {
			return err
		}
	}
	var files []iceberg.DataFile
	for _, table := range state.Tables {
		files = table.Files
	}
	for serial := int(state.LSN)/100 + 1; serial <= changes; serial++ {
		var err error
		if files, err = w.change(ctx, warehouse, files, serial); err != nil {
			return err
		}
	}
	return nil
}

// checkSnapshots reads every retained snapshot; the newest must be of the cut at.
func (w *world) checkSnapshots(at iceberg.LSN) error {
	tables, err := interop.Tables(w.dir)
	if err != nil {
		return err
	}
	var got []interop.Row
	for _, table := range tables {
		snapshots, err := table.Snapshots()
		if err != nil {
			return err
		}
		for _, s := range snapshots {
			result, err := interop.IcebergGo.Read(interop.Query{Table: table, Snapshot: s.ID})
			if err != nil {
				return fmt.Errorf("read snapshot at %s: %w", s.LSN, err)
			}
			if d := interop.Diff(w.rows[s.LSN], result.Rows); d != "" {
				return fmt.Errorf("snapshot at %s: %s", s.LSN, d)
			}
			got = result.Rows
		}
	}
	if d := interop.Diff(w.rows[at], got); d != "" {
		return fmt.Errorf("current snapshot: %s", d)
	}
	return nil
}

// recover is a life after a power loss: it checks what it finds, cleans up as a start does, works on, and checks that.
func (w *world) recover(ctx context.Context, warehouse *iceberg.Warehouse, state *iceberg.State) error {
	if state.LSN < w.durable || state.LSN > w.tried {
		return fmt.Errorf("the warehouse is at %s; the last cut that was committed is %s, the last one tried %s", state.LSN, w.durable, w.tried)
	}
	if want := fmt.Sprintf(`{"serial":%d}`, state.LSN/100); state.LSN > 0 && string(state.Mirror) != want {
		return fmt.Errorf("the stored document is %q, want %q", state.Mirror, want)
	}
	w.durable = state.LSN
	if _, err := warehouse.RemoveOrphans(ctx); err != nil {
		return err
	}
	if err := w.checkSnapshots(state.LSN); err != nil {
		return err
	}
	var left []string
	for _, f := range state.Unreachable {
		left = append(left, f.Path)
	}
	if err := warehouse.DeleteUnreachable(ctx, left); err != nil {
		return err
	}
	if err := w.work(ctx, warehouse, state); err != nil {
		return fmt.Errorf("work on: %w", err)
	}
	if w.durable != 100*changes {
		return fmt.Errorf("worked on to %s only", w.durable)
	}
	return w.checkSnapshots(w.durable)
}

// Wherever the power goes away while a warehouse works, the next life finds the last cut whose Commit returned, or the one
// that was under way, whole: every retained snapshot is readable and shows its rows; then it works on.
func TestWarehouseSurvivesPowerLoss(t *testing.T) {
	all := FailAt(0)
	w := newWorld(t)
	if err := w.live(all, 0, w.work); err != nil || w.durable != 100*changes {
		t.Fatalf("committed up to %s: %v", w.durable, err)
	}
	if err := w.live(FailAt(0), 0, w.recover); err != nil {
		t.Fatalf("power lost after all work: %v", err)
	}
	for n := 1; n <= all.Count(); n++ {
		w := newWorld(t)
		effects := FailAt(n)
		err := w.live(effects, uint64(n), w.work)
		name, died := effects.Crashed()
		if !died {
			t.Fatalf("effect %d of %d did not happen: %v", n, all.Count(), err)
		}
		if err := w.live(FailAt(0), uint64(n), w.recover); err != nil {
			t.Errorf("power lost at effect %d (%s): %v", n, name, err)
		}
	}
	t.Logf("%d effects", all.Count())
}
