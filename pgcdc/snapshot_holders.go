package pgcdc

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

const (
	// holdersPause is the time between two looks at whom the making of a slot waits for.
	holdersPause = time.Second
	// holdersRemind is the time after which the same ones are told again.
	holdersRemind = 10 * time.Second
)

// watchHolders tells whom the process that makes a slot waits for, at once when they are others than before and else now and
// then, and gives up after patience with an ErrHeldBack that says so. stop ends and joins it. What it cannot find out is not worth an error.
func (s *Source) watchHolders(ctx context.Context, pid uint32, patience time.Duration, giveUp context.CancelCauseFunc, waiting func(string)) (stop func()) {
	ctx, cancel := context.WithCancel(ctx)
	done := make(chan struct{})
	go func() {
		defer close(done)
		began := time.Now()
		var told time.Time
		var known []string
		for {
			pause := min(holdersPause, patience-time.Since(began))
			select {
			case <-ctx.Done():
				return
			case <-time.After(max(0, pause)):
			}
			holders, err := s.holders(ctx, pid, time.Since(began))
			if ctx.Err() != nil {
				return
			}
			whom := describeHolders(holders)
			switch {
			case time.Since(began) >= patience:
				if err != nil || whom == "" {
					whom = "the source did not say which"
				}
				giveUp(fmt.Errorf("%w for more than %s: %s%s", ErrHeldBack, patience, whom, holderRemedy(holders)))
				return
			case err == nil && whom != "":
				if now := namesOf(holders); !slices.Equal(now, known) || time.Since(told) >= holdersRemind {
					known, told = now, time.Now()
					waiting(whom)
				}
			}
		}
	}()
	return func() {
		cancel()
		<-done
	}
}

// holder is a transaction that has written and is still open.
type holder struct {
	pid      int64 // 0: a prepared transaction
	prepared string
	role     string
	database string
	state    string // empty when the role may not see it
	open     time.Duration
	atLeast  bool // open is only how long we know of it
}

// holders lists the transactions that a process waits for. Their age and state are shown to their own role and to members of
// pg_read_all_stats; others learn that they have been open for at least as long as we wait.
func (s *Source) holders(ctx context.Context, pid uint32, waited time.Duration) (found []holder, err error) {
	err = s.idle.with(ctx, func(conn *pgconn.PgConn) error {
		rows, err := query(ctx, conn, `SELECT DISTINCT b.pid, coalesce(a.usename, ''), coalesce(a.datname, ''), coalesce(a.state, ''),
				coalesce(floor(extract(epoch FROM clock_timestamp() - a.xact_start))::bigint, -1), coalesce(p.gid, ''),
				coalesce(floor(extract(epoch FROM clock_timestamp() - p.prepared))::bigint, -1), coalesce(p.owner, ''), coalesce(p.database, '')
			FROM unnest(pg_blocking_pids(`+strconv.FormatUint(uint64(pid), 10)+`)) b(pid) LEFT JOIN pg_stat_activity a ON a.pid = b.pid
			LEFT JOIN pg_prepared_xacts p ON b.pid = 0 ORDER BY 1`)
		if err != nil {
			return err
		}
		for _, row := range rows {
			r := rowReader{row: row}
			h := holder{pid: r.int(32), role: r.text(), database: r.text(), state: r.text()}
			age := r.int(64)
			h.prepared = r.text()
			if prepared := r.int(64); h.pid == 0 {
				age, h.role, h.database = prepared, r.text(), r.text()
			}
			if r.err != nil {
				return r.err
			}
			h.open = time.Duration(age) * time.Second
			if age < 0 {
				h.open, h.atLeast = waited.Truncate(time.Second), true
			}
			found = append(found, h)
		}
		return nil
	})
	return found, err
}

// maxHolders is how many transactions are described.
const maxHolders = 5

func describeHolders(holders []holder) string {
	var parts []string
	for _, h := range holders[:min(len(holders), maxHolders)] {
		parts = append(parts, h.String())
	}
	if more := len(holders) - maxHolders; more > 0 {
		parts = append(parts, fmt.Sprintf("and %d more", more))
	}
	return strings.Join(parts, "; ")
}

func namesOf(holders []holder) (names []string) {
	for _, h := range holders {
		names = append(names, h.name())
	}
	return names
}

func (h holder) name() string {
	if h.pid == 0 {
		return "prepared transaction " + quoteLiteral(h.prepared)
	}
	return fmt.Sprintf("process %d", h.pid)
}

func (h holder) String() string {
	who := h.name() + fmt.Sprintf(" (role %s, database %s", h.role, h.database)
	if h.state != "" {
		who += ", " + h.state
	}
	atLeast := ""
	if h.atLeast {
		atLeast = "at least "
	}
	return fmt.Sprintf("%s) has been in a transaction for %s%s", who, atLeast, h.open)
}

// holderRemedy is what a person can do, for the oldest of the transactions.
func holderRemedy(holders []holder) string {
	if len(holders) == 0 {
		return "; wait until they end and try again"
	}
	oldest := holders[0]
	for _, h := range holders {
		if h.open > oldest.open {
			oldest = h
		}
	}
	end := fmt.Sprintf("SELECT pg_terminate_backend(%d)", oldest.pid)
	if oldest.pid == 0 {
		end = "ROLLBACK PREPARED " + quoteLiteral(oldest.prepared)
	}
	return "; wait until it ends, or end it (" + end + "), and try again"
}
