// Program bench measures pgmirror beside something that bounds it, in the same run, and writes one table of ratios.
//
//	drain      backlog: pgmirror run                │ pg_recvlogical to /dev/null, same options
//	steady     writers at full speed, followed      │ pg_recvlogical, the same way
//	copy       first copy to Parquet and FileIndex  │ COPY … (FORMAT binary) to nothing, as many connections
//	freshness  commit ─▶ a DuckDB answer            │ commit ─▶ received by a bare replication connection
//	ablation   answers without part of the memory   │ answers with all of it
//	union      views of pgmirror sql                │ read_parquet of the same live rows
//	replay     captured stream ─▶ the real engine   │ the same bytes, decoded only; CPU at several rates
//	components each structure alone                 │ what the Retina paper reports of its own
//
// and with -part paper another table, of what else the paper measures:
//
//	dead       files of which a vector hides rows   │ files without these rows; the same files without the vector
//	queries    HyBench's analytical questions: with vectors, after a delta, under load │ without, before, without
//	combine    compaction of many small files       │ DuckDB's COPY of them to one
//	stale      bytes of dead rows and vectors under a steady load │ those of live rows; visibility's size in memory
//	sweeps     other batches, foldings, tiles       │ the defaults
//
// and with -part size a third:
//
//	size       a table of 100 million rows: memory, what an update writes, drain, restarts │ a table of a hundredth; pg_recvlogical; a clean restart
//
// Both sides of a ratio alternate (A B A B …, or A B B A …) and the medians are compared, so that what else the machine does falls on
// both. Every section that wrote something through a mirror ends with pgmirror's own verify; a difference fails the run.
//
// The cluster is a throw-away one with fsync off: it is the source's durability, not the mirror's, that is given up.
// pgmirror runs as a process of its own, as a role with LOGIN, REPLICATION and SELECT.
//
// The streams are those of two write mixes of our own driver, HyBench and CH-benCHmark; each says how many rows it changes, and
// as many must be in what was captured.
//
// Benchmarks of single structures stand beside the code; components runs some of them, and compare.sh compares two revisions.
//
// bench soak is another program in the same clothes: the mixes write for hours, clients read, and what grows is looked for (soak.go). Each
// of the four has its part of docs/benchmarks.md.
package main
