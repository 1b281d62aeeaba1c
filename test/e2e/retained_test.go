package e2e

import (
	"cmp"
	"errors"
	"fmt"
	"maps"
	"slices"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"pgmirror/pgcdc"
	"pgmirror/test/harness"
	"pgmirror/test/interop"
)

// retained is the snapshots of one table that the catalog holds, in commit order, and what each reader shows of them.
type retained struct {
	driven    *driven
	table     interop.Table
	snapshots []interop.Snapshot
	digests   map[string][]string // by the reader's name
}

// at is the index of the snapshot that must show the table as it was at an LSN: the one of that LSN, or at a cut over all tables the
// newest. There is none for a cut whose snapshots were expired, or after the table has failed.
func (r *retained) at(lsn interop.LSN, cut bool) (i int, ok bool) {
	i, exact := slices.BinarySearchFunc(r.snapshots, lsn, func(s interop.Snapshot, lsn interop.LSN) int { return cmp.Compare(s.LSN, lsn) })
	if exact {
		return i, true
	}
	last := i == len(r.snapshots)
	return i - 1, cut && i > 0 && !(last && r.driven.fails)
}

// readRetained reads every snapshot that is left of every table, with every reader.
func readRetained(m *Mirror, tables []*driven, digesters []interop.Digester) ([]*retained, error) {
	found, err := interop.Tables(m.Data())
	if err != nil {
		return nil, err
	}
	var all []*retained
	for _, t := range tables {
		namespace, name := icebergName(t)
		i := slices.IndexFunc(found, func(table interop.Table) bool { return table.Namespace == namespace && table.Name == name })
		if i < 0 {
			return nil, fmt.Errorf("the catalog has no table %s.%s", namespace, name)
		}
		r := &retained{driven: t, table: found[i], digests: map[string][]string{}}
		if r.snapshots, err = r.table.Snapshots(); err != nil {
			return nil, err
		}
		ids := make([]int64, len(r.snapshots))
		for i, s := range r.snapshots {
			ids[i] = s.ID
			// A compaction makes another snapshot at the same LSN.
			if i > 0 && s.LSN < r.snapshots[i-1].LSN {
				return nil, fmt.Errorf("%s: snapshot %d of %s follows one of %s", t.name, s.ID, s.LSN, r.snapshots[i-1].LSN)
			}
		}
		for _, reader := range digesters {
			if r.digests[reader.Name()], err = reader.Digests(r.table, ids, t.read()); err != nil {
				return nil, fmt.Errorf("%s reads the snapshots of %s: %w", reader.Name(), t.name, err)
			}
		}
		all = append(all, r)
	}
	return all, nil
}

// checkRetained holds each snapshot that any table retains, whenever it was committed, against PostgreSQL at its LSN: at each cut
// over all tables, the newest snapshot of every table must show what the source's own recovery gives there. The source was made with
// KeepWAL, and neither it nor pgmirror may run any more.
func checkRetained(t testing.TB, pg *harness.Postgres, m *Mirror, tables []*driven) []*retained {
	t.Helper()
	begun := time.Now()
	all, err := readers()
	must(t, err)
	found, err := readRetained(m, tables, all.Digesters)
	must(t, err)
	isCut := map[interop.LSN]bool{} // or the last LSN of a table that failed
	snapshots := 0
	for _, r := range found {
		snapshots += len(r.snapshots)
		for _, s := range r.snapshots {
			isCut[s.LSN] = isCut[s.LSN] || s.Summary["pgmirror.cut"] == s.LSN.String()
		}
	}
	read := time.Since(begun)
	replica := harness.StartReplica(t, pg)
	lsns := slices.Sorted(maps.Keys(isCut))
	for _, lsn := range lsns {
		must(t, replica.Advance(lsn))
		at := replica.Postgres
		want, err := sourceDigests(at, tables)
		if isLocked(err) {
			at = unlockedAt(t, pg, lsn)
			want, err = sourceDigests(at, tables)
		}
		must(t, err)
		for _, r := range found {
			i, ok := r.at(lsn, isCut[lsn])
			for _, reader := range all.Digesters {
				if ok && r.digests[reader.Name()][i] != want[r.driven.name] {
					explain(t, at, lsn, reader, r, i)
				}
			}
		}
		if at != replica.Postgres {
			at.Kill()
		}
	}
	t.Logf("%d snapshots of %d LSNs from %s to %s, each read by %d readers in %s and compared in %s", snapshots, len(lsns), lsns[0],
		lsns[len(lsns)-1], len(all.Digesters), read.Round(time.Millisecond), (time.Since(begun) - read).Round(time.Millisecond))
	return found
}

