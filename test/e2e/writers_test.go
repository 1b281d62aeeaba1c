package e2e

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"pgmirror/test/harness"
)

// writers change tables over several connections until stop. They outlive restarts of the server. What each writes depends on
// the seed and its number alone; how their transactions interleave does not.
type writers struct {
	pg      *harness.Postgres
	tables  []*driven
	changes atomic.Int64 // rows of committed transactions
	failed  atomic.Int64 // transactions that the server refused: conflicts, deadlocks, lost connections
	allowed atomic.Int64 // writers rest while changes are above it
	// truncate allows TRUNCATE: not before the first copy is done, which leaves out, for a while, what changes under it.
	truncate atomic.Bool
	gate     sync.RWMutex // a writer holds it for reading through a transaction
	ending   chan struct{}
	ended    sync.WaitGroup
	err      atomic.Pointer[error] // a refusal that is a fault of the test
}

// startWriters starts n writers. None goes far above allowed, which the caller raises.
func startWriters(pg *harness.Postgres, tables []*driven, seed uint64, n int) *writers {
	w := &writers{pg: pg, tables: tables, ending: make(chan struct{})}
	for i := range n {
		w.ended.Add(1)
		go func() {
			defer w.ended.Done()
			w.write(rand.New(rand.NewPCG(seed, uint64(i))))
		}()
	}
	return w
}

func (w *writers) stop() {
	select {
	case <-w.ending:
	default:
		close(w.ending)
	}
	w.ended.Wait()
}

// fault is an error that no concurrency explains, such as wrong SQL.
func (w *writers) fault() error {
	if err := w.err.Load(); err != nil {
		return *err
	}
	return nil
}

// waitFor waits until the rows changed reach n.
func (w *writers) waitFor(n int64) error {
	for deadline := time.Now().Add(patience); w.changes.Load() < n; time.Sleep(5 * time.Millisecond) {
		if err := w.fault(); err != nil {
			return err
		}
		if time.Now().After(deadline) {
			return fmt.Errorf("the writers made %d of %d changes within %s", w.changes.Load(), n, patience)
		}
	}
	return nil
}

func (w *writers) write(r *rand.Rand) {
	var conn *pgconn.PgConn
	defer func() {
		if conn != nil {
			conn.Close(context.Background())
		}
	}()
	for {
		select {
		case <-w.ending:
			return
		default:
		}
		if w.changes.Load() >= w.allowed.Load() {
			time.Sleep(2 * time.Millisecond)
			continue
		}
		if conn == nil || conn.IsClosed() {
			var err error
			if conn, err = pgconn.Connect(context.Background(), w.pg.SocketURL("postgres", "postgres")); err != nil {
				conn = nil
				time.Sleep(20 * time.Millisecond)
				continue
			}
		}
		statements := w.transaction(r)
		w.gate.RLock()
		n, err := execTransaction(conn, statements)
		w.gate.RUnlock()
		w.changes.Add(n)
		if err != nil {
			w.failed.Add(1)
			if isTestFault(err) {
				err = fmt.Errorf("%w: %s", err, strings.Join(statements, "; "))
				w.err.Store(&err)
				return
			}
		}
	}
}

// execTransaction runs statements in one round trip and returns how many rows a commit changed.
func execTransaction(conn *pgconn.PgConn, statements []string) (int64, error) {
	results, err := conn.Exec(context.Background(), strings.Join(statements, "; ")).ReadAll()
	if err != nil {
		if conn.TxStatus() != 'I' && !conn.IsClosed() {
			_, rollback := conn.Exec(context.Background(), "ROLLBACK").ReadAll()
			return 0, errors.Join(err, rollback)
		}
		return 0, err
	}
	var rows int64
	for _, result := range results {
		if tag := result.CommandTag; tag.Insert() || tag.Update() || tag.Delete() {
			rows += tag.RowsAffected()
		} else if tag.String() == "ROLLBACK" { // also of a savepoint; then what came before it is not counted
			rows = 0
		}
	}
	return rows, nil
}

