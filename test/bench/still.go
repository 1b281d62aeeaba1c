package main

import (
	"context"
	"slices"

	"pgmirror/duckdb"
	"pgmirror/readstate"
)

// still hands out one read state again and again: what a DuckDB over it sees stays the same, whatever is written.
type still struct {
	duckdb.Pinner
	state *readstate.State // whoever closes the pinner's connection gives it up
}

// hold pins what is visible now.
func hold(ctx context.Context, client *readstate.Client) (still, error) {
	state, err := client.Pin(ctx, readstate.PinRequest{})
	return still{client, state}, err
}

func (s still) Pin(context.Context, readstate.PinRequest) (*readstate.State, error) {
	again := altered(s.state, func(*readstate.Table) {})
	again.Release = func() {}
	return again, nil
}

// unmasked is the same without deletion vectors: dead rows are there again.
func (s still) unmasked() still {
	return still{s.Pinner, altered(s.state, func(t *readstate.Table) {
		t.Files, t.Batches = slices.Clone(t.Files), slices.Clone(t.Batches)
		for i := range t.Files {
			t.Files[i].Deleted = nil
		}
		for i := range t.Batches {
			t.Batches[i].Deleted = nil
		}
	})}
}

// altered is a read state with something changed in a copy of each table. Their vectors must have come with it.
func altered(state *readstate.State, change func(*readstate.Table)) *readstate.State {
	tables := make([]*readstate.Table, len(state.Tables))
	for i, t := range state.Tables {
		one := *t
		change(&one)
		tables[i] = &one
	}
	return &readstate.State{LSN: state.LSN, Pinned: state.Pinned, Tables: tables, Release: state.Release}
}
