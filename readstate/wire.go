package readstate

import (
	"encoding/json"
	"fmt"
	"math"
	"slices"
	"time"
	"unicode/utf8"

	"github.com/jackc/pglogrepl"
)

// Operations of a request.
const (
	opPin     = "pin"
	opSchemas = "schemas"
	opVectors = "vectors"
	opColumns = "columns"
	opRelease = "release"
	opStatus  = "status"
	opCall    = "call"
	opCancel  = "cancel"
)

// request is the header of a frame to the server. ID is the client's and in use by one request at a time; release and
// cancel have no answer and no ID of their own.
type request struct {
	ID uint64 `json:"id,omitempty"`
	Op string `json:"op"`

	At         wireLSN      `json:"at,omitzero"` // pin
	AtTimeUS   *int64       `json:"at_time_us,omitempty"`
	Changes    *wireChanges `json:"changes,omitempty"`
	WaitLSN    wireLSN      `json:"wait_lsn,omitzero"`
	WaitSource bool         `json:"wait_source,omitempty"`
	TimeoutUS  int64        `json:"timeout_us,omitempty"`

	State   uint64   `json:"state,omitempty"`   // schemas, vectors, columns, release
	Tables  []int    `json:"tables,omitempty"`  // schemas: places in the state's tables
	Vectors []uint64 `json:"vectors,omitempty"` // vectors
	Batch   uint64   `json:"batch,omitempty"`   // columns
	Columns []int    `json:"columns,omitempty"`
	From    int      `json:"from,omitempty"`
	To      int      `json:"to,omitempty"`

	Command  string `json:"command,omitempty"` // call; the arguments are the body
	Progress bool   `json:"progress,omitempty"`

	Target uint64 `json:"target,omitempty"` // cancel
}

// wireChanges asks for a change feed.
type wireChanges struct {
	TableName
	From wireLSN `json:"from,omitzero"`
}

// Kinds of an answer. A request has any number of parts and progress lines, then done or error.
const (
	kindDone     = "done"
	kindError    = "error"
	kindPart     = "part"
	kindProgress = "progress"
	kindEnded    = "ended" // of a state, to no request: the mirror has taken it back
)

// answer is the header of a frame to the client.
type answer struct {
	ID      uint64 `json:"id"` // 0 with ended
	Kind    string `json:"kind"`
	State   uint64 `json:"state,omitempty"`   // done of a pin; ended
	Line    string `json:"line,omitempty"`    // progress
	Code    string `json:"code,omitempty"`    // error
	Message string `json:"message,omitempty"` // error, ended
}

// wireLSN is an LSN in PostgreSQL's own spelling.
type wireLSN LSN

func (l wireLSN) MarshalText() ([]byte, error) { return []byte(LSN(l).String()), nil }

func (l *wireLSN) UnmarshalText(text []byte) error {
	lsn, err := pglogrepl.ParseLSN(string(text))
	if err != nil || lsn.String() != string(text) {
		return protocolErrorf("%q is no LSN", text)
	}
	*l = wireLSN(lsn)
	return nil
}

// wireState is the body that answers a pin.
type wireState struct {
	LSN        wireLSN     `json:"lsn"`
	Pinned     time.Time   `json:"pinned"`
	SearchPath []string    `json:"search_path"`
	Tables     []wireTable `json:"tables"`
}

type wireTable struct {
	TableName
	Err      string      `json:"error,omitempty"`
	SchemaID uint64      `json:"schema_id,omitempty"` // names the columns within the connection; 0 for a table without a schema
	Files    []wireFile  `json:"files,omitempty"`
	Batches  []wireBatch `json:"batches,omitempty"`
}

type wireFile struct {
	Path    string      `json:"path"`
	Rows    int64       `json:"rows"`
	Bytes   int64       `json:"bytes"`
	Deleted *wireVector `json:"deleted,omitempty"`
}

type wireBatch struct {
	ID      uint64      `json:"id"`
	Sealed  bool        `json:"sealed,omitempty"`
	Rows    int         `json:"rows"`
	Deleted *wireVector `json:"deleted,omitempty"`
}

