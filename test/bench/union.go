package main

import (
	"context"
	"errors"
	"fmt"
	"path/filepath"
	"strings"
	"time"

	"pgmirror/duckdb"
	"pgmirror/mirror"
	"pgmirror/readstate"
	"pgmirror/test/harness"
)

const (
	unionRows  = 3_000_000 // in files, of each table
	memoryRows = 100_000   // of each table
	manyFiles  = 50
	repeats    = 7
)

// deletedParts are the tables of the union section: t0, t2 and t30.
var deletedParts = []int{0, 2, 30}

const factTable = `CREATE TABLE %[1]s (id bigint PRIMARY KEY, k int, cat text, name text, amount numeric(12,2), price double precision, qty int, d date, ts timestamp, flag boolean)`

const factRows = `INSERT INTO %[1]s SELECT i, (i * 7919 %% 100003)::int, 'category ' || i %% 8, 'customer ' || i * 31 %% 50000, (i * 37 %% 1000000) / 100.0,
	(i * 104729::bigint %% 1000003) / 7.0, (i %% 100)::int, '2023-01-01'::date + (i %% 700)::int, '2024-01-01'::timestamp + i * interval '1 second', i %% 3 = 0 FROM generate_series(%[2]d::bigint, %[3]d) AS g(i)`

// shapes are the queries, none of which adds floating point numbers, whose sum depends on the order; {t} is the table, {n} the number of rows that files had at first.
var shapes = []string{
	"SELECT count(*) FROM {t}",
	"SELECT count(*) FROM {t} WHERE qty > 50",
	"SELECT sum(amount) FROM {t}",
	"SELECT sum((price * qty)::bigint) FROM {t} WHERE flag",
	"SELECT min(ts), max(ts), min(price), max(price) FROM {t}",
	"SELECT cat, count(*), sum(amount), max(price) FROM {t} GROUP BY cat ORDER BY cat",
	"SELECT k % 1000 AS g, sum(qty), max(amount) FROM {t} GROUP BY g ORDER BY g LIMIT 10",
	"SELECT d, count(*) FROM {t} WHERE d BETWEEN DATE '2023-06-01' AND DATE '2023-08-31' GROUP BY d ORDER BY d",
	"SELECT * FROM {t} WHERE id = {n} / 2 + 5",
	"SELECT count(*), sum(amount) FROM {t} WHERE id BETWEEN {n} / 3 AND {n} / 3 + 20000",
	"SELECT id, price FROM {t} ORDER BY price DESC, id LIMIT 10",
	"SELECT count(DISTINCT k) FROM {t}",
	"SELECT count(*) FROM {t} WHERE name LIKE '%999%'",
	"SELECT a.cat, sum(b.qty) FROM {t} a JOIN {t} b ON a.id = b.k WHERE a.qty < 5 GROUP BY a.cat ORDER BY a.cat",
	"SELECT cat, quantile_disc(price, 0.9) FROM {t} GROUP BY cat ORDER BY cat",
	"SELECT count(*) FROM (SELECT * FROM {t} WHERE qty = 7) WHERE amount > 100",
}

// shapeOf is a shape over a table that had so many rows at first.
func shapeOf(shape, table string, rows int) string {
	return strings.NewReplacer("{t}", table, "{n}", fmt.Sprint(rows)).Replace(shape)
}

