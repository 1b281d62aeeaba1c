package e2e

import (
	"context"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"pgmirror/test/harness"
)

// copyTable has a name that needs quotes and is large enough for several ranges: about 170 MB.
const copyTable = `"Order Lines"`

// copyLoad changes the rows of the copied table over some connections until its context ends: updates that move rows to other
// blocks and into the room that VACUUM frees, changed keys, deletes, inserts. wait returns how many statements were executed.
func copyLoad(ctx context.Context, t *testing.T, pg *harness.Postgres, connections, rows int) (wait func() int64) {
	var group sync.WaitGroup
	var executed atomic.Int64
	for c := range connections {
		group.Go(func() {
			conn, err := pgconn.Connect(context.Background(), pg.SocketURL("postgres", "postgres"))
			if err != nil {
				t.Error(err)
				return
			}
			defer conn.Close(context.Background())
			r := rand.New(rand.NewPCG(5, uint64(c)))
			next := 10_000_000 * (c + 1)
			for ctx.Err() == nil {
				id := 1 + r.IntN(rows)
				next += 100
				change := fmt.Sprintf("update %s set n = n + 1, v = v || 'x' where id between %d and %d", copyTable, id, id+200)
				switch r.IntN(6) {
				case 0:
					change = fmt.Sprintf("insert into %s select g, 1, 'new' from generate_series(%d, %d) g", copyTable, next, next+99)
				case 1:
					change = fmt.Sprintf("delete from %s where id between %d and %d", copyTable, id, id+100)
				case 2:
					change = fmt.Sprintf("update %s set id = %d where id = %d", copyTable, next, id)
				case 3:
					if c == 0 {
						change = "vacuum " + copyTable
					}
				}
				if _, err := conn.Exec(context.Background(), change).ReadAll(); err != nil && isTestFault(err) {
					t.Errorf("%s: %v", change, err)
					return
				}
				executed.Add(1)
				time.Sleep(2 * time.Millisecond) // a rate that the smallest machine follows
			}
		})
	}
	return func() int64 {
		group.Wait()
		return executed.Load()
	}
}

// terminate ends the backends of the mirror for which a condition holds, as soon as there is one.
func terminate(t *testing.T, pg *harness.Postgres, condition string) {
	t.Helper()
	within(t, "a backend with "+condition, func() bool {
		return pg.QueryRow("select count(pg_terminate_backend(pid)) from pg_stat_activity where usename = '"+mirrorRole+"' and "+condition) != "0"
	})
}

const (
	copiesNow    = "state = 'active' and query like 'COPY (%'"
	holdsExports = "backend_type = 'walsender' and exists (select from pg_stat_activity w where w.usename = '" + mirrorRole + "' and w.state = 'active' and w.query like 'COPY (%')"
)

// A first copy of a million rows that are updated, deleted, inserted, moved to other blocks and vacuumed while it reads them gives
// exactly what the source has; so it does when the connection that holds its snapshot is ended, when the process is killed in
// the middle, and when workers are ended in the middle of a range, whose ranges alone are read again (S-R5, S-R4).
func TestScenarioCopyUnderWrites(t *testing.T) {
	t.Parallel()
	const rows = 1_000_000
	pg := server(t, []string{
		"create table " + copyTable + "(id bigint primary key, n int, v text, kind text) with (fillfactor = 90)",
		fmt.Sprintf("insert into %s select g, 0, repeat('v', 80) || g, (array['new', 'paid', null, 'sent'])[1 + g %% 4] from generate_series(1, %d) g", copyTable, rows),
	})
	m := NewMirror(t, pg, "p", "--copy-workers", "2")
	ctx, stop := context.WithCancel(context.Background())
	wait := copyLoad(ctx, t, pg, 3, rows)
	defer func() { stop(); wait() }()
	said := func(what string) {
		t.Helper()
		within(t, "the log says "+what, func() bool { return strings.Contains(m.Log(), what) })
	}

	m.Start()
	terminate(t, pg, holdsExports)
	said("the exported snapshot is gone")
	copies := func() string { return pg.QueryRow("select count(*) from pg_stat_activity where " + copiesNow) }
	within(t, "it copies again", func() bool { return copies() != "0" })
	m.Kill()
	within(t, "the backends of the killed process end", func() bool { return copies() == "0" })

	m.Start()
	terminate(t, pg, copiesNow)
	said("a range of a table is copied again")
	m.WaitReady()
	stop()
	if n := wait(); n < 100 {
		t.Errorf("%d statements changed the table meanwhile", n)
	}
	if n := strings.Count(m.Log(), "msg=\"table copied\""); n != 1 {
		t.Errorf("the table was copied %d times", n)
	}
	if files := Table(t, m.WaitReady(), "public.Order Lines").Files; files < 4 {
		t.Errorf("the table has %d files: it was not copied by ranges", files)
	}
	alike(t, pg, m, "select id % 20, count(*), sum(n), count(kind), md5(string_agg(id || ':' || n || ':' || coalesce(kind, '-') || v, ',' order by id)) from "+copyTable+" group by 1 order by 1")
	alike(t, pg, m, "select count(*), sum(id) from "+copyTable+" where kind = 'sent'")
	m.Verify()
}
