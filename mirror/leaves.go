package mirror

import (
	"context"
	"slices"

	"pgmirror/pgcdc"
)

// leafMark is what a look shows of one of the tables that hold a partitioned table's rows (pgcdc.Leaf). The stream brings the rows that are written to it and tells when
// the partitioned table is truncated; that a leaf comes with rows or leaves, that it alone is truncated, or written anew by an ALTER TABLE, shows here only.
type leafMark struct {
	OID         uint32 `json:"oid"`
	Relfilenode uint32 `json:"relfilenode"`
	Path        string `json:"path"`
}

func leavesOf(t *pgcdc.Table) (marks []leafMark) {
	for _, leaf := range t.Leaves {
		marks = append(marks, leafMark{leaf.OID, leaf.Relfilenode, leaf.Path})
	}
	return marks
}

// same says whether two looks show the same, whenever they were taken.
func (s storageMark) same(o storageMark) bool {
	return s.Relfilenode == o.Relfilenode && s.Toast == o.Toast && s.Attributes == o.Attributes && slices.Equal(s.Leaves, o.Leaves)
}

// leafChange is a leaf that has other storage than before, or has arrived.
type leafChange struct {
	leaf    *pgcdc.Leaf
	arrived bool
}

// leafChanges says how the leaves of a partitioned table are others than in the look before: whether one has left, for a while at least, and which may have
// rows, or have lost some, of which the stream does not tell. What leaves for good leaves a table of which no deletes are sent as it is.
func (s storageMark) leafChanges(now *pgcdc.Table) (left bool, changes []leafChange) {
	known := make(map[uint32]leafMark, len(s.Leaves))
	for _, mark := range s.Leaves {
		known[mark.OID] = mark
	}
	for i := range now.Leaves {
		leaf := &now.Leaves[i]
		mark, was := known[leaf.OID]
		delete(known, leaf.OID)
		switch {
		case !was && leaf.Fresh:
		case !was || mark.Path == leaf.Path && mark.Relfilenode != leaf.Relfilenode:
			changes = append(changes, leafChange{leaf, !was})
		case mark.Path != leaf.Path:
			left = true
		}
	}
	return left || len(known) > 0 && !now.NoDeletes, changes
}

// askLeaves asks the source about the leaves that changed since mark, unless one has left: then the table is copied again whatever the others are.
func (m *Mirror) askLeaves(ctx context.Context, now *pgcdc.Table, mark storageMark, kept map[uint32]pgcdc.Kept) (err error) {
	left, changes := mark.leafChanges(now)
	if left {
		return nil
	}
	for _, c := range changes {
		if kept[c.leaf.OID], err = m.source.LeafKept(ctx, c.leaf, c.arrived, mark.Horizon); err != nil {
			return err
		}
	}
	return nil
}

// leavesKept is rowsKept of a partitioned table. A leaf whose rows are not known to be kept was emptied by the stream too if the transaction that gave it its storage
// truncated the partitioned table.
func (s storageMark) leavesKept(now *pgcdc.Table, kept map[uint32]pgcdc.Kept) (certain pgcdc.Kept, by []uint32) {
	left, changes := s.leafChanges(now)
	if left {
		return pgcdc.KeptUnknown, nil
	}
	certain = pgcdc.KeptCertain
	for _, c := range changes {
		switch {
		case kept[c.leaf.OID] == pgcdc.KeptCertain:
		case !c.arrived && now.NoTruncates && kept[c.leaf.OID] == pgcdc.KeptIfTruncated && s.Attributes == now.AttributeVersions:
			// A TRUNCATE, of which there is nothing to tell; an ALTER TABLE of the whole would have written the table's columns.
		case c.arrived:
			return pgcdc.KeptUnknown, nil
		default:
			certain, by = pgcdc.KeptIfTruncated, append(by, c.leaf.WrittenBy)
		}
	}
	return certain, by
}
