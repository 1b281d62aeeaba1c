package mirror

import (
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/apache/arrow-go/v18/arrow"

	"pgmirror/globalindex"
	"pgmirror/pgcdc"
	"pgmirror/readstate"
)

// tableState is where a table stands. The names are stored and shown.
type tableState string

const (
	stateCopying   tableState = "copying"
	stateStreaming tableState = "streaming"
	stateFailed    tableState = "failed"
)

// failure is why a table stopped. The table keeps what it held at Good.
type failure struct {
	Reason string `json:"reason"`
	LSN    LSN    `json:"lsn"`           // end LSN of the commit, or of the catalogue look, that stopped it
	Good   LSN    `json:"good"`          // everything up to here is right; 0 when the table never held a complete content
	Key    string `json:"key,omitempty"` // of the row at fault
	Column string `json:"column,omitempty"`
	Remedy string `json:"remedy,omitempty"`
	// Damaged: files of the table were found damaged. What it held at Good can be read when they are restored.
	Damaged bool `json:"damaged,omitempty"`
	// Gone says that the table cannot be mirrored as the catalogue shows it; when that changes, it is copied again.
	Gone bool `json:"gone,omitempty"`
	// Missing is the fingerprint that the table had when the source changed a row that was not found, or named one by another identity. When the catalogue
	// shows another one, that is why: neither labels of enums and attributes of composites, which give a row another text, nor a new identity come as row
	// events. The table is then copied again.
	Missing string `json:"missing,omitempty"`
	// Closed says that nothing is committed to the table any more: another writer has changed it in the catalog, or what came since the last commit may
	// not be what the source had. What it held at Good stays.
	Closed bool `json:"closed,omitempty"`
	// Doubtful says of a closed table that Good is that of an earlier commit: the last one may hold what the source never had.
	Doubtful bool `json:"doubtful,omitempty"`
	// Absent says that the source does not publish the table any more: it is Gone, and there is nothing that it could be copied from.
	Absent bool `json:"absent,omitempty"`
}

// inherit takes over what an earlier failure says of the content that the table has still.
func (f *failure) inherit(old *failure) {
	f.Good, f.Damaged, f.Closed, f.Doubtful = old.Good, old.Damaged, old.Closed, old.Doubtful
}

// repaired says whether a look at the catalogue shows that the reason of a table's failure is no more. A row that was not found may have come with a partition.
func (t *table) repaired(now *pgcdc.Table) bool {
	f := t.failure
	return now.Unsupported == "" && (f.Gone || f.Missing != "" && (f.Missing != now.Fingerprint || now.Kind == 'p' && t.storage.rewritten(now)))
}

// unsure says whether no look has shown yet that a failed table was what it is said to have been at its last good LSN.
func (t *table) unsure() bool {
	return t.state == stateFailed && !t.sure && !t.failure.Closed && t.failure.Good != 0
}

// shownAs says whether a look shows the table as it is known.
func (t *table) shownAs(now *pgcdc.Table) bool {
	return now.Fingerprint == t.fingerprint && !t.storage.rewritten(now)
}

// shown is the state that people are told of.
func (s tableState) shown(f *failure) string {
	if s == stateFailed && f != nil && f.Absent {
		return string(stateGone)
	}
	return string(s)
}

// stateGone is shown of a failed table that the source does not publish any more; no table is in it.
const stateGone tableState = "gone"

