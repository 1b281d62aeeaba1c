package pgcdc_test

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pglogrepl"

	"pgmirror/pgcdc"
	"pgmirror/test/harness"
)

// patience bounds every wait of a test for something that must happen.
const patience = 20 * time.Second

// serverTest is a test that needs a database of its own, but no server.
type serverTest func(*testing.T, *harness.Postgres)

// The server of these tests would never ask for a reply by itself: wal_sender_timeout is 0 unless a session sets it (S-W3).
func TestSource(t *testing.T) {
	server := harness.StartPostgres(t, harness.Setting("wal_sender_timeout", "0"))
	for name, tests := range map[string]map[string]serverTest{"Stream": streamTests, "Catalog": catalogTests, "Copy": copyTests, "CopyPart": copyRangeTests, "Published": publishedTests, "Leaves": leafTests} {
		for test, run := range tests {
			t.Run(name+test, func(t *testing.T) {
				t.Parallel()
				run(t, server.For(t))
			})
		}
	}
}

// rig is one database of a server, a role with no more rights than pgmirror asks for, and a Source that uses it.
type rig struct {
	t    *testing.T
	p    *harness.Postgres
	name string // of the database, the role, the publication and the slot
	cfg  pgcdc.Config
	*pgcdc.Source
}

// newRig makes the database and the role; change may change the configuration.
func newRig(t *testing.T, p *harness.Postgres, change ...func(*pgcdc.Config)) *rig {
	t.Helper()
	name := "d_" + strings.ToLower(strings.Map(func(r rune) rune {
		if r >= '0' && r <= '9' || r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' {
			return r
		}
		return '_'
	}, t.Name()))
	name = name[:min(len(name), 60)]
	r := &rig{t: t, p: p, name: name}
	p.Exec("CREATE DATABASE " + name)
	p.CreateMirrorRole(name, name)
	r.cfg = pgcdc.Config{
		Source: p.URL(name, name), Publications: []string{name}, Slot: name, SpillDir: t.TempDir(),
		StatusInterval: 500 * time.Millisecond, Log: slog.New(slog.DiscardHandler),
	}
	for _, f := range change {
		f(&r.cfg)
	}
	r.Source = r.open()
	t.Cleanup(func() {
		if err := r.DropSlot(context.Background()); err != nil && !errors.Is(err, pgcdc.ErrSlotMismatch) {
			t.Logf("drop slot: %v", err)
		}
	})
	return r
}

// open makes another Source of the same configuration.
func (r *rig) open() *pgcdc.Source {
	r.t.Helper()
	s, err := pgcdc.New(r.cfg)
	if err != nil {
		r.t.Fatal(err)
	}
	r.t.Cleanup(s.Close)
	return s
}

// exec runs statements as superuser in the rig's database.
func (r *rig) exec(sql ...string) { r.t.Helper(); r.p.ExecIn(r.name, sql...) }

// publish makes the rig's publication.
func (r *rig) publish(what string) {
	r.t.Helper()
	r.exec("CREATE PUBLICATION " + r.name + " " + what)
}

