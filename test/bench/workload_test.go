package main

import (
	"context"
	"path/filepath"
	"strconv"
	"testing"
	"time"

	"pgmirror/test/harness"
)

// Each mix says how many rows it changes, and as many come in the stream, in transactions of the size its benchmark has.
func TestWorkloads(t *testing.T) {
	for _, c := range []struct {
		workload
		low, high float64 // row changes a transaction
	}{{hybench, 8.5, 12.5}, {chbench, 12, 15}} {
		t.Run(c.name, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), time.Minute)
			defer cancel()
			pg := harness.StartPostgres(t)
			if err := pg.CreateMirrorRole(mirrorRole, "postgres"); err != nil {
				t.Fatal(err)
			}
			rows, err := c.publish(pg, 0.005)
			if err != nil {
				t.Fatal(err)
			}
			if got := countRows(t, pg); got != rows {
				t.Errorf("%d rows were loaded, the tables have %d", rows, got)
			}
			if err := pg.Exec("SELECT pg_create_logical_replication_slot('captured', 'pgoutput')"); err != nil {
				t.Fatal(err)
			}
			written, err := writeBacklog(ctx, pg, 20_000)
			if err != nil {
				t.Fatal(err)
			}
			end, err := walEnd(ctx, pg)
			if err != nil {
				t.Fatal(err)
			}
			tape, err := recordTape(ctx, pg, "captured", filepath.Join(t.TempDir(), "tape"), end)
			if err != nil {
				t.Fatal(err)
			}
			defer tape.close()
			if tape.rows != written || written < 20_000 {
				t.Errorf("%d row changes were asked for, %d written, %d in the stream", 20_000, written, tape.rows)
			}
			if each := float64(tape.rows) / float64(tape.commits); each < c.low || each > c.high {
				t.Errorf("%.1f row changes a transaction, want %v to %v", each, c.low, c.high)
			} else {
				t.Logf("%.1f row changes a transaction", each)
			}
		})
	}
}

// countRows adds the rows of all published tables up.
func countRows(t *testing.T, pg *harness.Postgres) int {
	t.Helper()
	counts := pg.QueryRow(`SELECT string_agg(format('SELECT count(*) AS n FROM %s', tablename), ' UNION ALL ') FROM pg_publication_tables`)
	rows, err := strconv.Atoi(pg.QueryRow("SELECT sum(n) FROM (" + counts + ") c"))
	if err != nil {
		t.Fatal(err)
	}
	return rows
}