// table is the state of one mirrored table. The applier owns it; what other goroutines may look at is version, and
// status fields under the mirror's status lock.
type table struct {
	oid         uint32
	name        readstate.TableName
	uuid        string
	fingerprint string
	storage     storageMark // at the newest look that found nothing changed
	sure        bool        // of a failed table: a look at or after its last good LSN found nothing changed
	shape       *shape      // nil for a table that failed before it had one
	forms       forms       // of the content
	version     atomic.Pointer[tableVersion]
	// What decides whether a change of its columns can be taken over in place (evolve.go).
	frame       string // pgcdc.Table.Frame; empty until the catalogue was asked
	lastAttNum  int16
	lastFieldID int           // the highest ever given
	since       LSN           // where the shape begins; 0 for the first
	earlier     *tableVersion // for readers below since
	committed   *shape        // that of the catalog; nil before

	state   tableState
	failure *failure
	// damage is why this life cannot read the table's files; empty when it can.
	damage string
	// stored is what the last commit's document says of a table without a shape.
	stored *tableRecord

	open    *segment     // memory: the batch being filled
	sealed  []*segment   // memory: full batches, oldest first
	indexes []*fileIndex // of files, oldest first
	epoch   uint64       // counts changes of indexes and shape
	files   []*segment
	// compacted are files whose rows are in another file now, until a commit takes them out of the table.
	compacted []*segment
	// Of another writer's rewrite (foreign.go): the next commit is to state the table anew, and where its rows came into other files last.
	restate bool
	moved   LSN

	rows            int64 // visible ones, as of the last change applied
	unrepresentable int64 // values stored as NULL
	dirty           bool  // changed since the last cut
	touched         bool  // by the transaction that is being applied
	durable         LSN

	seeking  []*column // scratch: a key, in key order
	reading  []*column // scratch: the key of a row that was read back from a file
	encoded  []byte
	compared []byte
	fileBuf  []globalindex.FileLocation

	jobs        sync.Mutex // held by the flush that rewrites the table's batches
	tidying     sync.Mutex // held by the job that rewrites its files, perhaps for hours: no flush and no merge waits for it
	merging     sync.Mutex // held by the job that merges its FileIndexes
	compactedAt time.Time  // when files were last compacted by themselves; the zero time when not since the start

	// What belongs to tables that come and go (join.go).
	joining     *join         // the join that will replace the table; nil when there is none
	copied      *atomic.Int64 // rows copied by it so far; nil before
	created     bool          // a commit has created the table in the catalog
	replaces    []*table      // to be dropped by the commit that creates it
	appears     LSN           // its content begins here; 0 for the first copy's
	lastReader  uint64        // the newest reader registered when another table took its place
	discarded   bool          // given up: what a job still brings goes too
	retired     LSN           // another table took its place here; 0 while it is one of the mirror's
	replayed    LSN           // end LSN of the last commit replayed before it joined; 0 once it has joined
	copiedAt    LSN           // of the snapshot that its rows were copied from; 0 after a restart
	left        bool          // closed, and its content is that of the last commit
	truncatedBy []uint32      // the transactions that truncated it last (noteTruncate)
	seen        uint64        // Snapshot of the look at the catalogue that its definition comes from; 0 for the first copy's
}

// storageMark is what a look shows of where a table's rows lie and when its columns were last defined. The storage alone changes
// by VACUUM FULL, CLUSTER or TRUNCATE, and where the server allows it by SET UNLOGGED and back, which hides what was written between; both parts
// by an ALTER TABLE that may have given the rows other values: ALTER … TYPE t USING f(c) with the type that c has leaves no other trace. Unless
// the TOAST table stayed, which no ALTER TABLE that writes the rows leaves, the source is asked about the rows (RowsKept).
type storageMark struct {
	Relfilenode uint32 `json:"relfilenode"`
	Toast       uint32 `json:"toast,omitempty"`
	Attributes  string `json:"attributes"`
	// Horizon is the look's: it says which rows are older.
	Horizon uint64 `json:"horizon,omitempty"`
	// Leaves are where the rows of a partitioned table lie.
	Leaves []leafMark `json:"leaves,omitempty"`
}

func storageOf(t *pgcdc.Table) storageMark {
	return storageMark{t.Relfilenode, t.Toast, t.AttributeVersions, t.Horizon, leavesOf(t)}
}

// rewritten says whether the rows may have been changed in a way that the stream does not tell.
func (s storageMark) rewritten(now *pgcdc.Table) bool {
	if now.Kind == 'p' {
		left, changes := s.leafChanges(now)
		return left || len(changes) > 0
	}
	if s.Relfilenode == now.Relfilenode || s.Toast != 0 && s.Toast == now.Toast {
		return false
	}
	return s.Attributes != now.AttributeVersions || !now.StaysLogged
}

// rowsKept says what is certain of the rows by the source's answers: with KeptIfTruncated they were changed by nothing but what the stream tells if all of
// the transactions by truncated the table.
func (s storageMark) rowsKept(now *pgcdc.Table, kept map[uint32]pgcdc.Kept) (certain pgcdc.Kept, by []uint32) {
	switch {
	case now.Kind == 'p':
		return s.leavesKept(now, kept)
	case !s.rewritten(now):
		return pgcdc.KeptCertain, nil
	}
	return kept[now.OID], []uint32{now.WrittenBy}
}

// rowsLost says whether they may have been changed otherwise, by all that is known. The applier's turn, when all commits before the look are applied.
func (t *table) rowsLost(now *pgcdc.Table, kept map[uint32]pgcdc.Kept) bool {
	certain, by := t.storage.rowsKept(now, kept)
	switch certain {
	case pgcdc.KeptCertain:
		return false
	case pgcdc.KeptIfTruncated:
		return slices.ContainsFunc(by, func(xid uint32) bool { return !slices.Contains(t.truncatedBy, xid) })
	}
	return true
}

