package duckdb

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"path/filepath"
	"strconv"
	"sync"

	"github.com/duckdb/duckdb-go/v2/mapping"

	"pgmirror/readstate"
)

// Pinner gives read states: a client of a running mirror, the mirror itself, or the last committed snapshots.
//
// Batch IDs must be unique over the Pinner's life, not only over that of the process behind it: a client that connects to
// another process gives what it serves new IDs. Columns of a batch are cached here by them.
type Pinner interface {
	// Pin returns a state that stays readable until its Release.
	Pin(ctx context.Context, req readstate.PinRequest) (*readstate.State, error)
	// SearchPath names the schemas that unqualified table names are looked up in.
	SearchPath() []string
}

// Config says what a DB reads and what it may use.
type Config struct {
	Source Pinner
	// Request goes with every pin: at which LSN to read, or what to wait for.
	Request readstate.PinRequest
	// ScratchDir is where the DB makes its own directory, removed by Close, or by a later DB there when the process was killed. Empty:
	// the system's for temporary files.
	ScratchDir string
	// Protect is a directory that no statement may name as the place to write a file to. Empty: none.
	Protect string
	// Threads bounds DuckDB's threads; 0 is DuckDB's default, the number of cores.
	Threads int
	// Memory bounds DuckDB's memory, in bytes; 0 is DuckDB's default, 80 % of the machine's.
	Memory int64
	// CacheBytes bounds the memory rows kept in DuckDB's form between statements; 0 is DefaultCacheBytes.
	CacheBytes int64
	// Log may be nil.
	Log *slog.Logger
}

// DefaultCacheBytes holds about a million rows of five columns.
const DefaultCacheBytes = 256 << 20

// bitmapBytes bounds the deletion bitmaps kept between statements: 64 MB are those of 500 million rows.
const bitmapBytes = 64 << 20

// DB is an embedded DuckDB whose views are the mirrored tables. Run and Query take turns; Close waits for neither, so it
// must not be called while one runs.
type DB struct {
	config Config
	db     mapping.Database
	conn   mapping.Connection // the user's
	admin  mapping.Connection // for functions and views

	scratch *scratch
	nothing string // path of a Parquet file without rows

	handles handles
	chunks  *chunkCache
	bitmaps *bitmapCache
	results results

	run     sync.Mutex // held by the statement sequence that uses conn
	session session
}

// Open starts a DuckDB of its own in a new scratch directory and pins a first state to learn the tables. A state that
// cannot be pinned is not an error here: statements that name a mirrored table report it.
func Open(ctx context.Context, config Config) (_ *DB, err error) {
	if config.Source == nil {
		return nil, errors.New("open duckdb: no source of read states")
	}
	config.Request.VectorsLater = true // those of the tables that a statement names come when it is bound
	if config.CacheBytes == 0 {
		config.CacheBytes = DefaultCacheBytes
	}
	if config.Log == nil {
		config.Log = slog.New(slog.DiscardHandler)
	}
	db := &DB{config: config, chunks: newChunkCache(config.CacheBytes), bitmaps: newBitmapCache(bitmapBytes)}
	defer func() {
		if err != nil {
			db.Close()
			err = fmt.Errorf("open duckdb: %w", err)
		}
	}()
	if db.scratch, err = newScratch(config.ScratchDir); err != nil {
		return nil, err
	}
	if err := db.start(); err != nil {
		return nil, err
	}
	if err := db.register(); err != nil {
		return nil, err
	}
	if err := db.writeNothing(ctx); err != nil {
		return nil, err
	}
	if err := db.selfTest(ctx); err != nil {
		return nil, err
	}
	if err := db.defineChanges(); err != nil {
		return nil, err
	}
	if err := db.prepareSession(ctx); err != nil {
		return nil, err
	}
	return db, nil
}

