// Command pgmirror joins the parts: it reads flags, environment and config file, starts the mirror, and talks to a running one.
//
//	pgmirror run ──▶ pgcdc.Source ──▶ mirror.Mirror ──▶ iceberg.Warehouse     (join.go builds this row)
//	                                   │
//	         HTTP listener ◀───────────┤  /healthz /readyz /metrics /
//	         pgmirror.sock ◀───────────┘  readstate.Server
//	              ▲
//	pgmirror sql, status, checkpoint, verify, inspect: other processes, over the socket
//
// Only this package reads flags, files of settings and the environment; the packages get a checked Config. A setting is one
// entry of the table in settings.go, so that flag, variable and file key cannot drift apart.
//
// Goroutines: run starts the engine, the socket's server and the HTTP server in one errgroup and returns when all have ended;
// main watches the signals. The other commands are sequential; the shell's line editor (shell.go) reads keys on a goroutine
// of its own, which ends with the line.
//
// What survives a crash is the data directory (datadir.go). It never holds a source URL or a password. The lock on its lock
// file belongs to the process and ends with it.
package main