// reasonRewritten is why a table is copied again whose rows may be others.
func reasonRewritten(now *pgcdc.Table) string {
	if now.Kind == 'p' {
		return "a partition came with rows, left, was emptied or was written anew, of which the stream does not tell"
	}
	return "the table's rows were written anew by ALTER TABLE, perhaps with what the stream does not tell"
}

// truncatesKept is how many transactions that truncated a table are known: a look is judged when others may have done so again.
const truncatesKept = 8

// noteTruncate adds a transaction to those that truncated a table, without changing the list, which the document has too.
func noteTruncate(by []uint32, xid uint32) []uint32 {
	if len(by) > 0 && by[len(by)-1] == xid {
		return by
	}
	return append(slices.Clone(by[max(0, len(by)-truncatesKept+1):]), xid)
}

// fileIndex is an open FileIndex and the segments it covers, by file ordinal.
type fileIndex struct {
	path     string
	index    *globalindex.FileIndex
	entries  uint64
	live     uint64     // entries for rows of segments: each row of a file has one
	segments []*segment // nil: a compaction has taken the file's rows elsewhere
	unmap    func() error

	// spent says of hashes that many rows share how many of their first rows were found deleted: lookups begin after them.
	spent map[uint64]int

	busy    bool // a job reads it; the applier's
	closing bool // it is to be unmapped, once no job reads it; the applier's
}

// location is where a row lies.
type location struct {
	segment *segment
	row     uint32
}

// birth is the LSN from which on rows of a new segment of the table may be deleted: what was applied to it last.
func (t *table) birth(m *Mirror) LSN {
	if t.replayed != 0 {
		return t.replayed
	}
	return m.applied
}

func (t *table) String() string { return t.name.Schema + "." + t.name.Name }

// setShape prepares the table for changes.
func (t *table) setShape(s *shape) {
	t.shape = s
	t.epoch++
	t.seeking, t.reading = nil, nil
	for _, k := range s.key {
		t.seeking = append(t.seeking, newColumn(s.columns[k].typ))
		t.reading = append(t.reading, newColumn(s.columns[k].typ))
	}
}

// closed says that nothing is committed to the table any more.
func (t *table) closed() bool { return t.failure != nil && t.failure.Closed }

// install makes the table's present segments the version that readers find.
func (t *table) install() {
	v := &tableVersion{shape: t.shape, segments: make([]*segment, 0, len(t.files)+len(t.sealed)+1), since: t.since, earlier: t.earlier, moved: t.moved}
	v.segments = append(v.segments, t.files...)
	v.segments = append(v.segments, t.sealed...)
	if t.open != nil {
		v.segments = append(v.segments, t.open)
	}
	t.version.Store(v)
}

// committable is the shape that a commit at cut, the last LSN that was published, has of the table. The applier's turn.
func (t *table) committable(cut LSN) *shape {
	if v := t.version.Load(); v != nil && t.failure != nil {
		return v.at(min(cut, t.failure.Good)).shape
	}
	return t.shape
}

// hash is the hash of the key in the given columns at row, as docs/formats/keys.md says.
func (t *table) hash(key []*column, row int) uint64 {
	if t.shape.integer {
		return globalindex.HashInt(key[0].integer(row))
	}
	t.encoded = encodeKey(t.encoded[:0], key, row)
	return globalindex.HashBytes(t.encoded)
}

func encodeKey(dst []byte, key []*column, row int) []byte {
	for _, c := range key {
		dst = c.appendKey(dst, row)
	}
	return dst
}

// rowError is what is wrong with one value of a change.
type rowError struct {
	column string
	err    error
}

func (e *rowError) Error() string { return fmt.Sprintf("column %q: %v", e.column, e.err) }
func (e *rowError) Unwrap() error { return e.err }

// errMissingRow: an update or delete names a row that the mirror does not hold.
var errMissingRow = errors.New("the source changed a row that the mirror does not hold")

// errOtherIdentity: an update or delete does not name its row by the replica identity that the table is known with.
var errOtherIdentity = errors.New("the table's replica identity has changed")

// errLeftOut: an insert leaves a value out. An update that moves a row into a row filter is sent as an insert, without the TOASTed values that it left
// alone (pgoutput_row_filter in PostgreSQL's pgoutput.c copies only those of the replica identity from the old row).
var errLeftOut = errors.New("an update moved a row into the row filter, and the source sends no value that it left alone out of line")

