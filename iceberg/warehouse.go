package iceberg

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"path/filepath"
	"sync"
	"sync/atomic"
	"time"

	"github.com/google/uuid"
)

// Config says where a warehouse is and how it is kept.
type Config struct {
	// Dir is the data directory, absolute: catalog.db and warehouse/ are in it.
	Dir string
	// Files is the file system of warehouse/; nil is OS. catalog.db is SQLite's own business.
	Files FileSystem
	Log   *slog.Logger // nil is silent
	// Effect, for tests, is called before each named effect (EffectNames); "sqlite committed" comes after the commit. Its
	// error ends the work there as a crash would: nothing is cleaned up. Several goroutines may call it at once.
	Effect func(name string) error
	// RowGroupBytes bounds the values of a row group that a Writer keeps in memory, uncompressed; 0 is 256 MiB. RowGroupRows bounds it too.
	RowGroupBytes int64
	// KeepSnapshots is how many checkpoints stay readable, the newest included (expire.go); 0 is 100, less is all of them.
	KeepSnapshots int
	// KeepAge is how old a checkpoint may become that stays readable; the newest always does. 0 is no bound.
	KeepAge time.Duration
	// Now tells the time; nil is time.Now.
	Now func() time.Time
	// TableErr, used by OpenReadOnly, says why a table must not be read at an LSN (Newest: at whatever is newest), or "". mirror
	// is the stored document.
	TableErr func(mirror []byte, name TableName, at LSN) string
	// SearchPath, used by OpenReadOnly, finds the source's search path in the stored document.
	SearchPath func(mirror []byte) []string
}

// Newest stands for the newest LSN where none was asked for.
const Newest = LSN(1<<64 - 1)

// EffectNames are the steps that Config.Effect may see.
var EffectNames = []string{"parquet written", "parquet synced", "puffin written", "metadata written", "sqlite commit",
	"sqlite committed", "version hint", "file deleted", "expiry metadata", "expiry commit", "expiry committed", "orphan deleted"}

const defaultKeepSnapshots = 100

// Warehouse is an open warehouse. Load comes first, once; then NewWriter, OpenData, DeleteUnreachable and Hold may be called by any
// goroutine. Commits, Expire and RemoveOrphans exclude each other.
type Warehouse struct {
	config  Config
	root    string // Dir/warehouse
	files   FileSystem
	log     *slog.Logger
	catalog *catalog

	mu      sync.Mutex // one Commit, Expire or RemoveOrphans at a time
	loaded  bool
	broken  error            // a commit's outcome is unknown: nothing more is committed in this life
	lsn     LSN              // cut of the last commit
	history []checkpointMark // the checkpoints that may still be readable, oldest first

	current sync.RWMutex      // guards the maps' reads outside mu; held for moments only
	tables  map[string]*table // by uuid
	names   map[TableName]*table
	places  map[string]*table  // by directory
	faulty  map[string]pointer // by uuid: tables that Load found damaged, until they are dropped; guarded like tables
	refused map[string]bool    // by uuid: tables that another writer has changed and to which nothing is committed any more; guarded by mu

	holds map[*hold]bool // guarded like tables

	dirs    sync.Map // directories known to exist durably
	pending sync.Map // data files of this life that no commit took yet

	vectorBytes, metadataBytes atomic.Int64 // written
}

// Written is how many bytes of deletion vectors (Puffin files), and of metadata files, manifests and their lists, were written in this life, by commits
// that failed too. Any goroutine may call it.
func (w *Warehouse) Written() (vectors, metadata int64) {
	return w.vectorBytes.Load(), w.metadataBytes.Load()
}

