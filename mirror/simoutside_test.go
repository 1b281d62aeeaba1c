package mirror

import (
	"context"
	"errors"
	"fmt"

	"github.com/apache/arrow-go/v18/arrow"

	"pgmirror/iceberg"
)

// simWarehouse asks the simulation before each call, and again when a commit is stored.
type simWarehouse struct {
	*fakeWarehouse
	sim *sim
}

func (w simWarehouse) Load(ctx context.Context) (*iceberg.State, error) {
	if err := w.sim.call("load"); err != nil {
		return nil, err
	}
	return w.fakeWarehouse.Load(ctx)
}

func (w simWarehouse) RemoveOrphans(ctx context.Context) ([]string, error) {
	if err := w.sim.call("remove orphans"); err != nil {
		return nil, err
	}
	return w.fakeWarehouse.RemoveOrphans(ctx)
}

func (w simWarehouse) NewWriter(ctx context.Context, loc iceberg.TableLocation) (DataWriter, error) {
	if err := w.sim.call("new data file"); err != nil {
		return nil, err
	}
	x, err := w.fakeWarehouse.NewWriter(ctx, loc)
	return simWriter{x, w.sim}, err
}

func (w simWarehouse) Commit(ctx context.Context, c iceberg.Commit) (*iceberg.Result, error) {
	if err := w.sim.call("commit"); err != nil {
		return nil, err
	}
	result, err := w.fakeWarehouse.Commit(ctx, c)
	if err == nil && w.sim.dies("committed") {
		return nil, errPowerCut
	}
	return result, err
}

func (w simWarehouse) Expire(ctx context.Context, most int, dryRun bool) (*iceberg.Expiry, error) {
	if err := w.sim.call("expire"); err != nil {
		return nil, err
	}
	x, err := w.fakeWarehouse.Expire(ctx, most, dryRun)
	if err == nil && w.sim.dies("expired") {
		return nil, errPowerCut
	}
	return x, err
}

func (w simWarehouse) DeleteUnreachable(ctx context.Context, paths []string) error {
	if err := w.sim.call("delete files"); err != nil {
		return err
	}
	return w.fakeWarehouse.DeleteUnreachable(ctx, paths)
}

func (w simWarehouse) Discard(ctx context.Context, path string) error {
	if err := w.sim.call("discard"); err != nil {
		return err
	}
	return w.fakeWarehouse.Discard(ctx, path)
}

func (w simWarehouse) Moved(ctx context.Context) ([]iceberg.MovedTable, error) {
	if err := w.sim.call("look for other writers"); err != nil {
		return nil, err
	}
	return w.fakeWarehouse.Moved(ctx)
}

func (w simWarehouse) Examine(ctx context.Context, moved iceberg.MovedTable) (*iceberg.Foreign, error) {
	if err := w.sim.call("examine"); err != nil {
		return nil, err
	}
	return w.fakeWarehouse.Examine(ctx, moved)
}

func (w simWarehouse) Adopt(f *iceberg.Foreign) {
	w.sim.count(func(c *simCounts) { c.Adopted++ })
	w.fakeWarehouse.Adopt(f)
}

func (w simWarehouse) Hold(at LSN) ([]iceberg.DataFile, func(), error) {
	if err := w.sim.call("hold"); err != nil {
		return nil, nil, err
	}
	return w.fakeWarehouse.Hold(at)
}

func (w simWarehouse) OpenData(path string) (DataReader, error) {
	if err := w.sim.reading("open data file", path); err != nil {
		return nil, err
	}
	r, err := w.fakeWarehouse.OpenData(path)
	return simReader{r, path, w.sim}, err
}

// dies asks after a call that cannot be taken back whether it was the last.
func (s *sim) dies(name string) bool { return errors.Is(s.call(name), errPowerCut) }

type simWriter struct {
	DataWriter
	sim *sim
}

func (x simWriter) Write(rec arrow.RecordBatch) error {
	if err := x.sim.call("write rows"); err != nil {
		return err
	}
	return x.DataWriter.Write(rec)
}

func (x simWriter) Close() (iceberg.DataFile, error) {
	if err := x.sim.call("close data file"); err != nil {
		return iceberg.DataFile{}, err
	}
	return x.DataWriter.Close()
}

type simReader struct {
	DataReader
	path string
	sim  *sim
}

func (r simReader) Columns(ctx context.Context, fieldIDs []int32, each func(rec arrow.RecordBatch, firstRow int64) error) error {
	return r.DataReader.Columns(ctx, fieldIDs, func(rec arrow.RecordBatch, firstRow int64) error {
		if err := r.sim.reading("read columns", r.path); err != nil {
			return err
		}
		return each(rec, firstRow)
	})
}

func (r simReader) Row(row int64, fieldIDs []int32) (arrow.RecordBatch, error) {
	if err := r.sim.reading("read a row", r.path); err != nil {
		return nil, err
	}
	return r.DataReader.Row(row, fieldIDs)
}

// reading is call for a call that reads a data file. One that fails says, when the plan wants that, that the file is damaged.
func (s *sim) reading(name, path string) error {
	err := s.call(name)
	if errors.Is(err, errIO) && s.damaging() {
		return fmt.Errorf("%w: %s: %w", iceberg.ErrCorrupt, path, err)
	}
	return err
}

// simFiles asks the simulation before each call.
type simFiles struct {
	*fakeFiles
	sim *sim
}

func (f simFiles) WriteFile(path string, data []byte) error {
	if err := f.sim.call("write index"); err != nil {
		return err
	}
	return f.fakeFiles.WriteFile(path, data)
}

func (f simFiles) Remove(path string) error {
	if err := f.sim.call("remove index"); err != nil {
		return err
	}
	return f.fakeFiles.Remove(path)
}

func (f simFiles) Map(path string) ([]byte, func() error, error) {
	if err := f.sim.call("map index"); err != nil {
		return nil, nil, err
	}
	return f.fakeFiles.Map(path)
}

func (f simFiles) List(dir string) ([]string, error) {
	if err := f.sim.call("list indexes"); err != nil {
		return nil, err
	}
	return f.fakeFiles.List(dir)
}
