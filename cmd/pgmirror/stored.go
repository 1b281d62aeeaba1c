package main

import (
	"context"
	"errors"

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
