package duckdb

import (
	"context"
	"errors"
	"testing"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"pgmirror/readstate"
)

// growing serves a table t with as many rows as the LSN says; each pin is at the next LSN, or at the one asked for.
func growing(t *testing.T) *fakePinner {
	schema := arrow.NewSchema([]arrow.Field{col("n", 1, arrow.PrimitiveTypes.Int64)}, nil)
	p := &fakePinner{}
	p.make = func(pin int) (*readstate.State, error) {
		at := readstate.LSN(pin)
		if asked := p.reqs[len(p.reqs)-1].At; asked > 100 {
			return nil, errors.New("in the future")
		} else if asked != 0 {
			at = asked
		}
		rows := "["
		for i := range at {
			if i > 0 {
				rows += ","
			}
			rows += `{"n":1}`
		}
		batch := batchOf(record(t, schema, rows+"]"), nil)
		return &readstate.State{LSN: at, Tables: []*readstate.Table{table("t", schema, nil, []readstate.Batch{batch})}}, nil
	}
	return p
}

// Pin keeps one state for all statements, at an LSN or the newest, until Unpin; the state is given back once, and a Pin that fails
// leaves the one before.
func TestPin(t *testing.T) {
	p := growing(t)
	db := openTest(t, p)
	ctx := context.Background()
	rows := func() string { return query(t, db, "SELECT count(*) FROM t")[0][0] }
	lsn := func(want readstate.LSN, wantKept bool) {
		t.Helper()
		if got, kept, err := db.LSN(ctx); err != nil || got != want || kept != wantKept {
			t.Errorf("LSN: %s, %v, %v; want %s, %v", got, kept, err, want, wantKept)
		}
	}
	if first, second := rows(), rows(); first != "2" || second != "3" {
		t.Fatalf("the table does not grow: %s, %s", first, second)
	}
	lsn(4, false)
	if at, err := db.Pin(ctx, 0, time.Time{}); err != nil || at != 5 {
		t.Fatal(at, err)
	}
	if first, second := rows(), rows(); first != "5" || second != "5" {
		t.Errorf("pinned at 5, read %s and %s rows", first, second)
	}
	if at, err := db.Pin(ctx, 2, time.Time{}); err != nil || at != 2 {
		t.Fatal(at, err)
	}
	if _, err := db.Pin(ctx, 1000, time.Time{}); err == nil {
		t.Error("pinned in the future")
	}
	if got := rows(); got != "2" {
		t.Errorf("pinned at 2, read %s rows", got)
	}
	lsn(2, true)
	if n := p.open.Load(); n != 1 {
		t.Errorf("%d states are open, want the pinned one", n)
	}
	query(t, db, "BEGIN")
	if got := rows(); got != "2" {
		t.Errorf("pinned at 2, read %s rows in a transaction", got)
	}
	if _, err := db.Pin(ctx, 0, time.Time{}); err == nil {
		t.Error("pinned in a transaction")
	}
	db.Unpin()
	if got := rows(); got != "2" {
		t.Errorf("Unpin took the transaction's state: %s rows", got)
	}
	lsn(2, true)
	query(t, db, "COMMIT")
	if got := rows(); got != "8" {
		t.Errorf("unpinned, read %s rows", got)
	}
	db.Unpin()
	if n := p.open.Load(); n != 0 {
		t.Errorf("%d states are open after Unpin", n)
	}
	if _, err := db.Pin(ctx, 0, time.Time{}); err != nil { // Close gives it back
		t.Fatal(err)
	}
}
