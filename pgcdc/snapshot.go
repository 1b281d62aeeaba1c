package pgcdc

import (
	"context"
	"fmt"
)

// Snapshot exports a snapshot of the source as it is now, for Copy; it lives until release. Its ConsistentPoint was read
// before it was taken: what the snapshot sees is the source's content at some point between that and any later WaitPoint.
func (s *Source) Snapshot(ctx context.Context) (snapshot ExportedSnapshot, release func(), err error) {
	conn, err := connect(ctx, s.plain)
	if err != nil {
		return ExportedSnapshot{}, nil, err
	}
	snapshot.ConsistentPoint, err = readLSN(ctx, conn)
	if err == nil {
		var rows [][][]byte
		rows, err = query(ctx, conn, "BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY; SELECT pg_export_snapshot()")
		if err == nil && (len(rows) != 1 || len(rows[0]) != 1) {
			err = malformedf("an exported snapshot without a name")
		}
		if err == nil {
			snapshot.Name = string(rows[0][0])
		}
	}
	if err != nil {
		closeConn(conn)
		return ExportedSnapshot{}, nil, fmt.Errorf("export a snapshot: %w", err)
	}
	return snapshot, func() { closeConn(conn) }, nil
}
