package main

import (
	"context"
	"fmt"

	"github.com/jackc/pgx/v5"
	"golang.org/x/sync/errgroup"

	"pgmirror/test/harness"
)

// workload is a write mix on tables of its own: one to a schema.
type workload struct {
	name string
	// load makes and fills the tables at a scale, in a schema that is there, and the functions write(c, n), one transaction of
	// the mix by client c of n that returns its row changes or 0 for one to be rolled back, and prune(), which deletes as many of
	// the oldest rows as keep the tables at the size they were loaded with and returns how many. It returns the tables' rows.
	load func(pg *harness.Postgres, schema string, scale float64) (rows int, err error)
}

// publish loads the mix into the schema public and publishes its tables.
func (w workload) publish(pg *harness.Postgres, scale float64) (rows int, err error) {
	if rows, err = w.load(pg, "public", scale); err != nil {
		return 0, err
	}
	return rows, publishAll(pg)
}

// publishAll publishes every table of the database.
func publishAll(pg *harness.Postgres) error {
	return pg.Exec("CREATE PUBLICATION "+publication+" FOR ALL TABLES", "CHECKPOINT")
}

// searchPath makes a session find a mix's tables and functions.
func searchPath(schema string) string { return "SET search_path = " + harness.Ident(schema) }

// writers is how many connections write the mix at once. Each has rows of its own, so that few waits are for the other.
const writers = 2

// driver writes transactions of a mix until they are so many row changes.
const driver = `
CREATE PROCEDURE write_rows(c int, n int, INOUT wanted int) LANGUAGE plpgsql AS $$
DECLARE
  rows int := 0; written int;
BEGIN
  WHILE rows < wanted LOOP
    written := write(c, n);
    IF written > 0 THEN
      COMMIT;
    ELSE
      ROLLBACK;
    END IF;
    rows := rows + written;
  END LOOP;
  wanted := rows;
END $$`

// mine draws one of client c's numbers from low to high, high left out: every n-th is its.
const mine = `
CREATE FUNCTION mine(c int, n int, low int, high int) RETURNS int LANGUAGE sql VOLATILE AS
  $$ SELECT low + c + n * floor(random() * ((high - low - c) / n))::int $$`

// writeBacklog writes about rows row changes as fast as the source takes them and says how many there are.
func writeBacklog(ctx context.Context, pg *harness.Postgres, rows int) (written int, err error) {
	group, ctx := errgroup.WithContext(ctx)
	counts := make([]int, writers)
	for c := range writers {
		group.Go(func() error {
			conn, err := pgx.Connect(ctx, pg.URL("postgres", "postgres"))
			if err != nil {
				return err
			}
			defer conn.Close(context.WithoutCancel(ctx))
			// Waiting for the WAL at each of 100,000 commits would only take longer.
			if _, err := conn.Exec(ctx, "SET synchronous_commit = off"); err != nil {
				return err
			}
			return conn.QueryRow(ctx, fmt.Sprintf("CALL write_rows(%d, %d, %d)", c, writers, rows/writers)).Scan(&counts[c])
		})
	}
	if err := group.Wait(); err != nil {
		return 0, fmt.Errorf("write a backlog: %w", err)
	}
	for _, n := range counts {
		written += n
	}
	return written, nil
}