func (r *rig) createSlot() pgcdc.ExportedSnapshot {
	r.t.Helper()
	snapshot, err := r.CreateSlot(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	return snapshot
}

func (r *rig) slot() pgcdc.SlotInfo {
	r.t.Helper()
	info, found, err := r.Slot(r.t.Context())
	if err != nil || !found {
		r.t.Fatalf("slot: found %v, %v", found, err)
	}
	return info
}

func (r *rig) look() *pgcdc.Catalog {
	r.t.Helper()
	catalog, err := r.Look(r.t.Context())
	if err != nil {
		r.t.Fatal(err)
	}
	return catalog
}

// table finds a table of the newest look.
func (r *rig) table(name string) *pgcdc.Table {
	r.t.Helper()
	catalog := r.look()
	for i := range catalog.Tables {
		if catalog.Tables[i].Name == name {
			return &catalog.Tables[i]
		}
	}
	r.t.Fatalf("no table %q among %d", name, len(catalog.Tables))
	return nil
}

// feed is a running Stream.
type feed struct {
	t      *testing.T
	events chan pgcdc.Event
	cancel context.CancelFunc
	result chan error
}

// stream starts streaming from the slot's position; the test's end stops it.
func (r *rig) stream(s *pgcdc.Source, binary bool) *feed {
	r.t.Helper()
	ctx, cancel := context.WithCancel(context.Background())
	f := &feed{t: r.t, events: make(chan pgcdc.Event), cancel: cancel, result: make(chan error, 1)}
	from := r.slot().ConfirmedFlush
	go func() { f.result <- s.Stream(ctx, from, binary, f.events) }()
	r.t.Cleanup(func() {
		cancel()
		select {
		case <-f.result:
		case <-time.After(patience):
			r.t.Error("Stream does not return")
		}
	})
	return f
}

// end returns what Stream returned, or nothing within patience.
func (f *feed) end() error {
	f.t.Helper()
	for limit := time.After(patience); ; {
		select {
		case err := <-f.result:
			f.result <- err
			return err
		case e := <-f.events:
			if e.Transaction != nil {
				e.Transaction.Release()
			}
		case <-limit:
			f.t.Fatal("the stream does not end")
		}
	}
}

// rows returns the next transaction that has rows, each as "operation schema.table values".
func (f *feed) rows() (*pgcdc.Transaction, []string) {
	f.t.Helper()
	for limit := time.After(patience); ; {
		select {
		case e := <-f.events:
			if e.Transaction == nil {
				continue
			}
			rows := describe(f.t, e.Transaction)
			e.Transaction.Release()
			if len(rows) > 0 {
				return e.Transaction, rows
			}
		case err := <-f.result:
			f.result <- err
			f.t.Fatalf("the stream ended: %v", err)
		case <-limit:
			f.t.Fatal("no transaction arrives")
		}
	}
}

// reach waits until an event tells lsn or more.
func (f *feed) reach(lsn pglogrepl.LSN) {
	f.t.Helper()
	for limit := time.After(patience); ; {
		select {
		case e := <-f.events:
			at := e.WALEnd
			if e.Transaction != nil {
				at = e.Transaction.EndLSN
				e.Transaction.Release()
			}
			if at >= lsn {
				return
			}
		case err := <-f.result:
			f.result <- err
			f.t.Fatalf("the stream ended: %v", err)
		case <-limit:
			f.t.Fatalf("%s is not reached", lsn)
		}
	}
}

func describe(t *testing.T, transaction *pgcdc.Transaction) []string {
	t.Helper()
	var rows []string
	err := transaction.Changes(func(c *pgcdc.Change) error {
		switch c.Op {
		case pgcdc.OpRelation:
			return nil
		case pgcdc.OpTruncate:
			rows = append(rows, fmt.Sprintf("truncate %d", len(c.Truncated)))
			return nil
		}
		op := map[pgcdc.Op]string{pgcdc.OpInsert: "insert", pgcdc.OpUpdate: "update", pgcdc.OpDelete: "delete"}[c.Op]
		tuple := c.New
		if c.Op == pgcdc.OpDelete {
			tuple = c.Old
		}
		rows = append(rows, op+" "+c.Relation.Schema+"."+c.Relation.Name+" "+texts(tuple))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	return rows
}

// texts joins a tuple's values; binary ones are shown in hex.
func texts(tuple pgcdc.Tuple) string {
	var parts []string
	for _, v := range tuple {
		switch v.Format {
		case pgcdc.FormatText:
			parts = append(parts, string(v.Data))
		case pgcdc.FormatBinary:
			parts = append(parts, fmt.Sprintf("%x", v.Data))
		default:
			parts = append(parts, "<"+string(rune(v.Format))+">")
		}
	}
	return strings.Join(parts, "|")
}

// eventually waits for a condition on the server.
func eventually(t *testing.T, what string, holds func() bool) {
	t.Helper()
	for deadline := time.Now().Add(patience); !holds(); time.Sleep(20 * time.Millisecond) {
		if time.Now().After(deadline) {
			t.Fatalf("not within %v: %s", patience, what)
		}
	}
}

func parseLSN(t *testing.T, text string) pglogrepl.LSN {
	t.Helper()
	lsn, err := pglogrepl.ParseLSN(text)
	if err != nil {
		t.Fatal(err)
	}
	return lsn
}
