// Program bench measures pgmirror beside something that bounds it, in the same run, and writes one table of ratios.
//
//	drain      backlog: pgmirror run                │ pg_recvlogical to /dev/null, same options
//	copy       first copy to Parquet and FileIndex  │ COPY … (FORMAT binary) to nothing, as many connections
//	freshness  commit ─▶ a DuckDB answer            │ commit ─▶ received by a bare replication connection
//	union      views of pgmirror sql                │ read_parquet of the same live rows
//	replay     captured stream ─▶ the real engine   │ the same bytes, decoded only
//	sizes      bits and bytes a row, restart        │ the raw keys, a second start
//
// Both sides of a ratio alternate (A B A B …) and the medians are compared, so that what else the machine does falls on
// both. Every section that wrote something through a mirror ends with pgmirror's own verify; a difference fails the run.
//
// The cluster is a throw-away one with fsync off: it is the source's durability, not the mirror's, that is given up.
// pgmirror runs as a process of its own, as a role with LOGIN, REPLICATION and SELECT.
//
// Component benchmarks are not here: they stand beside the code, for go test -bench and benchstat.
package main