// start opens the instance and both connections. Extensions are never fetched or loaded behind the user's back: the
// answer must not depend on what is installed.
func (db *DB) start() error {
	settings := [][2]string{
		{"duckdb_api", "pgmirror"},
		{"autoinstall_known_extensions", "false"},
		{"autoload_known_extensions", "false"},
		{"temp_directory", filepath.Join(db.scratch.dir, "tmp")},
	}
	if db.config.Threads > 0 {
		settings = append(settings, [2]string{"threads", strconv.Itoa(db.config.Threads)})
	}
	if db.config.Memory > 0 {
		settings = append(settings, [2]string{"memory_limit", strconv.FormatInt(db.config.Memory, 10) + "B"})
	}
	var options mapping.Config
	if mapping.CreateConfig(&options) == mapping.StateError {
		return errors.New("create duckdb configuration")
	}
	defer mapping.DestroyConfig(&options)
	for _, s := range settings {
		if mapping.SetConfig(options, s[0], s[1]) == mapping.StateError {
			return fmt.Errorf("set duckdb option %s", s[0])
		}
	}
	var message string
	if mapping.OpenExt(filepath.Join(db.scratch.dir, "pgmirror.duckdb"), &db.db, options, &message) == mapping.StateError {
		return errors.New(message)
	}
	for _, c := range []*mapping.Connection{&db.conn, &db.admin} {
		if mapping.Connect(db.db, c) == mapping.StateError {
			return errors.New("connect to duckdb")
		}
	}
	return nil
}

// prepareSession sets what the user's connection starts with. main comes first on the search path: it is empty until the
// user creates something, and it is where unqualified CREATE puts it.
func (db *DB) prepareSession(ctx context.Context) error {
	db.session.views = make(map[viewName]shown)
	path := []string{"main"}
	for _, s := range append(db.config.Source.SearchPath(), "public") {
		known := s == "" || s == "$user" || s == "pg_catalog" || s == "information_schema" || s == "temp"
		for _, p := range path {
			known = known || lower(p) == lower(s)
		}
		if !known {
			path = append(path, s)
		}
	}
	quoted := ""
	for i, s := range path {
		if err := db.adminExec("CREATE SCHEMA IF NOT EXISTS " + ident(s)); err != nil {
			return err
		}
		if i > 0 {
			quoted += ","
		}
		quoted += ident(s)
	}
	for _, sql := range []string{
		"SET GLOBAL parquet_metadata_cache = true",
		"SET TimeZone = 'UTC'",
		"SET search_path = " + literal(quoted),
	} {
		if err := db.exec(ctx, sql); err != nil {
			return err
		}
	}
	db.run.Lock()
	defer db.run.Unlock()
	defer db.endScope()
	request := db.config.Request
	request.WaitLSN, request.WaitSource = 0, false // statements wait, not the list of tables
	return db.begin(ctx, request)
}

// Run executes the statements of a script in order on the DB's one connection and writes each result set to out. It stops
// at the first error, which carries DuckDB's own text, or when ctx ends. A transaction left open stays open, with its
// state, for the next Run.
func (db *DB) Run(ctx context.Context, script string, out io.Writer, format Format) error {
	return db.each(ctx, script, func(r *result) error { return db.write(ctx, r, out, format) })
}

// Query executes a script and returns the last result set as text, all of it in memory; without one, empty Rows.
func (db *DB) Query(ctx context.Context, script string) (*Rows, error) {
	var last *Rows
	err := db.each(ctx, script, func(r *result) error {
		rows, err := db.collect(ctx, r)
		if err == nil {
			last = rows
		}
		return err
	})
	if err != nil {
		return nil, err
	}
	if last == nil {
		last = &Rows{}
	}
	return last, nil
}

// Close gives up every state and removes the scratch directory. It may be called twice.
func (db *DB) Close() error {
	db.endScope()
	db.unpin()
	mapping.Disconnect(&db.conn)
	mapping.Disconnect(&db.admin)
	mapping.Close(&db.db)
	db.chunks.clear()
	if err := db.scratch.close(); err != nil {
		return fmt.Errorf("close duckdb: %w", err)
	}
	return nil
}