// Open opens the catalog of a data directory and makes it if there is none.
func Open(ctx context.Context, config Config) (*Warehouse, error) {
	if err := checkDir(config.Dir); err != nil {
		return nil, err
	}
	if config.Files == nil {
		config.Files = OS
	}
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	if config.KeepSnapshots == 0 {
		config.KeepSnapshots = defaultKeepSnapshots
	}
	if config.RowGroupBytes == 0 {
		config.RowGroupBytes = rowGroupBytes
	}
	if config.Now == nil {
		config.Now = time.Now
	}
	w := &Warehouse{config: config, root: filepath.Join(config.Dir, "warehouse"), files: config.Files, log: config.Log,
		tables: map[string]*table{}, names: map[TableName]*table{}, places: map[string]*table{}, faulty: map[string]pointer{}, refused: map[string]bool{}, holds: map[*hold]bool{}}
	if err := w.ensureDir(w.root); err != nil {
		return nil, err
	}
	var err error
	if w.catalog, err = openCatalog(ctx, filepath.Join(config.Dir, "catalog.db")); err != nil {
		return nil, err
	}
	return w, nil
}

// Close closes the catalog. Open Writers and Readers are their owners' to close.
func (w *Warehouse) Close() error { return w.catalog.close() }

// effect runs the test hook of a named step.
func (w *Warehouse) effect(name string) error {
	if w.config.Effect == nil {
		return nil
	}
	if err := w.config.Effect(name); err != nil {
		return &effectError{name, err}
	}
	return nil
}

// effectError marks an error that stands for a crash.
type effectError struct {
	name string
	err  error
}

func (e *effectError) Error() string { return fmt.Sprintf("at effect %q: %v", e.name, e.err) }
func (e *effectError) Unwrap() error { return e.err }

func isEffect(err error) bool {
	var e *effectError
	return errors.As(err, &e)
}

// ensureDir makes a directory below the data directory, durably: the entry of each new level is synced in its parent.
func (w *Warehouse) ensureDir(dir string) error {
	if _, known := w.dirs.Load(dir); known {
		return nil
	}
	if dir == w.root {
		if err := w.files.MkdirAll(dir); err != nil {
			return fmt.Errorf("make directory %s: %w", dir, err)
		}
	} else {
		if err := w.ensureDir(filepath.Dir(dir)); err != nil {
			return err
		}
		if err := w.files.MkdirAll(dir); err != nil {
			return fmt.Errorf("make directory %s: %w", dir, err)
		}
	}
	if err := w.files.SyncDir(filepath.Dir(dir)); err != nil {
		return fmt.Errorf("sync directory %s: %w", filepath.Dir(dir), err)
	}
	w.dirs.Store(dir, true)
	return nil
}

// writeFile writes and syncs one small file. The caller syncs the directory.
func (w *Warehouse) writeFile(path string, data []byte) error {
	f, err := w.files.Create(path)
	if err != nil {
		return fmt.Errorf("create %s: %w", path, err)
	}
	_, err = f.Write(data)
	if err == nil {
		err = f.Sync()
	}
	if err := errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write %s: %w", path, err)
	}
	if filepath.Ext(path) == ".puffin" {
		w.vectorBytes.Add(int64(len(data)))
	} else {
		w.metadataBytes.Add(int64(len(data)))
	}
	return nil
}

// setTable makes t the current version of its table.
func (w *Warehouse) setTable(t *table) {
	w.current.Lock()
	defer w.current.Unlock()
	w.tables[t.uuid], w.names[t.name], w.places[t.dir] = t, t, t
}

func (w *Warehouse) forgetTable(t *table) {
	w.current.Lock()
	defer w.current.Unlock()
	delete(w.tables, t.uuid)
	delete(w.names, t.name)
	delete(w.places, t.dir)
	for _, dir := range []string{t.dir, t.dataDir(), t.metadataDir()} {
		w.dirs.Delete(dir) // known for as long as it is somebody's
	}
}

func (w *Warehouse) forgetFaulty(uuid string) {
	w.current.Lock()
	defer w.current.Unlock()
	delete(w.faulty, uuid)
}

func (w *Warehouse) syncDir(dir string) error {
	if err := w.files.SyncDir(dir); err != nil {
		return fmt.Errorf("sync directory %s: %w", dir, err)
	}
	return nil
}

// newID returns a name that was never used and never will be. Readers cache files by path.
func newID() string { return uuid.NewString() }
