package pgcdc

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"regexp"
	"slices"
	"sync"
	"sync/atomic"
	"time"

	"github.com/jackc/pgx/v5/pgconn"
)

// Config says what to mirror and how to reach it. Only Source, Publications and Slot are required.
type Config struct {
	// Source is a libpq URL or keyword string; what it leaves out comes from PG* variables, the service file and .pgpass.
	Source       string
	Publications []string
	Slot         string
	// SpillDir holds the changes of large open transactions; it is emptied at each connect.
	SpillDir string
	// SpillBytes is how much of all open transactions stays in memory; beyond it the largest goes to SpillDir. Default 64 MiB.
	SpillBytes int64
	// StatusInterval is the longest silence towards the server. Default 10 s. After six of them without a word from the
	// other side, either side gives the connection up (wal_sender_timeout is set to that).
	StatusInterval time.Duration
	// Admit, if set, is called before each read from the stream and may wait, which pauses it: the server is answered meanwhile. Its error
	// ends the stream. The context is the stream's.
	Admit func(ctx context.Context) error
	// PartialPublish accepts publications that leave out an operation.
	PartialPublish bool
	// Types says what columns are mirrored as where that is not what their types say. Names of columns that are not there mean nothing.
	Types map[ColumnName]Form
	Log   *slog.Logger // nil discards
}

// defaultStatusInterval makes wal_sender_timeout PostgreSQL's own default of 60 s.
const defaultStatusInterval = 10 * time.Second

// silenceIntervals is how many status intervals either side waits for the other.
const silenceIntervals = 6

// slotName is what PostgreSQL accepts (ReplicationSlotValidateName).
var slotName = regexp.MustCompile(`^[a-z0-9_]{1,63}$`)

// Validate reports every fault of the configuration together.
func (c Config) Validate() error {
	var faults []error
	if _, err := parseSource(c.Source); err != nil {
		faults = append(faults, err)
	}
	if len(c.Publications) == 0 {
		faults = append(faults, errors.New("publications: name at least one"))
	}
	for i, name := range c.Publications {
		switch {
		case name == "" || len(name) > 63:
			faults = append(faults, fmt.Errorf("publications: %q must have 1 to 63 bytes", name))
		case slices.Contains(c.Publications[:i], name):
			faults = append(faults, fmt.Errorf("publications: %q is named twice", name))
		}
	}
	if !slotName.MatchString(c.Slot) {
		faults = append(faults, fmt.Errorf("slot: %q must have 1 to 63 of a-z, 0-9 and _", c.Slot))
	}
	if c.SpillBytes < 0 {
		faults = append(faults, errors.New("spill bytes: must not be negative"))
	}
	if c.StatusInterval < 0 || c.StatusInterval > 5*time.Minute {
		faults = append(faults, errors.New("status interval: must lie between 0 and 5m"))
	}
	return errors.Join(faults...)
}

// Identification is what a server says of itself (IDENTIFY_SYSTEM and a catalogue query).
type Identification struct {
	SystemID string
	Timeline int32
	// WALEnd is the end of flushed WAL.
	WALEnd   LSN
	Database string
	Version  int // server_version_num
	// History holds, for each earlier timeline, where it was left (TIMELINE_HISTORY); empty on timeline 1.
	History []TimelineSwitch
}

// TimelineSwitch is one line of a timeline history: Timeline ended at End.
type TimelineSwitch struct {
	Timeline int32
	End      LSN
}

// SlotInfo is a row of pg_replication_slots.
type SlotInfo struct {
	Name           string
	Plugin         string
	Database       string
	Temporary      bool
	Active         bool
	ActivePID      int32
	RestartLSN     LSN
	ConfirmedFlush LSN
	WALStatus      string // reserved, extended, unreserved, lost
	RetainedBytes  int64  // WAL kept for the slot
	WALEnd         LSN    // of the server, when it was asked
}

// Catalog is one look at the source's catalogue.
type Catalog struct {
	// LSN was read (pg_current_wal_insert_lsn) after the look: every change that was seen committed at or below it.
	LSN LSN
	// CheckedLSN was read before the look: every change whose commit lies at or below it and had returned to its client
	// before the look began was seen.
	CheckedLSN LSN
	// Snapshot is higher in a look that sees more: neither LSN tells which of two looks that overlap that is. Looks with the same see the same.
	Snapshot uint64
	Tables   []Table // every relation of the publications, by schema and name
	// SearchPath is the database's, "$user" left out, for the shell.
	SearchPath []string
}

// ExportedSnapshot is a slot's starting point. The connection that made it holds it open until it is closed.
type ExportedSnapshot struct {
	Name            string
	ConsistentPoint LSN
}

// Source is the connection to one PostgreSQL database. Its methods may be called by several goroutines at once, but only one
// Stream and one CreateSlot at a time.
type Source struct {
	cfg         Config
	plain       *pgconn.Config
	replication *pgconn.Config
	log         *slog.Logger
	idle        connPool
	copying     copyPool
	slotNotice  time.Duration
	lookTime    time.Duration          // that a look may take
	waiting     atomic.Pointer[string] // for whom CreateSlot waits

	snapshotLock sync.Mutex
	snapshot     *pgconn.PgConn // holds the exported snapshot; nil when there is none
	snapshotEnd  func()         // says that it is closed

	streaming    sync.Mutex // held while Stream runs; guards assembler, whole and streamed
	assembler    *assembler
	whole        bool // after an ErrStreaming
	streamed     bool // a stream has begun
	backlog      *backlog
	staged       atomic.Int64 // of the assembler's memory, as of the last read of the stream
	received     atomic.Uint64
	acknowledged atomic.Uint64
	wake         chan struct{} // an acknowledgement waits to be sent
}

// New checks the configuration, reporting every fault together. It connects to nothing. The caller calls Close.
func New(cfg Config) (*Source, error) {
	if err := cfg.Validate(); err != nil {
		return nil, fmt.Errorf("configuration: %w", err)
	}
	if cfg.StatusInterval == 0 {
		cfg.StatusInterval = defaultStatusInterval
	}
	if cfg.Log == nil {
		cfg.Log = slog.New(slog.DiscardHandler)
	}
	plain, err := parseSource(cfg.Source)
	if err != nil {
		return nil, err
	}
	s := &Source{
		cfg:         cfg,
		plain:       plain,
		replication: replicationConfig(plain, silenceIntervals*cfg.StatusInterval),
		log:         cfg.Log,
		assembler:   newAssembler(cfg.SpillDir, cfg.SpillBytes),
		wake:        make(chan struct{}, 1),
		slotNotice:  defaultSlotNotice,
		lookTime:    defaultLookTime,
	}
	s.backlog = newBacklog(backlogSpills * s.assembler.spillBytes)
	open := func(ctx context.Context) (*pgconn.PgConn, error) { return connect(ctx, s.plain) }
	s.idle = connPool{open: open, most: maxIdle, patience: defaultPingPatience}
	s.copying = copyPool{pool: connPool{open: open, most: maxIdleCopies, patience: defaultPingPatience}}
	return s, nil
}

// Staged is how many bytes of memory transactions take that are open or were handed out and not released. Any goroutine may call it.
func (s *Source) Staged() int64 { return s.staged.Load() + s.backlog.size() }

// Close closes the connections that no call is using, the one that holds an exported snapshot included. A running call
// ends by its context. Close may be called twice, and the Source may be used afterwards.
func (s *Source) Close() {
	s.CloseSnapshot()
	s.idle.close()
}