// wireVector names a frozen vector; its blob is asked for by ID.
type wireVector struct {
	ID   uint64 `json:"id"`
	Rows uint32 `json:"rows"`
}

// stateToWire describes a state of the provider. schemaIDs has the ID of each table's schema.
func stateToWire(state *State, searchPath []string, schemaIDs []uint64) (*wireState, error) {
	out := &wireState{LSN: wireLSN(state.LSN), Pinned: state.Pinned, SearchPath: searchPath, Tables: make([]wireTable, len(state.Tables))}
	for i, table := range state.Tables {
		if i > 0 && state.Tables[i-1].Name.Compare(table.Name) >= 0 {
			return nil, fmt.Errorf("tables of the read state are out of order at %s", table.Name)
		}
		wire, err := tableToWire(table, schemaIDs[i])
		if err != nil {
			return nil, fmt.Errorf("describe table %s: %w", table.Name, err)
		}
		out.Tables[i] = wire
	}
	return out, nil
}

func tableToWire(table *Table, schemaID uint64) (wireTable, error) {
	out := wireTable{TableName: table.Name, Err: table.Err, SchemaID: schemaID}
	if !utf8.ValidString(table.Name.Schema) || !utf8.ValidString(table.Name.Name) {
		return wireTable{}, fmt.Errorf("the name is not UTF-8")
	}
	for _, file := range table.Files {
		if !utf8.ValidString(file.Path) {
			return wireTable{}, fmt.Errorf("the path %q is not UTF-8", file.Path)
		}
		wire := wireFile{Path: file.Path, Rows: file.Rows, Bytes: file.Bytes}
		if file.Deleted != nil {
			wire.Deleted = &wireVector{ID: file.Deleted.ID(), Rows: file.Deleted.Rows()}
		}
		out.Files = append(out.Files, wire)
	}
	for _, batch := range table.Batches {
		wire := wireBatch{ID: batch.ID, Sealed: batch.Sealed, Rows: batch.Rows}
		if batch.Deleted != nil {
			wire.Deleted = &wireVector{ID: batch.Deleted.ID(), Rows: batch.Deleted.Rows()}
		}
		out.Batches = append(out.Batches, wire)
	}
	return out, nil
}

// parseState reads and checks the body that answers a pin.
func parseState(body []byte) (*wireState, error) {
	var state wireState
	if err := json.Unmarshal(body, &state); err != nil {
		return nil, protocolErrorf("read state is no JSON: %v", err)
	}
	if !slices.IsSortedFunc(state.Tables, func(a, b wireTable) int { return a.Compare(b.TableName) }) {
		return nil, protocolErrorf("tables are out of order")
	}
	batches := map[uint64]bool{}
	for _, table := range state.Tables {
		if table.SchemaID == 0 && len(table.Files)+len(table.Batches) > 0 {
			return nil, protocolErrorf("table %s has rows and no schema", table.TableName)
		}
		for _, file := range table.Files {
			if file.Path == "" || file.Rows < 0 || file.Bytes < 0 {
				return nil, protocolErrorf("file %q of table %s has %d rows and %d bytes", file.Path, table.TableName, file.Rows, file.Bytes)
			}
		}
		for _, batch := range table.Batches {
			if batch.Rows < 0 || batch.Rows > math.MaxInt32 {
				return nil, protocolErrorf("batch %d of table %s has %d rows", batch.ID, table.TableName, batch.Rows)
			}
			if batches[batch.ID] {
				return nil, protocolErrorf("batch %d comes twice", batch.ID)
			}
			batches[batch.ID] = true
		}
	}
	return &state, nil
}

// parseRequest reads a request's header.
func parseRequest(header []byte) (request, error) {
	var req request
	if err := json.Unmarshal(header, &req); err != nil {
		return request{}, protocolErrorf("request is no JSON: %v", err)
	}
	answered := req.Op != opRelease && req.Op != opCancel
	if req.Op == "" || answered != (req.ID != 0) {
		return request{}, protocolErrorf("request %q has the id %d", req.Op, req.ID)
	}
	return req, nil
}