// isLocked says whether a statement waited longer than lock_timeout.
func isLocked(err error) bool {
	var refusal *pgconn.PgError
	return errors.As(err, &refusal) && refusal.Code == "55P03"
}

// unlockedAt is the source at an LSN where a transaction is open that has locked whole tables, by TRUNCATE: a standby keeps such
// locks, but once it is promoted that transaction is rolled back.
func unlockedAt(t testing.TB, pg *harness.Postgres, lsn interop.LSN) *harness.Postgres {
	t.Helper()
	replica := harness.StartReplica(t, pg)
	must(t, replica.Advance(lsn))
	must(t, replica.Promote())
	t.Logf("promoted a replica at %s", lsn)
	return replica.Postgres
}

// explain ends the test with the rows in which a snapshot differs from PostgreSQL at an LSN.
func explain(t testing.TB, pg *harness.Postgres, lsn interop.LSN, reader interop.Reader, r *retained, i int) {
	t.Helper()
	want, err := sourceContent(pg, []*driven{r.driven}, "")
	must(t, err)
	query := interop.Query{Table: r.table, Snapshot: r.snapshots[i].ID}
	err = checkSnapshot(reader, r.driven, query, want[r.driven.name])
	if err == nil {
		err = errors.New("the digests differ and the rows do not")
	}
	t.Fatalf("%s: snapshot of %s beside PostgreSQL at %s: %v", r.driven.name, r.snapshots[i].LSN, lsn, err)
}

// The last snapshot of a table that failed under load shows the table at its own last good LSN, while the others' follow the cuts.
func TestRetainedOfFailedTable(t *testing.T) {
	t.Parallel()
	pg := server(t, []string{"create table good(id int primary key, n int)", "create table bad(id int primary key, n int, d time)"}, harness.KeepWAL())
	tables := []*driven{
		{name: "good", columns: []column{{"id", "int", kind(pgcdc.KindInt4), nil}, {"n", "int", kind(pgcdc.KindInt4), nil}}},
		{name: "bad", columns: []column{{"id", "int", kind(pgcdc.KindInt4), nil}, {"n", "int", kind(pgcdc.KindInt4), nil}, {"d", "time", kind(pgcdc.KindTime), nil}}, fails: true},
	}
	m := StartMirror(t, pg, "p", "--checkpoint-interval", "100ms")
	for i := range 300 {
		id, value := itoa(i%40), "'12:00'"
		if i == 200 {
			value = "'24:00'" // which no time of day in Iceberg can be
		}
		pg.Exec("begin; delete from good where id = " + id + "; insert into good values (" + id + ", " + itoa(i) + "); delete from bad where id = " + id + "; insert into bad values (" + id + ", " + itoa(i) + ", " + value + "); commit")
	}
	refusedTable(t, m, "public.bad", "24:00:00 is no time of day")
	if code := m.Stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	pg.Stop(harness.Fast)
	found := checkRetained(t, pg, m, tables)
	if good, bad := found[0].snapshots, found[1].snapshots; len(bad) < 2 || bad[len(bad)-1].LSN >= good[len(good)-1].LSN {
		t.Errorf("snapshots of good %+v, of bad %+v", good, bad)
	}
}
