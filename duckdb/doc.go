// Package duckdb runs SQL over read states in an embedded DuckDB. It is the only package that uses cgo.
//
//	Run(script) ─▶ statement ─▶ scope: one pinned readstate.State
//	                  │ bind        │
//	                  ▼             ▼
//	    view "public"."orders" = FROM query(pgmirror_sql('public.orders', txid_current()))
//	                  │ text of the union read, with a handle on the table in this state
//	                  ▼
//	    read_parquet([files without deleted rows])
//	    UNION ALL read_parquet([files with some]) WHERE pgmirror_live(handle, file_index, file_row_number)
//	    UNION ALL pgmirror_memory(handle)
//
// One snapshot. A DB has one connection for its user. Before each statement outside a transaction the DB pins a new
// state and gives up the one before; from BEGIN to COMMIT or ROLLBACK it keeps the state pinned for the first statement
// inside, and from Pin to Unpin all statements read one. All tables a statement names are bound against that state. The transaction id in the view's text names the
// statement for hosts that do not see statement borders; it is not used as a key here, because DuckDB counts it in each
// attached database on its own, so that after USE the same id comes again.
//
// Who holds a state. A pinned state is counted. The scope holds it, until its statement or transaction has ended, and so does
// every bound plan with more in it than files: the bind data of pgmirror_memory and pgmirror_live is destroyed with its plan.
// A statement of PREPARE keeps none: DuckDB binds it anew for each EXECUTE, which therefore shows the state of its own time.
//
// What costs nothing. Parts over no rows are left out of the text. Deletion vectors cross the socket when a statement names their
// table. SELECT count(*) FROM a table gets the number of rows from the state (countQuestion).
//
// Where memory rows live. Arrow arrays are on the Go heap, and DuckDB's vectors outlive the call that fills them, so
// they must not point there. Each projected column of a batch is copied once, into vectors that DuckDB allocates itself,
// and kept in a bounded cache by batch and field (chunkCache). Rows of a batch never change, so what is cached of an
// open batch serves every later state as a prefix. From the cache on a scan moves no bytes: output vectors refer to the
// cached ones, with a selection when rows are deleted. Arrow's own way in, RegisterView, gives wrong results and is not
// used.
//
// Goroutines. The package starts none, but for one that passes a context's cancellation on to DuckDB and ends with the
// statement. DuckDB's own threads call pgmirror_live and pgmirror_memory; what these touch (the handle table, the cache)
// has its own locks. Nothing here survives a crash or Close: the scratch directory is removed.
package duckdb
