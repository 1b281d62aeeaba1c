package mirror

import (
	"errors"
	"fmt"
	"log/slog"
	"time"
)

// Config is the engine's. The zero value of a field means its documented default.
type Config struct {
	Version      string // of pgmirror, for snapshots and status
	Slot         string
	Publications []string
	Database     string // for messages
	// IndexDir keeps the FileIndexes.
	IndexDir string

	// BatchRows is the row count at which a memory batch is sealed. Default 8,192.
	BatchRows int
	// FlushWorkers is the number of goroutines that write files. Default 2.
	FlushWorkers int
	// CopyWorkers is the number of connections that the initial copy reads over at once, each a range of a table. Default 4.
	CopyWorkers int
	// Memory bounds the bytes of memory batches, visibility and rows being copied (memory.go): from half of the batches' room on, the largest tables
	// are flushed; at all of it, changes wait. Default 1 GiB.
	Memory int64
	// Staged, if not nil, is how many bytes transactions take that are open or wait to be applied, for status. Any goroutine may call it.
	Staged func() int64
	// CheckpointInterval is the longest time a change stays in memory only. Default 30 s.
	CheckpointInterval time.Duration
	// History keeps the past of this length readable by LSN. Default 0.
	History time.Duration
	// CatalogPoll is the time between two looks at the source's catalogue. Default 2 s.
	CatalogPoll time.Duration
	// FoldInterval is the time between two foldings of deletions that every reader sees. Default 60 s.
	FoldInterval time.Duration
	// FileRows is the row count at which the initial copy begins a new file. Default 4,000,000, less where the FileIndexes that all copy workers
	// make of such files, in memory, would take more than a quarter of Memory.
	FileRows int64
	// Grace is how long a file that no retained snapshot names any more stays on the disk, for readers that opened an older one. 0 is not at all.
	Grace time.Duration
	// Disk pauses what takes more in while the disk is short of space. Nil never does.
	Disk *Disk
	// MaxSlotWAL is how many bytes of WAL the slot may keep on the source before OnMaxSlotWAL is done; from half of it on, checkpoints are
	// made early. Default 0: any number.
	MaxSlotWAL int64
	// DropSlot drops the slot at MaxSlotWAL, as a last resort for the source; otherwise that is only told.
	DropSlot bool
	// Compact is when files are made fewer.
	Compact Compaction
	// NullUnrepresentable stores NULL for a value that the mirror's type cannot hold, and counts it. Otherwise the table fails.
	NullUnrepresentable bool

	Log *slog.Logger
	// Effect, for tests, is called at each named step (EffectNames): "file index" and "acknowledge" come before what they
	// name, the others after it. Its error ends the work there as a crash would. Several goroutines may call it at once.
	Effect func(name string) error
}

// EffectNames are the steps that Config.Effect may see.
var EffectNames = []string{"batch sealed", "file index", "version installed", "acknowledge", "acknowledged", "join begun", "table joined"}

// Validate reports every fault and sets the defaults.
func (c *Config) Validate() error {
	var faults []error
	fault := func(format string, args ...any) { faults = append(faults, fmt.Errorf(format, args...)) }
	if c.Slot == "" {
		fault("slot: no name")
	}
	if len(c.Publications) == 0 {
		fault("publication: none given")
	}
	if c.IndexDir == "" {
		fault("index directory: none given")
	}
	positive := func(name string, v *int, byDefault, most int) {
		if *v == 0 {
			*v = byDefault
		}
		if *v < 1 || *v > most {
			fault("%s: %d is not between 1 and %d", name, *v, most)
		}
	}
	positive("batch_rows", &c.BatchRows, 8192, 1<<20)
	positive("flush_workers", &c.FlushWorkers, 2, 256)
	positive("copy_workers", &c.CopyWorkers, 4, 64)
	if c.Memory == 0 {
		c.Memory = 1 << 30
	}
	if c.Memory < 1<<20 {
		fault("memory: %d bytes is less than 1 MiB", c.Memory)
	}
	if c.MaxSlotWAL < 0 || c.DropSlot && c.MaxSlotWAL == 0 {
		fault("max_slot_wal: %d bytes are no limit to drop the slot at", c.MaxSlotWAL)
	}
	if err := c.Compact.validate(); err != nil {
		faults = append(faults, err)
	}
	if c.FileRows == 0 {
		c.FileRows = min(4_000_000, max(250_000, c.Memory/4/int64(max(1, c.CopyWorkers))/buildBytes))
	}
	duration := func(name string, v *time.Duration, byDefault, least time.Duration) {
		if *v == 0 {
			*v = byDefault
		}
		if *v < least {
			fault("%s: %s is less than %s", name, *v, least)
		}
	}
	duration("checkpoint_interval", &c.CheckpointInterval, 30*time.Second, 100*time.Millisecond)
	duration("catalog_poll", &c.CatalogPoll, 2*time.Second, 10*time.Millisecond)
	duration("fold_interval", &c.FoldInterval, time.Minute, 10*time.Millisecond)
	duration("history", &c.History, 0, 0)
	duration("grace", &c.Grace, 0, 0)
	if c.Log == nil {
		c.Log = slog.New(slog.DiscardHandler)
	}
	if c.Effect == nil {
		c.Effect = func(string) error { return nil }
	}
	return errors.Join(faults...)
}
