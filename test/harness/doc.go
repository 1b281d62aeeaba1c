// Package harness starts the things that tests and the demo need around pgmirror.
//
//	StartPostgres(t) ─▶ Start(dir) ─▶ initdb template ─cp─▶ dir/data ─▶ postgres on 127.0.0.1:port and dir/.s.PGSQL.port
//
// A Postgres is one throw-away cluster: trust authentication, wal_level=logical, fsync off unless a setting says otherwise. The
// server is a child of this process and ends with it. Its data directory stays until Remove (StartPostgres removes it at
// the end of the test), so a test may stop, kill and start it, or put an older copy of its data directory in its place.
//
// A Replica shows what a cluster held at any LSN, by PostgreSQL's own recovery: the template, and the cluster's WAL up to there.
//
//	template ─cp─▶ hot standby ◀─ segments, zeroed from the LSN on ─ the cluster's pg_wal
//
// A Process is any other program that ends with us, such as pgmirror itself.
//
// PostgreSQL refuses to run as root; then the server runs as the user PGMIRROR_PG_USER, by default postgres. Its programs
// are looked for in PGMIRROR_PG_BIN, /usr/lib/postgresql/*/bin (the highest version) and PATH.
package harness