// isTestFault separates what concurrency and restarts explain from wrong statements.
func isTestFault(err error) bool {
	var server *pgconn.PgError
	if !errors.As(err, &server) {
		return false
	}
	switch server.Code[:2] {
	case "23", "40", "55", "57", "08", "53": // a constraint, deadlock, lock timeout, shutdown, connection, too many clients
		return false
	}
	// A fault of the server's own row locks: rarely, on 15, when a savepoint is rolled back beside other clients' locks. The transaction is refused whole.
	return !strings.HasPrefix(server.Message, "new multixact has more than one updating member")
}

// transaction is the statements of one random transaction.
func (w *writers) transaction(r *rand.Rand) []string {
	if r.IntN(3) == 0 {
		if ops := w.operation(r); len(ops) == 1 {
			return ops
		}
	}
	statements := []string{"BEGIN"}
	savepoints := 0
	for range 1 + r.IntN(6) {
		switch {
		case savepoints > 0 && r.IntN(3) == 0:
			savepoints--
			verb := []string{"ROLLBACK TO", "RELEASE"}[r.IntN(2)]
			statements = append(statements, fmt.Sprintf("%s s%d", verb, savepoints))
		case r.IntN(4) == 0:
			statements = append(statements, fmt.Sprintf("SAVEPOINT s%d", savepoints))
			savepoints++
		case r.IntN(40) == 0:
			statements = append(statements, "SELECT pg_sleep(0.02)")
		}
		statements = append(statements, w.operation(r)...)
	}
	end := "COMMIT"
	if r.IntN(15) == 0 {
		end = "ROLLBACK"
	}
	return append(statements, end)
}

// operation is what one step of a transaction does to one table, or to several by TRUNCATE.
func (w *writers) operation(r *rand.Rand) []string {
	t := w.tables[r.IntN(len(w.tables))]
	if r.IntN(250) == 0 {
		if statement := truncate(r); w.truncate.Load() {
			return []string{statement}
		}
	}
	if t.insertOnly {
		return []string{t.insert(r, 1+r.IntN(3))}
	}
	update := func() string { return fmt.Sprintf("UPDATE %s SET %s WHERE %s", t.name, t.set(r), t.where(r, 12)) }
	remove := func() string { return fmt.Sprintf("DELETE FROM %s WHERE %s", t.name, t.where(r, 12)) }
	from, to := r.IntN(t.keys), r.IntN(t.keys)
	switch r.IntN(12) {
	case 0, 1, 2:
		return []string{t.insert(r, 1+r.IntN(12))}
	case 3, 4, 5:
		return []string{update()}
	case 6, 7:
		return []string{remove()}
	case 8: // a key changes
		return []string{t.move(from, to)}
	case 9: // two keys change places
		spare := t.keys + r.IntN(5)
		return []string{t.move(from, spare), t.move(to, from), t.move(spare, to)}
	case 10: // one key, deleted and inserted again
		return []string{fmt.Sprintf("DELETE FROM %s WHERE %s", t.name, t.whereKeys(from)), t.insertKeys(r, from)}
	default: // one key, several times
		ops := []string{t.insertKeys(r, from)}
		for range 1 + r.IntN(3) {
			ops = append(ops, fmt.Sprintf("UPDATE %s SET %s WHERE %s", t.name, t.set(r), t.whereKeys(from)))
		}
		if r.IntN(2) == 0 {
			ops = append(ops, fmt.Sprintf("DELETE FROM %s WHERE %s", t.name, t.whereKeys(from)))
		}
		return ops
	}
}

func truncate(r *rand.Rand) string {
	return oneOf("TRUNCATE t_none", "TRUNCATE t_full, t_none", "TRUNCATE parent CASCADE", "TRUNCATE child", "TRUNCATE t_comp, t_wide, t_uuid",
		`TRUNCATE "Sh op"."My ""T"`, "TRUNCATE t_int", "TRUNCATE t_text, t_index")(r)
}
