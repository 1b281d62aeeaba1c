package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"github.com/jackc/pgx/v5"

	"pgmirror/pgcdc"
	"pgmirror/test/harness"
	"pgmirror/test/interop"
)

// compareIceberg lets iceberg-go read the current snapshot of every table, and holds the rows against PostgreSQL's. Nothing is written meanwhile.
func (s *soak) compareIceberg(ctx context.Context) error {
	tables, err := interop.Tables(s.mirror.Load().data)
	if err != nil {
		return err
	}
	conn, err := pgx.Connect(ctx, s.pg.URL("postgres", "postgres"))
	if err != nil {
		return err
	}
	defer conn.Close(ctx)
	if _, err := conn.Exec(ctx, "SET TimeZone = 'UTC'; SET extra_float_digits = 3"); err != nil { // as PostgresText wants it
		return err
	}
	for _, t := range tables {
		columns, err := columnsOf(s.pg, t)
		if err != nil {
			return err
		}
		snapshots, err := t.Snapshots()
		if err != nil {
			return err
		}
		name := t.Namespace + "." + t.Name
		if len(snapshots) == 0 {
			return fmt.Errorf("%s has no snapshot", name)
		}
		var want string
		if err := conn.QueryRow(ctx, "SELECT "+interop.PostgresDigest(harness.Ident(t.Namespace)+"."+harness.Ident(t.Name), columns)).Scan(&want); err != nil {
			return err
		}
		got, err := interop.IcebergGo.Digests(t, []int64{snapshots[len(snapshots)-1].ID}, columns)
		if err != nil {
			return fmt.Errorf("iceberg-go reads %s: %w", name, err)
		}
		if got[0] != want {
			return fmt.Errorf("%w: iceberg-go and PostgreSQL have different rows of %s", errWrong, name)
		}
	}
	s.say("iceberg-go reads all %d tables as they are in PostgreSQL", len(tables))
	return nil
}

// kindsOfMixes are the types that the mixes' columns have.
var kindsOfMixes = map[string]pgcdc.Kind{"integer": pgcdc.KindInt4, "bigint": pgcdc.KindInt8, "real": pgcdc.KindFloat4, "character": pgcdc.KindText,
	"character varying": pgcdc.KindText, "date": pgcdc.KindDate, "timestamp without time zone": pgcdc.KindTimestamp, "timestamp with time zone": pgcdc.KindTimestampTZ,
	"numeric": pgcdc.KindDecimal}

// columnsOf lists a table's columns as the source has them.
func columnsOf(pg *harness.Postgres, t interop.Table) ([]interop.Column, error) {
	rows, err := pg.Query(fmt.Sprintf(`SELECT column_name, data_type, coalesce(numeric_precision, 0), coalesce(numeric_scale, 0) FROM information_schema.columns
		WHERE table_schema = '%s' AND table_name = '%s' ORDER BY ordinal_position`, t.Namespace, t.Name))
	if err != nil {
		return nil, err
	}
	var columns []interop.Column
	for _, row := range rows {
		kind, ok := kindsOfMixes[row[1]]
		if !ok {
			return nil, fmt.Errorf("column %s of %s is %s, which is not thought of", row[0], t.Name, row[1])
		}
		typ := &pgcdc.Type{Kind: kind}
		if kind == pgcdc.KindDecimal {
			var err error
			if typ.Precision, err = strconv.Atoi(strings.TrimSpace(row[2])); err != nil {
				return nil, err
			}
			if typ.Scale, err = strconv.Atoi(row[3]); err != nil {
				return nil, err
			}
		}
		columns = append(columns, interop.Column{Name: harness.Ident(row[0]), Type: typ})
	}
	return columns, nil
}
