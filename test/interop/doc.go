// Package interop reads the warehouse the way strangers do: with PyIceberg, DuckDB's iceberg extension, Iceberg's Java
// library and iceberg-go, none of which knows pgmirror. The end-to-end tests hold each committed snapshot against
// PostgreSQL with it.
//
//	Readers ─ JSON lines ─▶ reader.py    ─▶ PyIceberg (through the SQLite catalog)
//	   │                          └───────▶ DuckDB's iceberg_scan (metadata file, snapshot_from_id)
//	   ├──── JSON lines ─▶ Reader.java  ─▶ Iceberg Java (through its JdbcCatalog)
//	   └──── in process ──────────────────▶ iceberg-go (metadata file)
//
// A Readers starts one Python and one Java process, which answer one request after another until Close. The scripts in
// test/setup install what they need, pinned, under .cache.
//
// Every reader gives values in one textual form, so that rows compare as strings. PostgresText is the same form as SQL.
//
//	NULL                    null
//	boolean                 true, false
//	int, long               -12
//	float, double           the IEEE 754 bits: 0x80000000 is -0; every NaN is nan
//	decimal(p,s)            digits with exactly s decimals: -12.50
//	string                  'it''s'
//	binary                  \x00ff
//	uuid                    lower case, 8-4-4-4-12
//	date                    days since 1970-01-01; ±2147483647 is ±infinity
//	time                    microseconds since midnight
//	timestamp, timestamptz  microseconds since 1970-01-01 (UTC); ±9223372036854775807 is ±infinity
//	list                    ['a',null]
package interop