// unions measures the views beside read_parquet of the same live rows, which another mirror has written with the same writer
// in its first copy.
func (b *bench) unions(ctx context.Context) (err error) {
	pg, err := b.startServer("union")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopServer(pg)) }()
	rows, memory := b.scaled(unionRows), b.scaled(memoryRows)
	for _, part := range deletedParts {
		name := fmt.Sprintf("t%d", part)
		if err := pg.Exec(fmt.Sprintf(factTable, name), fmt.Sprintf(factRows, name, 1, rows)); err != nil {
			return err
		}
	}
	if err := pg.Exec("CREATE TABLE tiny (id int PRIMARY KEY, v text)", "CREATE TABLE many (id int PRIMARY KEY, v text)",
		"CREATE PUBLICATION "+publication+" FOR ALL TABLES"); err != nil {
		return err
	}
	m, err := b.startMirror(pg, "union", "--checkpoint-interval", "1h")
	if err != nil {
		return err
	}
	if err := m.ready(ctx); err != nil {
		return err
	}
	dir, err := b.dataDir("inside")
	if err != nil {
		return err
	}
	near, err := startInside(ctx, pg, "inside", dir, mirror.Config{CheckpointInterval: time.Hour})
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, near.stop()) }()
	if err := b.writeManyFiles(ctx, pg, m); err != nil {
		return err
	}
	for _, part := range deletedParts {
		name := fmt.Sprintf("t%d", part)
		// hashint4 scatters the rows over the file, as single deletes would.
		if err := pg.Exec(fmt.Sprintf("DELETE FROM %s WHERE abs(hashint4(id::int)) %% 100 < %d", name, part),
			fmt.Sprintf(factRows, name, rows+1, rows+memory)); err != nil {
			return err
		}
	}
	if err := pg.Exec("INSERT INTO tiny VALUES (1, 'one')"); err != nil {
		return err
	}
	if err := b.caughtUp(ctx, pg, m); err != nil {
		return err
	}
	b.say("%d tables of %d rows, deleted from and added to", len(deletedParts), rows)
	plain, err := b.startMirror(pg, "plain")
	if err != nil {
		return err
	}
	if err := plain.ready(ctx); err != nil {
		return err
	}
	if err := b.verify(ctx, m); err != nil {
		return err
	}
	if err := b.compareReads(ctx, pg, m, plain, rows); err != nil {
		return err
	}
	if err := b.compareHosts(ctx, pg, near, rows); err != nil {
		return err
	}
	_, err = plain.stop()
	_, err2 := m.stop()
	return errors.Join(err, err2)
}

// caughtUp waits until the mirror shows everything written so far.
func (b *bench) caughtUp(ctx context.Context, pg *harness.Postgres, m *mirrorProcess) error {
	end, err := walEnd(ctx, pg)
	if err != nil {
		return err
	}
	return m.visible(ctx, end)
}

