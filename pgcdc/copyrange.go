package pgcdc

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5/pgconn"
)

// Range is a part of a table: the rows in blocks From (included) to To (not included) of its heap. To 0 is the table's end,
// wherever that is; the zero value is the whole table. A row version never changes its block, so ranges that follow each
// other hold each row that a snapshot sees exactly once, whatever is written, moved or vacuumed meanwhile.
type Range struct{ From, To uint32 }

// Extent is about how large a table is now. Whatever it says, ranges that begin at block 0 and end with an open one are the
// whole table.
type Extent struct {
	// Blocks of the heap, 0 when it cannot be read by ranges: only the heap access method is known to scan them.
	Blocks uint32
	Bytes  int64 // of heap and TOAST
	Rows   int64 // by the server's statistics; -1 when it has none
}

// Extents measures tables, in their order. A table that is gone has no blocks. It waits for whoever holds a table in ACCESS
// EXCLUSIVE mode, as a copy does.
func (s *Source) Extents(ctx context.Context, tables []*Table) ([]Extent, error) {
	position := make(map[uint32]int, len(tables))
	oids := make([]string, len(tables))
	for i, t := range tables {
		position[t.OID] = i
		oids[i] = strconv.FormatUint(uint64(t.OID), 10)
	}
	extents := make([]Extent, len(tables))
	err := s.idle.with(ctx, func(conn *pgconn.PgConn) error {
		rows, err := query(ctx, conn, `SELECT c.oid, CASE WHEN a.amname = 'heap' THEN blocks ELSE 0 END, coalesce(pg_table_size(c.oid), 0),
			CASE WHEN c.relpages > 0 AND c.reltuples >= 0 THEN (c.reltuples / c.relpages * blocks)::bigint ELSE -1 END
			FROM pg_class c LEFT JOIN pg_am a ON a.oid = c.relam,
			LATERAL (SELECT coalesce(pg_relation_size(c.oid), 0) / current_setting('block_size')::bigint) s(blocks)
			WHERE c.oid = ANY ('{`+strings.Join(oids, ",")+`}')`)
		if err != nil {
			return err
		}
		for _, row := range rows {
			r := rowReader{row: row}
			oid := r.oid()
			e := Extent{Blocks: r.oid(), Bytes: r.int(64), Rows: r.int(64)}
			if r.err != nil {
				return r.err
			}
			if i, asked := position[oid]; asked {
				extents[i] = e
			}
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("measure tables: %w", err)
	}
	return extents, nil
}

// CopyRange is Copy of a part of a table.
func (s *Source) CopyRange(ctx context.Context, snapshot ExportedSnapshot, table *Table, part Range, row func(Tuple) error) error {
	if part == (Range{}) {
		return s.Copy(ctx, snapshot, table, row)
	}
	// Only the blocks asked for are to be read, by a TID range scan; the planner could take a wide range for a whole scan.
	cfg := s.plain.Copy()
	cfg.RuntimeParams["enable_seqscan"] = "off"
	cfg.RuntimeParams["enable_tidscan"] = "on"
	cfg.RuntimeParams["enable_indexscan"] = "off" // a row filter may have an index
	cfg.RuntimeParams["enable_indexonlyscan"] = "off"
	cfg.RuntimeParams["enable_bitmapscan"] = "off"
	cfg.RuntimeParams["max_parallel_workers_per_gather"] = "0"
	if err := s.copyOver(ctx, cfg, snapshot, table, part.condition(), row); err != nil {
		return fmt.Errorf("copy %s from block %d on: %w", qualified(table.Schema, table.Name), part.From, err)
	}
	return nil
}

// condition selects the range's rows. Item numbers within a block begin at 1.
func (r Range) condition() string {
	where := fmt.Sprintf("ctid >= '(%d,0)'::tid", r.From)
	if r.To != 0 {
		where += fmt.Sprintf(" AND ctid < '(%d,0)'::tid", r.To)
	}
	return where
}
