package mirror

import (
	"encoding/json"
	"fmt"
	"time"

	"pgmirror/readstate"
)

// document is what the mirror stores beside its tables, in the transaction that commits them: where it stands in the source's
// WAL and the state of every table. It is all that a restart needs besides the tables and the slot.
type document struct {
	Format      int      `json:"format"` // 1
	Phase       phase    `json:"phase"`
	Slot        string   `json:"slot"`
	Database    string   `json:"database"`
	SystemID    string   `json:"system_id"`
	Timeline    int32    `json:"timeline"`
	Publication []string `json:"publications"`
	SearchPath  []string `json:"search_path"`

	// Cut is the end LSN up to which every streaming table is durable.
	Cut        LSN `json:"cut"`
	Checkpoint int `json:"checkpoint"` // counts commits
	// Certain is the newest cut of which a look has shown that the catalogue was the one that the tables are known by, at most Cut.
	Certain LSN `json:"certain"`
	// LastCommit is the newest commit at or below Cut; a source that sends another one in its place is a fork.
	LastCommit commitMark `json:"last_commit"`

	Tables []tableRecord `json:"tables"`
}

// phase says how far a mirror's beginning has come.
type phase string

const (
	phaseIntent    phase = "intent"  // the slot is about to be made
	phaseCopying   phase = "copying" // the slot exists, its snapshot is being copied
	phaseStreaming phase = "streaming"
)

// commitMark identifies a source commit.
type commitMark struct {
	EndLSN LSN       `json:"end_lsn"`
	XID    uint32    `json:"xid"`
	Time   time.Time `json:"time"`
}

func (c commitMark) equal(d commitMark) bool {
	return c.EndLSN == d.EndLSN && c.XID == d.XID && c.Time.Equal(d.Time)
}

// tableRecord is one table of a document.
type tableRecord struct {
	OID         uint32              `json:"oid"`
	Name        readstate.TableName `json:"name"`
	UUID        string              `json:"uuid,omitempty"`
	State       tableState          `json:"state"`
	Failure     *failure            `json:"failure,omitempty"`
	Fingerprint string              `json:"fingerprint"`
	Storage     storageMark         `json:"storage"`
	Mode        identityMode        `json:"mode"`
	Key         []int               `json:"key,omitempty"`
	Nulled      int64               `json:"unrepresentable,omitempty"`
	Rows        int64               `json:"rows"`
	// TruncatedBy are the transactions that truncated the table last: a look after a restart asks for them.
	TruncatedBy []uint32 `json:"truncated_by,omitempty"`
	Forms       forms    `json:"types,omitempty"`
	// LastFieldID is the highest field id that the table's files may have: of a column that came and went between two commits the catalog knows
	// nothing.
	LastFieldID int `json:"last_field_id,omitempty"`
	// Resync says why the table is to be copied again; empty when it is not.
	Resync string `json:"resync,omitempty"`
}

func (d *document) encode() ([]byte, error) { return json.Marshal(d) }

func decodeDocument(text []byte) (*document, error) {
	var d document
	if err := json.Unmarshal(text, &d); err != nil {
		return nil, fmt.Errorf("read the mirror's state: %w", err)
	}
	if d.Format != 1 {
		return nil, fmt.Errorf("%w: the data directory has state format %d, this version knows 1; use the version that wrote it", ErrRefused, d.Format)
	}
	return &d, nil
}

// document describes the mirror at cut. The applier's turn.
func (m *Mirror) document(cut LSN) *document {
	d := m.doc
	d.Format, d.Phase = 1, phaseStreaming
	d.Cut = cut
	d.LastCommit = m.lastCommit
	d.Tables = make([]tableRecord, 0, len(m.tables))
	for _, t := range m.tables {
		d.Tables = append(d.Tables, t.record(cut))
	}
	return &d
}

func (t *table) record(cut LSN) tableRecord {
	r := tableRecord{OID: t.oid, Name: t.name, UUID: t.uuid, State: t.state, Failure: t.failure, Fingerprint: t.fingerprint, Storage: t.storage,
		Nulled: t.unrepresentable, Rows: t.rows, TruncatedBy: t.truncatedBy, Forms: t.forms, LastFieldID: t.lastFieldID}
	if t.shape != nil {
		s := t.committable(cut)
		if t.closed() && t.committed != nil {
			s = t.committed
		}
		r.Mode, r.Key = s.mode, s.key
	} else if t.stored != nil {
		r.Mode, r.Key = t.stored.Mode, t.stored.Key
	}
	if t.joining != nil {
		r.Resync = t.joining.why
	}
	return r
}
