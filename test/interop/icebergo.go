package interop

import (
	"context"
	"fmt"

	icelib "github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/io"
	"github.com/apache/iceberg-go/table"
)

// IcebergGo reads with iceberg-go, in this process. It needs no Readers.
var IcebergGo Digester = icebergGo{}

type icebergGo struct{}

func (icebergGo) Name() string { return "iceberg-go" }

func (icebergGo) Read(q Query) (result Result, err error) {
	ctx := context.Background()
	local := func(context.Context) (io.IO, error) { return io.LocalFS{}, nil }
	t, err := table.NewFromLocation(ctx, table.Identifier{q.Table.Namespace, q.Table.Name}, q.Table.Metadata, local, nil)
	if err != nil {
		return Result{}, fmt.Errorf("open %s: %w", q.Table.Metadata, err)
	}
	options := []table.ScanOption{table.WithSnapshotID(q.Snapshot)}
	if q.Above != nil {
		options = append(options, table.WithRowFilter(icelib.GreaterThan(icelib.Reference("_pgmirror_lsn"), int64(*q.Above))))
	}
	if q.Match != nil {
		options = append(options, table.WithRowFilter(icelib.EqualTo(icelib.Reference(q.Match.Column), q.Match.UUID)))
	}
	scan := t.Scan(options...)
	defer scan.Close()

	tasks, err := scan.PlanFiles(ctx)
	if err != nil {
		return Result{}, err
	}
	result.Files = len(tasks)
	schema, records, err := scan.ToArrowRecords(ctx)
	if err != nil {
		return Result{}, err
	}
	for _, f := range schema.Fields() {
		result.Columns = append(result.Columns, f.Name)
	}
	for record, err := range records {
		if err != nil {
			return Result{}, err
		}
		rows, err := ArrowRows(record)
		record.Release()
		if err != nil {
			return Result{}, err
		}
		result.Rows = append(result.Rows, rows...)
	}
	SortRows(result.Rows)
	return result, nil
}
