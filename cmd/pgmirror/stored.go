package main

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"

	"github.com/jackc/pglogrepl"

	"pgmirror/iceberg"
	"pgmirror/mirror"
	"pgmirror/readstate"
)

// loadStored reads the document of a data directory that this process has locked, whatever state the tables are in.
func loadStored(ctx context.Context, dir *dataDir) (_ *mirror.Stored, err error) {
	warehouse, err := iceberg.Open(ctx, iceberg.Config{Dir: dir.path})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, warehouse.Close()) }()
	document, err := warehouse.Document(ctx)
	if err != nil {
		return nil, err
	}
	return mirror.ReadStored(document)
}

// committedStates are the read states of what the last commit left, for `sql` while no mirror runs.
type committedStates struct{ *iceberg.Committed }

// openCommitted opens a data directory that no mirror runs on.
func openCommitted(ctx context.Context, data string) (*committedStates, error) {
	absent := func(name string) bool {
		_, err := os.Stat(filepath.Join(data, name))
		return errors.Is(err, fs.ErrNotExist)
	}
	if absent("catalog.db") && absent("warehouse") {
		return nil, errNothingCopied
	}
	committed, err := iceberg.OpenReadOnly(ctx, iceberg.Config{Dir: data, TableErr: committedErr, SearchPath: committedPath})
	if err != nil {
		return nil, err
	}
	return &committedStates{committed}, nil
}

var errNothingCopied = errors.New("nothing has been copied yet, and pgmirror is not running; start it with pgmirror run")

// Pin adds the tables that have nothing committed, with the reason in place of content.
func (c *committedStates) Pin(ctx context.Context, req readstate.PinRequest) (*readstate.State, error) {
	state, err := c.Committed.Pin(ctx, req)
	if err != nil {
		return nil, err
	}
	document, _ := c.LastCommit()
	if document != nil {
		stored, err := mirror.ReadStored(document)
		if err != nil {
			state.Release()
			return nil, err
		}
		addMissing(state, stored)
	}
	if len(state.Tables) == 0 {
		state.Release()
		return nil, errNothingCopied
	}
	return state, nil
}

// addMissing adds to a state the stored tables that it does not have.
func addMissing(state *readstate.State, stored *mirror.Stored) {
	var missing []*readstate.Table
	for _, name := range stored.Tables() {
		if _, ok := state.Table(name); ok {
			continue
		}
		reason := stored.Unreadable(name, iceberg.Newest)
		if reason == "" {
			reason = fmt.Sprintf("nothing of table %s has been committed yet", name)
		}
		missing = append(missing, &readstate.Table{Name: name, Err: reason})
	}
	state.Tables = append(state.Tables, missing...)
	slices.SortFunc(state.Tables, func(a, b *readstate.Table) int { return a.Name.Compare(b.Name) })
}

// committedErr is iceberg.Config.TableErr.
func committedErr(document []byte, name readstate.TableName, at pglogrepl.LSN) string {
	stored, err := mirror.ReadStored(document)
	if err != nil {
		return err.Error()
	}
	return stored.Unreadable(name, at)
}

// committedPath is iceberg.Config.SearchPath.
func committedPath(document []byte) []string {
	stored, err := mirror.ReadStored(document)
	if err != nil {
		return nil
	}
	return stored.SearchPath()
}
