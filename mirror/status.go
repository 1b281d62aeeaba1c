package mirror

// Status is the document of `pgmirror status --json`. Field names are stable; docs/formats/status.md has each of them.
type Status struct {
	State  string `json:"state"` // starting, copying, streaming, paused, reconnecting, refused; of a mirror that is not running, stopped
	Reason string `json:"reason,omitempty"`

	Version      string   `json:"version"`
	Slot         string   `json:"slot"`
	Publications []string `json:"publications"`
	// OnUnrepresentable is the setting: fail, null. Empty when the mirror is not running.
	OnUnrepresentable string `json:"on_unrepresentable,omitempty"`
	SystemID          string `json:"system_id"`
	Timeline          int32  `json:"timeline"`

	ReceivedLSN     string `json:"received_lsn"`
	AppliedLSN      string `json:"applied_lsn"`
	VisibleLSN      string `json:"visible_lsn"`
	DurableLSN      string `json:"durable_lsn"`
	AcknowledgedLSN string `json:"acknowledged_lsn"`
	CatalogLSN      string `json:"catalog_lsn"`
	WindowFloorLSN  string `json:"window_floor_lsn"`
	WindowFloorTime string `json:"window_floor_time,omitempty"` // RFC 3339, the first that sql --at may name

	SourceLSN  string  `json:"source_lsn"`  // end of the source's WAL, as last heard
	LagBytes   int64   `json:"lag_bytes"`   // from VisibleLSN to SourceLSN
	LagSeconds float64 `json:"lag_seconds"` // queries see the source as it was that long ago

	LastCommitTime    string  `json:"last_commit_time,omitempty"` // RFC 3339, of the newest visible commit
	FreshnessSeconds  float64 `json:"freshness_seconds"`          // commit on the source to visible here, newest commit
	SlotRetainedBytes int64   `json:"slot_retained_bytes"`        // WAL that the source keeps for the slot
	SlotWALStatus     string  `json:"slot_wal_status,omitempty"`  // reserved, extended, unreserved, lost
	SlotLimitBytes    int64   `json:"slot_limit_bytes,omitempty"` // the setting max_slot_wal
	SlotWarning       string  `json:"slot_warning,omitempty"`     // why it keeps more, and what to do
	LastCheckpoint    string  `json:"last_checkpoint,omitempty"`  // RFC 3339
	CheckpointSeconds float64 `json:"checkpoint_seconds"`         // how long the last one took
	Readers           int     `json:"readers"`                    // open read states
	// Of these, the settled ones: what they see is in files of so many bytes. EndedReaders counts those that held too much and were ended, since the start.
	SettledReaders int   `json:"settled_readers"`
	SettledBytes   int64 `json:"settled_bytes"`
	EndedReaders   int64 `json:"ended_readers"`

	WaitingFiles int `json:"waiting_files"` // of the warehouse: no snapshot names them any more, but the grace period or a reader keeps them
	// DiskFree and DiskLeast are free bytes of the data directory's disk, and how many must stay so: below that the mirror is paused.
	DiskFree  int64 `json:"disk_free_bytes"`
	DiskLeast int64 `json:"disk_least_bytes"`

	Memory  MemoryStatus  `json:"memory"`
	Written WrittenStatus `json:"written"`
	Tables  []TableStatus `json:"tables"`
}

// MemoryStatus is resident memory by kind, in bytes.
type MemoryStatus struct {
	Batches    int64 `json:"batches_bytes"`
	MemIndex   int64 `json:"mem_index_bytes"`
	FileIndex  int64 `json:"file_index_bytes"` // mapped
	Visibility int64 `json:"visibility_bytes"`
	Times      int64 `json:"commit_times_bytes"` // of the window
	Pinned     int64 `json:"pinned_bytes"`       // batches that are in files, but read states see them still, and the vectors of read states
	Copies     int64 `json:"copy_bytes"`         // rows that copies have read and not written
	Staged     int64 `json:"staged_bytes"`       // transactions that are open or wait to be applied
	Limit      int64 `json:"limit_bytes"`
}

// TableStatus is one table's part of Status.
type TableStatus struct {
	Name       string `json:"name"`  // schema.table
	State      string `json:"state"` // streaming, copying, resyncing, failed, gone
	InsertOnly bool   `json:"insert_only,omitempty"`
	// Types are columns with the form that the configuration gives them.
	Types    map[string]string `json:"types,omitempty"`
	Error    string            `json:"error,omitempty"`
	ErrorLSN string            `json:"error_lsn,omitempty"`
	ErrorKey string            `json:"error_key,omitempty"`
	ErrorCol string            `json:"error_column,omitempty"`
	Remedy   string            `json:"remedy,omitempty"`

	Rows            int64  `json:"rows"` // live
	Files           int    `json:"files"`
	Vectors         int    `json:"vectors"` // files with a committed deletion vector
	Bytes           int64  `json:"bytes"`   // of its files
	MemoryRows      int64  `json:"memory_rows"`
	MemoryBytes     int64  `json:"memory_bytes"`
	DeletedRows     int64  `json:"deleted_rows"`              // dead rows still in files and batches
	Unrepresentable int64  `json:"unrepresentable,omitempty"` // values stored as NULL by on_unrepresentable: null
	DurableLSN      string `json:"durable_lsn"`
	CopiedRows      int64  `json:"copied_rows,omitempty"`
	Resync          string `json:"resync,omitempty"`       // why the table is to be copied, while it is copying or resyncing
	ResyncWaits     string `json:"resync_waits,omitempty"` // why the copy has not begun or begins again
}
