package interop

import (
	"fmt"
	"strings"
	"testing"

	"pgmirror/pgcdc"
	"pgmirror/test/harness"
)

// javaTypes are the columns of Writer.java, but for the hidden one, as a PostgreSQL that is mirrored has them.
var javaTypes = []struct {
	name, sqlType string
	kind          pgcdc.Type
}{
	{"id", "bigint", pgcdc.Type{Kind: pgcdc.KindInt8}},
	{"truth", "boolean", pgcdc.Type{Kind: pgcdc.KindBool}},
	{"small", "integer", pgcdc.Type{Kind: pgcdc.KindInt4}},
	{"single", "real", pgcdc.Type{Kind: pgcdc.KindFloat4}},
	{"double", "double precision", pgcdc.Type{Kind: pgcdc.KindFloat8}},
	{"money", "numeric(38,10)", pgcdc.Type{Kind: pgcdc.KindDecimal, Precision: 38, Scale: 10}},
	{"text", "text", pgcdc.Type{Kind: pgcdc.KindText}},
	{"bytes", "bytea", pgcdc.Type{Kind: pgcdc.KindBytea}},
	{"uuid", "uuid", pgcdc.Type{Kind: pgcdc.KindUUID}},
	{"day", "date", pgcdc.Type{Kind: pgcdc.KindDate}},
	{"clock", "time", pgcdc.Type{Kind: pgcdc.KindTime}},
	{"moment", "timestamp", pgcdc.Type{Kind: pgcdc.KindTimestamp}},
	{"instant", "timestamptz", pgcdc.Type{Kind: pgcdc.KindTimestampTZ}},
	{"texts", "text[]", pgcdc.Type{Kind: pgcdc.KindList, Elem: &pgcdc.Type{Kind: pgcdc.KindText}}},
}

// read is javaTypes as a Digester takes them.
func read() []Column {
	columns := make([]Column, len(javaTypes))
	for i, c := range javaTypes {
		columns[i] = Column{harness.Ident(c.name), &c.kind}
	}
	return columns
}

// PostgreSQL gives the rows of Writer.java in the same text as the readers do, infinities and BC dates included.
func TestPostgresText(t *testing.T) {
	var definitions, expressions []string
	for _, c := range javaTypes {
		definitions = append(definitions, harness.Ident(c.name)+" "+c.sqlType)
		expressions = append(expressions, PostgresText(harness.Ident(c.name), &c.kind))
	}
	session := harness.StartPostgres(t).Open("postgres", "postgres")
	if err := session.Exec(
		"SET timezone = 'UTC'",
		fmt.Sprintf("CREATE TABLE t (%s)", strings.Join(definitions, ", ")),
		`INSERT INTO t VALUES
		(1, true, -2147483648, '-0', 0.1, -1234567890123456789012345678.0123456789, 'it''s', '', '00000000-0000-0000-ffff-ffffffffffff',
			'infinity', '23:59:59.999999', 'infinity', '-infinity', ARRAY['a''b', NULL, '']),
		(2, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL, NULL),
		(3, false, 0, 'NaN', '-Infinity', 0, '', '\x00ff', '00000000-0000-0002-ffff-fffffffffffd', '-infinity', '00:00', '-infinity',
			'infinity', '{}'),
		(4, true, 7, '1e-45', '1.7976931348623157e308', 12.5, 'żółw 🐢', '\x00', '00000000-0000-0001-ffff-fffffffffffe', '4714-11-24 BC',
			'00:00:00.000001', '4714-11-24 BC', '1969-12-31 23:59:59.999999+00', ARRAY['x'])`,
	); err != nil {
		t.Fatal(err)
	}
	answer, err := session.Query(fmt.Sprintf("SELECT %s FROM t", strings.Join(expressions, ", ")))
	if err != nil {
		t.Fatal(err)
	}
	var want, got []Row
	for _, row := range javaRows {
		want = append(want, row[:len(javaTypes)])
	}
	for _, row := range answer {
		got = append(got, row)
	}
	if d := Diff(want, got); d != "" {
		t.Error(d)
	}
	digest, err := session.Query("SELECT " + PostgresDigest("t", read()))
	if err != nil {
		t.Fatal(err)
	}
	if digest[0][0] != DigestOf(want) {
		t.Errorf("PostgreSQL's digest is %s, want %s", digest[0][0], DigestOf(want))
	}
}
