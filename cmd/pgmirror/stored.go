package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"

	"github.com/jackc/pglogrepl"

	"pgmirror/iceberg"
	"pgmirror/readstate"
)

// stored is the part of the mirror's stored document that commands use when no mirror runs.
type stored struct {
	Slot         string        `json:"slot"`
	Database     string        `json:"database"`
	Publications []string      `json:"publications"`
	Tables       []storedTable `json:"tables"`
}

type storedTable struct {
	Name    readstate.TableName `json:"name"`
	State   string              `json:"state"`
	Failure *struct {
		Reason string        `json:"reason"`
		Good   pglogrepl.LSN `json:"good"`
		Remedy string        `json:"remedy"`
	} `json:"failure"`
}

func decodeStored(document []byte) (*stored, error) {
	var d stored
	if len(document) == 0 { // nothing was committed yet
		return &d, nil
	}
	if err := json.Unmarshal(document, &d); err != nil {
		return nil, fmt.Errorf("read the mirror's stored state: %w", err)
	}
	return &d, nil
}

// loadStored reads the document of a data directory that this process has locked.
func loadStored(ctx context.Context, dir *dataDir) (_ *stored, err error) {
	warehouse, err := iceberg.Open(ctx, iceberg.Config{Dir: dir.path})
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, warehouse.Close()) }()
	state, err := warehouse.Load(ctx)
	if err != nil {
		return nil, err
	}
	return decodeStored(state.Mirror)
}

// committedErr is iceberg.Config.TableErr: why a table's committed content must not be read at an LSN, with what to do about
// it; "" when it may.
func committedErr(document []byte, name readstate.TableName, at pglogrepl.LSN) string {
	d, err := decodeStored(document)
	if err != nil {
		return err.Error()
	}
	for _, t := range d.Tables {
		if t.Name != name {
			continue
		}
		switch {
		case t.State == "copying":
			return fmt.Sprintf("table %s.%s was not copied whole; start pgmirror run", name.Schema, name.Name)
		case t.Failure != nil && at > t.Failure.Good:
			text := fmt.Sprintf("table %s.%s failed: %s", name.Schema, name.Name, t.Failure.Reason)
			if t.Failure.Remedy != "" {
				text += "; " + t.Failure.Remedy
			}
			if t.Failure.Good != 0 {
				text += fmt.Sprintf("; its last good content can be read with --at %s", t.Failure.Good)
			}
			return text
		}
		return ""
	}
	return ""
}