// seek decodes the identity's columns of a tuple into t.seeking.
func (t *table) seek(tuple pgcdc.Tuple, nullable bool) error {
	if len(tuple) != len(t.shape.columns) {
		return fmt.Errorf("the change has %d columns, the table %d", len(tuple), len(t.shape.columns))
	}
	for i, k := range t.shape.key {
		c := t.seeking[i]
		c.truncate(0)
		col := &t.shape.columns[k]
		v := tuple[k]
		if v.Format == pgcdc.FormatNull {
			c.Null()
			continue
		}
		if err := col.pg.Decode(v.Format, v.Data, c); err != nil {
			if nullable && errors.Is(err, pgcdc.ErrUnrepresentable) {
				c.truncate(0)
				c.Null()
				continue
			}
			return &rowError{col.name, err}
		}
	}
	return nil
}

// add appends a row created at lsn. Values that the change left out come from the old tuple, if it holds them, else from the
// old row's place.
func (t *table) add(m *Mirror, tuple, old pgcdc.Tuple, from location, lsn LSN) error {
	b := t.open.batch
	if len(tuple) != len(b.cols) {
		return fmt.Errorf("the change has %d columns, the table %d", len(tuple), len(b.cols))
	}
	row := b.rows
	unrepresentable := t.unrepresentable
	err := t.fill(m, b.cols, row, tuple, old, from)
	for i, c := range b.cols {
		if err == nil && c.full() {
			err = &rowError{t.shape.columns[i].name, errors.New("the value takes more than 2 GB in the mirror's form")}
		}
	}
	if err != nil {
		t.unrepresentable = unrepresentable
		b.truncate(row)
		return err
	}
	b.lsns.push(uint64(lsn))
	if t.shape.mode != insertOnly {
		h := t.hash(b.keys, row)
		b.hashes = append(b.hashes, h)
		if b.index != nil {
			b.index.Put(h, uint32(row))
		}
	}
	for _, c := range b.cols {
		b.added += c.rowBytes(row)
	}
	b.rows++
	t.rows++
	return nil
}

// fill appends one row to cols, which have rows rows. After an error the caller takes back what was appended.
func (t *table) fill(m *Mirror, cols []*column, rows int, tuple, old pgcdc.Tuple, from location) error {
	var kept []int // columns to fetch from the old row's place
	for i, c := range cols {
		v := tuple[i]
		if v.Format == pgcdc.FormatUnchanged && i < len(old) && old[i].Format != pgcdc.FormatNull {
			v = old[i]
		}
		switch v.Format {
		case pgcdc.FormatNull:
			if t.shape.columns[i].key {
				return &rowError{t.shape.columns[i].name, errors.New("NULL in the primary key")}
			}
			c.Null()
			continue
		case pgcdc.FormatUnchanged:
			if from.segment == nil {
				return &rowError{t.shape.columns[i].name, errLeftOut}
			}
			kept = append(kept, i)
			continue
		}
		col := &t.shape.columns[i]
		if err := col.pg.Decode(v.Format, v.Data, c); err != nil {
			if !m.cfg.NullUnrepresentable || col.key || !errors.Is(err, pgcdc.ErrUnrepresentable) {
				return &rowError{col.name, err}
			}
			c.truncate(rows)
			c.Null()
			t.unrepresentable++
		}
	}
	if len(kept) > 0 {
		return t.fetch(m, cols, kept, from)
	}
	return nil
}

// fetch appends values that an update left unchanged, from where the old row lies.
func (t *table) fetch(m *Mirror, cols []*column, kept []int, from location) error {
	if b := from.segment.batch; b != nil && b.shape == t.shape {
		for _, i := range kept {
			cols[i].appendFrom(b.cols[i], int(from.row))
		}
		return nil
	}
	var old []arrow.Array
	var err error
	if b := from.segment.batch; b != nil {
		old, err = b.read(t.shape, kept, int(from.row), int(from.row)+1)
	} else {
		old, err = m.readRow(from, t.shape, kept)
	}
	if err != nil {
		return err
	}
	for j, i := range kept {
		if err := cols[i].appendArray(old[j], 0); err != nil {
			return &rowError{t.shape.columns[i].name, err}
		}
	}
	return nil
}

// remove deletes the row at loc as of lsn.
func (t *table) remove(loc location, lsn LSN) error {
	if err := loc.segment.delete(loc.row, lsn); err != nil {
		return err
	}
	if b := loc.segment.batch; b != nil && b.index != nil {
		b.index.Remove(b.hashes[loc.row], loc.row)
	}
	t.rows--
	return nil
}

// keyText describes the key of a change's row for a person.
func (t *table) keyText(tuple pgcdc.Tuple) string {
	if t.shape == nil || t.shape.mode != keyed || t.seek(tuple, true) != nil {
		return ""
	}
	var parts []string
	for i, k := range t.shape.key {
		parts = append(parts, t.shape.columns[k].name+"="+t.seeking[i].ownArray().ValueStr(0))
	}
	return strings.Join(parts, ", ")
}
