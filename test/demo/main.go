// Command demo shows pgmirror at work, on nothing but a throw-away PostgreSQL of its own: it mirrors a small shop while
// several connections write to it, compares DuckDB's answers with PostgreSQL's at the same LSN, measures how soon a commit
// is visible, and at the end compares every table row by row. It exits 1 when anything differs and cleans up after itself.
//
//	writers ──▶ PostgreSQL ──▶ pgmirror run ══ socket ══▶ DuckDB in this process
//	               └────────────── compared here ─────────────┘
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/signal"
	"path/filepath"
	"syscall"
	"time"

	"pgmirror/test/harness"
)

// errDiffers is the one failure that is about the data.
var errDiffers = errors.New("DuckDB's answers differ from PostgreSQL's")

// demo is what the steps share.
type demo struct {
	began time.Time
	pg    *harness.Postgres
	data  string // pgmirror's data directory
	bin   string // the pgmirror program
}

func main() {
	bin := flag.String("pgmirror", "bin/pgmirror", "the program to show")
	live := flag.Duration("live", 30*time.Second, "how long to write")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	d := &demo{began: time.Now(), bin: *bin}
	if err := d.run(ctx, *live); err != nil {
		fmt.Fprintf(os.Stderr, "\ndemo: %s\n", err)
		os.Exit(1)
	}
}

// say prints a line with the time since the start.
func (d *demo) say(format string, args ...any) {
	fmt.Printf("%5.1fs  %s\n", time.Since(d.began).Seconds(), fmt.Sprintf(format, args...))
}

func (d *demo) run(ctx context.Context, live time.Duration) (err error) {
	dir, err := os.MkdirTemp("", "pgmd") // short: sockets go below it
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, os.RemoveAll(dir)) }()
	server := filepath.Join(dir, "pg")
	if err := os.Mkdir(server, 0o755); err != nil {
		return err
	}
	if err := os.Chmod(dir, 0o755); err != nil { // the server runs as another user
		return err
	}
	d.data = filepath.Join(dir, "mirror")

	d.say("starting a throw-away PostgreSQL")
	if d.pg, err = harness.Start(server); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, d.pg.Stop(harness.Fast), d.pg.Remove()) }()
	if err := d.makeShop(); err != nil {
		return fmt.Errorf("make the shop: %w", err)
	}
	mirror, err := d.startMirror(ctx)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, mirror.stop()) }()

	fresh, err := d.whileWriting(ctx, live)
	if err != nil {
		return err
	}
	if err := d.compareEverything(ctx); err != nil {
		return err
	}
	if err := d.verify(ctx); err != nil {
		return err
	}
	fmt.Printf("\nEvery answer and every row is the same. %s\n\n%s", fresh, farewell)
	return nil
}

const farewell = `On a database of your own (wal_level = logical; README.md has the GRANT lines):

  bin/pgmirror run --source postgres://USER@HOST/DATABASE --publication shop --create-publication
  bin/pgmirror sql -c 'SELECT count(*) FROM YOUR_TABLE'
  bin/pgmirror status
`
