package e2e

import (
	"fmt"
	"testing"
)

// S-P1: what a checkpoint writes grows with the rows that have changed, and not with the table.
func TestScenarioBytesFollowChanges(t *testing.T) {
	t.Parallel()
	const few, many, changes = 2_000, 400_000, 500
	fill := func(table string, rows int) string {
		return fmt.Sprintf("create table %[1]s(id int primary key, v text, n int); insert into %[1]s select i, md5(i::text), i from generate_series(1, %[2]d) i", table, rows)
	}
	pg, m := scene(t, []string{fill("few", few), fill("many", many)}, "--checkpoint-interval", "1h", "--compact", "off")
	written := func() int64 {
		t.Helper()
		m.Checkpoint()
		s, err := m.Status()
		must(t, err)
		return s.Written.Flush + s.Written.Compaction + s.Written.Vectors + s.Written.Metadata + s.Written.Index
	}
	for _, change := range []string{"update %[1]s set n = -n where id %% %[2]d = 0", "delete from %[1]s where id %% %[2]d = 1", "update %[1]s set id = id + 1000000 where id %% %[2]d = 2"} {
		cost := func(table string, rows int) int64 {
			before := written()
			pg.Exec(fmt.Sprintf(change, table, rows/changes))
			return written() - before
		}
		a, b := cost("few", few), cost("many", many)
		t.Logf("%s: %d bytes of %d rows, %d of %d", change, a, few, b, many)
		if a <= 0 || b > 2*a {
			t.Errorf("%s of %d rows writes %d bytes to a table of %d rows, and %d to one of %d", change, changes, a, few, b, many)
		}
	}
	m.Verify()
}
