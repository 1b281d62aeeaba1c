package main

import (
	"context"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"time"

	"pgmirror/readstate"
	"pgmirror/test/harness"
)

// sizeIntroduction stands above the table of the part size.
const sizeIntroduction = `## A large table

Written by ` + "`make bench-size`" + ` in about half an hour: what grows with a table, and what must not. pgmirror has ` + "`--memory 512MB`" + `. Memory is what the process has of its own at the
most; FileIndexes are mapped, and the system drops their pages when it needs room.

`

const (
	sizeRows    = 100_000_000 // of the table big
	smallPart   = 100         // of so many of them the table small has one
	sizeBacklog = 600_000
	trickleRate = 100 // rows a second
	trickleFor  = time.Minute
)

var sizeMirror = watched{name: "size", largest: "public.big", args: []string{"--memory", "512MB"}}

const sizeTable = `
CREATE TABLE %[1]s (id bigint NOT NULL, account int, amount double precision, changed timestamptz, note text);
INSERT INTO %[1]s SELECT i, (i * 7919 %% 1000003)::int, i / 7.0, '2026-01-01'::timestamptz + i * interval '1 second', 'note ' || i FROM generate_series(1::bigint, %[2]d) AS g(i);
ALTER TABLE %[1]s ADD PRIMARY KEY (id)`

// sizeWrite is a transaction of three random rows, over the number of rows of big.
const sizeWrite = `
CREATE FUNCTION write(c int, n int) RETURNS int LANGUAGE plpgsql AS $$
DECLARE
  which bigint;
BEGIN
  FOR i IN 1..3 LOOP
    which := mine(c, n, 1, %d);
    UPDATE big SET amount = amount + 1, changed = clock_timestamp() WHERE id = which;
  END LOOP;
  RETURN 3;
END $$`

// size measures a mirror of one very large table, and of one that is a hundredth of it beside that.
func (b *bench) size(ctx context.Context) (err error) {
	pg, err := b.startServer("size", harness.Setting("maintenance_work_mem", "1GB"))
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopServer(pg)) }()
	rows := b.scaled(sizeRows)
	for _, t := range []struct {
		name string
		rows int
	}{{"big", rows}, {"small", rows / smallPart}} {
		if err := pg.Exec(fmt.Sprintf(sizeTable, t.name, t.rows)); err != nil {
			return err
		}
	}
	if err := pg.Exec(mine, driver, fmt.Sprintf(sizeWrite, rows)); err != nil {
		return err
	}
	if err := publishAll(pg); err != nil {
		return err
	}
	b.say("%s rows are there", amount(rows))
	if err := b.sizeCopy(ctx, pg, rows); err != nil {
		return err
	}
	if err := b.drain(ctx, pg, sizeMirror, sizeBacklog, "random updates, three a transaction", rows); err != nil {
		return err
	}
	clean, err := b.restart(ctx, pg, sizeMirror, rows)
	if err != nil {
		return err
	}
	return b.sizeRebuild(ctx, pg, rows, median(clean))
}

