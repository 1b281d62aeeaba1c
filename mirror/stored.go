package mirror

import (
	"time"

	"pgmirror/pgcdc"
	"pgmirror/readstate"
)

// Stored is what a mirror stored beside its tables with the last commit, for commands that run without it.
type Stored struct{ doc document }

// ReadStored reads the document of a warehouse; nil, of a warehouse without a commit, gives an empty one.
func ReadStored(text []byte) (*Stored, error) {
	if text == nil {
		return &Stored{}, nil
	}
	doc, err := decodeDocument(text)
	if err != nil {
		return nil, err
	}
	return &Stored{*doc}, nil
}

// Slot is the mirror's replication slot; empty when none was ever to be made.
func (s *Stored) Slot() string { return s.doc.Slot }

// Database is the source database's name.
func (s *Stored) Database() string { return s.doc.Database }

// Publications are those that the mirror follows.
func (s *Stored) Publications() []string { return s.doc.Publication }

// Types says what columns are mirrored as by configuration, in its words.
func (s *Stored) Types() map[pgcdc.ColumnName]string {
	types := map[pgcdc.ColumnName]string{}
	for _, t := range s.doc.Tables {
		for column, form := range t.Forms {
			types[pgcdc.ColumnName{Schema: t.Name.Schema, Table: t.Name.Name, Column: column}] = form
		}
	}
	return types
}

// SearchPath is the source database's.
func (s *Stored) SearchPath() []string { return s.doc.SearchPath }

// Tables are the names of the mirrored tables, also of those that have nothing committed.
func (s *Stored) Tables() []readstate.TableName {
	out := make([]readstate.TableName, len(s.doc.Tables))
	for i := range s.doc.Tables {
		out[i] = s.doc.Tables[i].Name
	}
	return out
}

// Status is the document of `status --json` for a mirror that is not running: what its last commit left. committed is the read
// state of that commit, at its time.
func (s *Stored) Status(version string, committed *readstate.State, at time.Time) *Status {
	cut := s.doc.Cut.String()
	st := &Status{State: "stopped", Version: version, Slot: s.doc.Slot, Publications: s.doc.Publication, SystemID: s.doc.SystemID, Timeline: s.doc.Timeline,
		ReceivedLSN: cut, AppliedLSN: cut, VisibleLSN: cut, DurableLSN: cut, AcknowledgedLSN: cut, CatalogLSN: cut, WindowFloorLSN: cut, SourceLSN: cut, Tables: []TableStatus{}}
	if s.doc.Phase != phaseStreaming {
		st.Reason = "the first copy was not finished"
	}
	if st.Publications == nil {
		st.Publications = []string{}
	}
	if !at.IsZero() {
		st.LastCheckpoint = at.UTC().Format(time.RFC3339Nano)
	}
	if last := s.doc.LastCommit.Time; !last.IsZero() {
		st.LastCommitTime = last.UTC().Format(time.RFC3339Nano)
	}
	for i := range s.doc.Tables {
		r := &s.doc.Tables[i]
		ts := TableStatus{Name: r.Name.String(), State: r.State.shown(r.Failure), InsertOnly: r.Mode == insertOnly, Rows: r.Rows, Unrepresentable: r.Nulled, DurableLSN: cut, Types: r.Forms}
		ts.setFailure(r.Failure)
		if t, ok := committed.Table(r.Name); ok {
			for _, f := range t.Files {
				ts.Files++
				ts.Bytes += f.Bytes
				if deleted := f.Deleted.Cardinality(); deleted > 0 {
					ts.Vectors++
					ts.DeletedRows += int64(deleted)
				}
			}
		}
		st.Tables = append(st.Tables, ts)
	}
	return st
}

// Unreadable says why a table's committed content must not be read at an LSN, or, for iceberg.Newest, without naming one, and
// what to do; empty when it may.
func (s *Stored) Unreadable(name readstate.TableName, at LSN) string {
	for i := range s.doc.Tables {
		if t := &s.doc.Tables[i]; t.Name == name {
			return unreadable(name, t.State, t.Failure, at)
		}
	}
	return ""
}