// writeManyFiles gives the table "many" that many files of a few rows, by checkpoints.
func (b *bench) writeManyFiles(ctx context.Context, pg *harness.Postgres, m *mirrorProcess) error {
	client, err := m.dial(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	for i := range manyFiles {
		if err := pg.Exec(fmt.Sprintf("INSERT INTO many SELECT i, 'row' FROM generate_series(%d, %d) AS g(i)", 10*i, 10*i+9)); err != nil {
			return err
		}
		if err := b.caughtUp(ctx, pg, m); err != nil {
			return err
		}
		if _, err := client.Call(ctx, "checkpoint", nil, nil); err != nil {
			return err
		}
	}
	return nil
}

// compareReads asks every shape of every table both ways, in one DuckDB.
func (b *bench) compareReads(ctx context.Context, pg *harness.Postgres, m, plain *mirrorProcess, rows int) error {
	client, err := m.dial(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	duck, err := duckdb.Open(ctx, duckdb.Config{Source: client})
	if err != nil {
		return err
	}
	defer duck.Close()
	for _, part := range deletedParts {
		name := fmt.Sprintf("t%d", part)
		list, err := parquetOf(ctx, plain, name)
		if err != nil {
			return err
		}
		var c comparison
		for _, shape := range shapes {
			sides := [2]question{{duck, shapeOf(shape, "public."+name, rows)}, {duck, shapeOf(shape, list, rows)}}
			ours, beside, err := alike(ctx, repeats, sides[0], sides[1])
			if err != nil {
				return err
			}
			c.add("`"+shapeOf(shape, name, rows)+"`", ours, beside)
			b.say("%s  %.2f  %6.1f ms  %s", name, median(ours)/median(beside), median(ours), shape)
		}
		var target goals
		if part == 2 {
			target = goals{atMost(c.mean(), 1.05, "%g")}
		}
		b.report.add(line{fmt.Sprintf("union read, %d %% deleted", part), "", "`read_parquet` of the live rows, same writer", times(c.mean()), target,
			fmt.Sprintf("by the fastest of %d each: %.2f; geometric mean of %d query shapes, %.1fM rows in files, %.0fk in memory, DuckDB in another process than the mirror, warm; worst %s", repeats, c.fastest(), len(shapes), float64(rows)/1e6, b.scaleOf(memoryRows)/1e3, c.worst())})
	}
	if err := b.fixedCosts(ctx, duck, client); err != nil {
		return err
	}
	return b.costAfterDelete(ctx, pg, m, duck)
}

// fixedCosts measures what a query costs however little it reads, and what each file adds.
func (b *bench) fixedCosts(ctx context.Context, duck *duckdb.DB, client *readstate.Client) error {
	if _, err := duck.Query(ctx, "CREATE TABLE main.same AS SELECT * FROM public.tiny"); err != nil {
		return err
	}
	const asks = 100
	ours, beside, err := alike(ctx, asks, question{duck, "SELECT count(v) FROM public.tiny"}, question{duck, "SELECT count(v) FROM main.same"})
	if err != nil {
		return err
	}
	b.report.add(line{"fixed cost of a query", millis(median(ours) - median(beside)), "the same from a DuckDB table: " + millis(median(beside)), "", goals{atMost(median(ours)-median(beside), 5, "%g ms")},
		fmt.Sprintf("one row in memory; P99 %s", millis(quantile(ours, 0.99)))})
	var pins []float64
	for range asks {
		began := time.Now()
		state, err := client.Pin(ctx, readstate.PinRequest{})
		if err != nil {
			return err
		}
		state.Release()
		pins = append(pins, inMillis(time.Since(began)))
	}
	b.report.add(line{"pin and release of a read state over the socket", fmt.Sprintf("%.2f ms", median(pins)), "", "", nil, "five tables; part of the fixed cost"})

	state, err := client.Pin(ctx, readstate.PinRequest{})
	if err != nil {
		return err
	}
	defer state.Release()
	files, n := "", 0
	for _, t := range state.Tables {
		if t.Name.Name == "many" {
			files, n = parquetList(t), len(t.Files)
		}
	}
	many, plain, err := alike(ctx, asks, question{duck, "SELECT count(v) FROM public.many"}, question{duck, "SELECT count(v) FROM " + files})
	if err != nil {
		return err
	}
	b.report.add(line{"cost of a file more", fmt.Sprintf("%.0f µs", (median(many)-median(ours))/float64(n)*1000),
		fmt.Sprintf("`read_parquet` of the same list: %.0f µs", (median(plain)-median(beside))/float64(n)*1000),
		times(median(many) / median(plain)), nil, fmt.Sprintf("%d files of ten rows; the ratio is of the whole query", n)})
	return nil
}

// costAfterDelete measures the first question about a small table after a commit has deleted from a large one, whose vectors are part
// of the read state but are not sent for a statement that does not name it.
func (b *bench) costAfterDelete(ctx context.Context, pg *harness.Postgres, m *mirrorProcess, duck *duckdb.DB) error {
	session, err := pg.Connect("postgres", "postgres")
	if err != nil {
		return err
	}
	defer session.Close()
	const sql, deletes = "SELECT count(v) FROM public.tiny", 30
	var first, second []float64
	for range deletes {
		if err := session.Exec("DELETE FROM t30 WHERE id = (SELECT min(id) FROM t30)"); err != nil {
			return err
		}
		if err := b.caughtUp(ctx, pg, m); err != nil {
			return err
		}
		for _, took := range []*[]float64{&first, &second} {
			t, _, err := question{duck, sql}.ask(ctx)
			if err != nil {
				return err
			}
			*took = append(*took, t)
		}
	}
	b.report.add(line{"the same query right after a delete in another table", millis(median(first)), "asked again: " + millis(median(second)), times(median(first) / median(second)), nil,
		fmt.Sprintf("the other table has %.1fM rows in files, 30 %% of them deleted; P99 %s", b.scaleOf(unionRows)/1e6, millis(quantile(first, 0.99)))})
	return nil
}

// parquetOf is a read_parquet over a table's files, all of whose rows are live and none of which are in memory.
func parquetOf(ctx context.Context, m *mirrorProcess, name string) (string, error) {
	client, err := m.dial(ctx)
	if err != nil {
		return "", err
	}
	defer client.Close()
	state, err := client.Pin(ctx, readstate.PinRequest{})
	if err != nil {
		return "", err
	}
	defer state.Release()
	for _, t := range state.Tables {
		if t.Name.Name == name {
			return parquetList(t), nil
		}
	}
	return "", fmt.Errorf("there is no table %s in %s", name, filepath.Base(m.data))
}

func parquetList(t *readstate.Table) string {
	paths := make([]string, len(t.Files))
	for i, f := range t.Files {
		paths[i] = "'" + f.Path + "'"
	}
	return "(SELECT * EXCLUDE (_pgmirror_lsn) FROM read_parquet([" + strings.Join(paths, ", ") + "]))"
}
