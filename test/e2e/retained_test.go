package e2e

import (
	"errors"
	"fmt"
	"slices"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

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

// newestAt is the index of the snapshot that holds the table at an LSN, -1 if that has been expired.
func (r *retained) newestAt(lsn interop.LSN) int {
	i, exact := slices.BinarySearchFunc(r.snapshots, lsn, func(s interop.Snapshot, lsn interop.LSN) int { return compareLSN(s.LSN, lsn) })
	if exact {
		return i
	}
	return i - 1
}

func compareLSN(a, b interop.LSN) int {
	switch {
	case a < b:
		return -1
	case a > b:
		return 1
	}
	return 0
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
			if i > 0 && s.LSN <= r.snapshots[i-1].LSN {
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

// checkRetained holds each snapshot that any table retains, whenever it was committed, against PostgreSQL at its LSN: at each of
// these LSNs, which are cuts over all tables, the newest snapshot of every table must show what the source's own recovery gives
// there. Neither the source nor pgmirror may run any more.
func (tr *trial) checkRetained() {
	tr.t.Helper()
	begun := time.Now()
	all, err := readers()
	tr.must(err)
	tables, err := readRetained(tr.m, tr.tables, all.Digesters)
	tr.must(err)
	var cuts []interop.LSN
	snapshots := 0
	for _, r := range tables {
		snapshots += len(r.snapshots)
		for _, s := range r.snapshots {
			cuts = append(cuts, s.LSN)
		}
	}
	slices.Sort(cuts)
	cuts = slices.Compact(cuts)
	read := time.Since(begun)
	replica := harness.StartReplica(tr.t, tr.pg)
	for _, lsn := range cuts {
		tr.must(replica.Advance(lsn))
		at := replica.Postgres
		want, err := sourceDigests(at, tr.tables)
		if isLocked(err) {
			at = tr.unlockedAt(lsn)
			want, err = sourceDigests(at, tr.tables)
		}
		tr.must(err)
		for _, r := range tables {
			i := r.newestAt(lsn)
			if i < 0 {
				continue
			}
			for _, reader := range all.Digesters {
				if r.digests[reader.Name()][i] != want[r.driven.name] {
					tr.explain(at, lsn, reader, r, i)
				}
			}
		}
		if at != replica.Postgres {
			at.Kill()
		}
	}
	tr.t.Logf("%d snapshots of %d cuts from %s to %s, each read by %d readers in %s and compared in %s", snapshots, len(cuts), cuts[0],
		cuts[len(cuts)-1], len(all.Digesters), read.Round(time.Millisecond), (time.Since(begun) - read).Round(time.Millisecond))
}

// isLocked says whether a statement waited longer than lock_timeout.
func isLocked(err error) bool {
	var refusal *pgconn.PgError
	return errors.As(err, &refusal) && refusal.Code == "55P03"
}

// unlockedAt is the source at an LSN where a transaction is open that has locked whole tables, by TRUNCATE: a standby keeps such
// locks, but once it is promoted that transaction is rolled back.
func (tr *trial) unlockedAt(lsn interop.LSN) *harness.Postgres {
	tr.t.Helper()
	replica := harness.StartReplica(tr.t, tr.pg)
	tr.must(replica.Advance(lsn))
	tr.must(replica.Promote())
	tr.t.Logf("promoted a replica at %s", lsn)
	return replica.Postgres
}

// explain ends the test with the rows in which a snapshot differs from PostgreSQL at an LSN.
func (tr *trial) explain(pg *harness.Postgres, lsn interop.LSN, reader interop.Reader, r *retained, i int) {
	tr.t.Helper()
	want, err := sourceContent(pg, []*driven{r.driven}, "")
	tr.must(err)
	query := interop.Query{Table: r.table, Snapshot: r.snapshots[i].ID}
	err = checkSnapshot(reader, r.driven, query, want[r.driven.name])
	if err == nil {
		err = errors.New("the digests differ and the rows do not")
	}
	tr.t.Fatalf("%s: snapshot of %s beside PostgreSQL at %s: %v", r.driven.name, r.snapshots[i].LSN, lsn, err)
}