// sizeCopy makes the first copy, looks at what it leaves, and writes a little to each table in turn.
func (b *bench) sizeCopy(ctx context.Context, pg *harness.Postgres, rows int) error {
	m, err := b.startMirror(pg, sizeMirror.name, sizeMirror.args...)
	if err != nil {
		return err
	}
	watch := m.watchMemory()
	if err := m.ready(ctx); err != nil {
		return err
	}
	took := time.Since(m.began)
	peak := watch()
	client, err := m.dial(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	st, err := statusOf(ctx, client)
	if err != nil {
		return err
	}
	all := float64(rows + rows/smallPart)
	b.report.add(line{fmt.Sprintf("first copy of %s rows: memory", amount(rows)), fmt.Sprintf("%.0f MB", peak), "", "", goals{atMost(peak, 1024, "%g MB")}, fmt.Sprintf("%s, %.0f s; FileIndexes with their filters %.1f bytes a row, mapped",
		rate(all/took.Seconds()), took.Seconds(), float64(st.Memory.FileIndex)/all)})
	small, err := b.trickle(ctx, pg, m, client, "small", rows/smallPart)
	if err != nil {
		return err
	}
	big, err := b.trickle(ctx, pg, m, client, "big", rows)
	if err != nil {
		return err
	}
	b.report.add(line{fmt.Sprintf("bytes written for an update of a table of %s rows", amount(rows)), fmt.Sprintf("%.0f B", big.bytes), fmt.Sprintf("of a table of %s: %.0f B", amount(rows/smallPart), small.bytes), times(big.bytes / small.bytes), nil,
		fmt.Sprintf("%d random updates a second, each a transaction, for %s, a checkpoint every 5 s: %s", trickleRate, trickleFor, big.kinds)})
	_, err = m.stop()
	return err
}

// watchMemory looks at the process's own memory until the function that it returns is called, which tells the most, in MB.
func (p *mirrorProcess) watchMemory() (most func() float64) {
	peak := 0.0
	end, ended := make(chan struct{}), make(chan struct{})
	go func() {
		defer close(ended)
		for {
			own, _ := residentMegabytes(p.cmd.Process.Pid)
			peak = max(peak, own)
			select {
			case <-end:
				return
			case <-p.ended:
				return
			case <-time.After(50 * time.Millisecond):
			}
		}
	}()
	return func() float64 { close(end); <-ended; return peak }
}

// trickled is what some updates had written, for each.
type trickled struct {
	bytes float64
	kinds string
}

// trickle updates random rows of a table, slowly, and waits for the checkpoint after the last.
func (b *bench) trickle(ctx context.Context, pg *harness.Postgres, m *mirrorProcess, client *readstate.Client, table string, rows int) (t trickled, err error) {
	checkpoint := func() (w [5]int64, err error) {
		if err := b.caughtUp(ctx, pg, m); err != nil {
			return w, err
		}
		if _, err := client.Call(ctx, "checkpoint", nil, nil); err != nil {
			return w, err
		}
		st, err := statusOf(ctx, client)
		if err != nil {
			return w, err
		}
		return [5]int64{st.Written.Flush, st.Written.Compaction, st.Written.Vectors, st.Written.Metadata, st.Written.Index}, nil
	}
	session, err := pg.Connect("postgres", "postgres")
	if err != nil {
		return t, err
	}
	defer session.Close()
	before, err := checkpoint()
	if err != nil {
		return t, err
	}
	updates, random := 0, rand.New(rand.NewPCG(1, 2))
	for end := time.Now().Add(trickleFor); time.Now().Before(end) && pause(ctx, time.Second/trickleRate); updates++ {
		if err := session.Exec(fmt.Sprintf("UPDATE %s SET amount = amount + 1 WHERE id = %d", table, 1+random.Int64N(int64(rows)))); err != nil {
			return t, err
		}
	}
	after, err := checkpoint()
	if err != nil {
		return t, err
	}
	for i, kind := range []string{"data files", "compaction", "deletion vectors", "metadata", "FileIndexes"} {
		each := float64(after[i]-before[i]) / float64(updates)
		t.bytes += each
		if t.kinds != "" {
			t.kinds += ", "
		}
		t.kinds += fmt.Sprintf("%s %.0f", kind, each)
	}
	b.say("%s: %d updates, %.0f bytes for each: %s", table, updates, t.bytes, t.kinds)
	return t, ctx.Err()
}

// sizeRebuild takes the FileIndexes away, and compares both sides after the start that builds them again.
func (b *bench) sizeRebuild(ctx context.Context, pg *harness.Postgres, rows int, clean float64) error {
	if err := os.RemoveAll(filepath.Join(b.dir, sizeMirror.name, "index")); err != nil {
		return err
	}
	m, err := b.startMirror(pg, sizeMirror.name, sizeMirror.args...)
	if err != nil {
		return err
	}
	watch := m.watchMemory()
	if err := m.answers(ctx, sizeMirror.largest); err != nil {
		return err
	}
	took, peak := time.Since(m.began).Seconds(), watch()
	b.report.add(line{fmt.Sprintf("restart of %s rows without a FileIndex", amount(rows)), fmt.Sprintf("%.1f s, %.0f MB", took, peak), "clean: " + inSeconds(clean), "", goals{atMost(peak, 1024, "%g MB")},
		fmt.Sprintf("to the first DuckDB answer; %s: each file's keys are read and indexed", rate(float64(rows)/took))})
	if err := m.ready(ctx); err != nil {
		return err
	}
	watch = m.watchMemory()
	began := time.Now()
	if err := b.verify(ctx, m); err != nil {
		return err
	}
	b.report.add(line{fmt.Sprintf("`pgmirror verify` of %s rows", amount(rows)), fmt.Sprintf("%.0f s, %.0f MB", time.Since(began).Seconds(), watch()), "", "", nil, "equal; PostgreSQL's part included"})
	_, err = m.stop()
	return err
}
