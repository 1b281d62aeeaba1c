package mirror

import "pgmirror/readstate"

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

// SearchPath is the source database's.
func (s *Stored) SearchPath() []string { return s.doc.SearchPath }

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
