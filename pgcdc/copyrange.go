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
type Range struct {
	From, To uint32
	Leaf     uint32 // the OID of the partitioned table's leaf whose heap it is; 0 is the table's own
}

// Extent is about how large a table is now. Whatever it says, ranges that begin at block 0 and end with an open one are the
// whole table.
type Extent struct {
	// Blocks of the heap, 0 when it cannot be read by ranges: only the heap access method is known to scan them.
	Blocks uint32
	Bytes  int64 // of heap and TOAST
	Rows   int64 // by the server's statistics; -1 when it has none
	// Leaves measures each leaf of a partitioned table by itself, if it can be read so; none otherwise. Ranges of all of them are the whole table.
	Leaves []LeafExtent
}

// LeafExtent is about how large a leaf is.
type LeafExtent struct {
	Leaf uint32 // its OID
	Extent
}

// Extents measures tables, in their order. A table that is gone has no blocks. It waits for whoever holds a table in ACCESS
// EXCLUSIVE mode, as a copy does.
func (s *Source) Extents(ctx context.Context, tables []*Table) ([]Extent, error) {
	var oids []string
	for _, t := range tables {
		oids = append(oids, strconv.FormatUint(uint64(t.OID), 10))
		for _, leaf := range t.Leaves {
			oids = append(oids, strconv.FormatUint(uint64(leaf.OID), 10))
		}
	}
	measured := make(map[uint32]Extent, len(oids))
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
			measured[oid] = e
		}
		return nil
	})
	if err != nil {
		return nil, fmt.Errorf("measure tables: %w", err)
	}
	extents := make([]Extent, len(tables))
	for i, t := range tables {
		extents[i] = measured[t.OID]
		if t.Kind == 'p' {
			extents[i] = t.extent(measured)
		}
	}
	return extents, nil
}

// extent puts a partitioned table's leaves together.
func (t *Table) extent(measured map[uint32]Extent) (whole Extent) {
	directly, counted := t.leavesDirectly(), true
	for _, leaf := range t.Leaves {
		e := measured[leaf.OID]
		whole.Bytes += e.Bytes
		whole.Rows += e.Rows
		counted = counted && e.Rows >= 0
		if directly {
			whole.Leaves = append(whole.Leaves, LeafExtent{leaf.OID, e})
		}
	}
	if !counted {
		whole.Rows = -1
	}
	return whole
}

// CopyRange is Copy of a part of a table.
func (s *Source) CopyRange(ctx context.Context, snapshot ExportedSnapshot, table *Table, part Range, row func(Tuple) error) error {
	if part == (Range{}) {
		return s.Copy(ctx, snapshot, table, row)
	}
	of := qualified(table.Schema, table.Name)
	leaf := table.leaf(part.Leaf)
	switch {
	case leaf != nil:
		of = leaf.qualified()
	case part.Leaf != 0:
		return fmt.Errorf("copy %s: %w (it has other partitions)", of, ErrRewritten)
	}
	settings := ""
	if part.condition() != "" {
		settings = blocksOnly
	}
	if err := s.copyPart(ctx, snapshot, table, leaf, part.condition(), settings, row); err != nil {
		return fmt.Errorf("copy %s from block %d on: %w", of, part.From, err)
	}
	return nil
}

// blocksOnly makes the planner read only the blocks asked for, by a TID range scan: it could take a wide range for a whole scan, and a row filter may have an index.
const blocksOnly = `SET LOCAL enable_seqscan = off; SET LOCAL enable_tidscan = on; SET LOCAL enable_indexscan = off; SET LOCAL enable_indexonlyscan = off;
	SET LOCAL enable_bitmapscan = off; SET LOCAL max_parallel_workers_per_gather = 0`

// condition selects the range's rows in its heap; empty for all of them. Item numbers within a block begin at 1.
func (r Range) condition() string {
	if r.From == 0 && r.To == 0 {
		return ""
	}
	where := fmt.Sprintf("ctid >= '(%d,0)'::tid", r.From)
	if r.To != 0 {
		where += fmt.Sprintf(" AND ctid < '(%d,0)'::tid", r.To)
	}
	return where
}
