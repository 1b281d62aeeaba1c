package pgcdc

import (
	"log/slog"
	"time"
)

// Config says what to mirror and how to reach it. Only Source, Publications and Slot are required.
type Config struct {
	// Source is a libpq URL or keyword string; what it leaves out comes from PG* variables, the service file and .pgpass.
	Source       string
	Publications []string
	Slot         string
	// SpillDir holds the changes of large open transactions; it is emptied at each connect.
	SpillDir string
	// SpillBytes is the size from which an open transaction's changes go to SpillDir. Default 64 MiB.
	SpillBytes int64
	// StatusInterval is the longest silence towards the server. Default: a third of wal_sender_timeout, at most 10 s.
	StatusInterval time.Duration
	// PartialPublish accepts publications that leave out an operation.
	PartialPublish bool
	Log            *slog.Logger
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
}

// Catalog is one look at the source's catalogue.
type Catalog struct {
	// LSN was read (pg_current_wal_insert_lsn) after the look: every change committed below it was seen.
	LSN    LSN
	Tables []Table // every relation of the publications, by schema and name
	// SearchPath is the database's, "$user" left out, for the shell.
	SearchPath []string
}

// ExportedSnapshot is a slot's starting point. The connection that made it holds it open until it is closed.
type ExportedSnapshot struct {
	Name            string
	ConsistentPoint LSN
}
