package main

import (
	"context"
	"fmt"
	"strconv"
	"strings"

	"pgmirror/duckdb"
	"pgmirror/readstate"
)

// The bits a row that the LSN column may take in files of a stream (docs/decisions/0009-hidden-column.md).
const (
	hiddenBitsHyBench = 3
	hiddenBitsCH      = 5
)

// hiddenColumnLive measures the column in the files of a mirror that has followed writes at a pace.
func (b *bench) hiddenColumnLive(ctx context.Context, m *mirrorProcess) error {
	client, err := m.dial(ctx)
	if err != nil {
		return err
	}
	defer client.Close()
	return b.hiddenColumn(ctx, client, "HyBench, live", hiddenBitsHyBench, 0)
}

// hiddenColumn measures the LSN column in the files of a mirror: those of the first copy, where it is constant, and those of the
// stream, which created so many row versions, if that is known.
func (b *bench) hiddenColumn(ctx context.Context, source duckdb.Pinner, name string, limit float64, created int) error {
	duck, err := duckdb.Open(ctx, duckdb.Config{Source: source})
	if err != nil {
		return err
	}
	defer duck.Close()
	state, err := source.Pin(ctx, readstate.PinRequest{})
	if err != nil {
		return err
	}
	defer state.Release()
	var paths []string
	for _, t := range state.Tables {
		for _, f := range t.Files {
			paths = append(paths, "'"+f.Path+"'")
		}
	}
	rows, err := duck.Query(ctx, fmt.Sprintf(`WITH chunks AS (
			SELECT *, min(stats_min_value) OVER file = max(stats_max_value) OVER file AS constant FROM parquet_metadata([%s])
			WHERE path_in_schema = '_pgmirror_lsn' WINDOW file AS (PARTITION BY file_name))
		SELECT constant, round(sum(total_compressed_size) * 8 / sum(num_values), 4), sum(num_values), count(DISTINCT file_name) FROM chunks GROUP BY ALL ORDER BY ALL`, strings.Join(paths, ", ")))
	if err != nil {
		return err
	}
	for _, row := range rows.All() {
		bits, err := strconv.ParseFloat(row[1].Value, 64)
		if err != nil {
			return err
		}
		stored, err := strconv.ParseFloat(row[2].Value, 64)
		if err != nil {
			return err
		}
		note := fmt.Sprintf("compressed column chunks, %s rows in %s files", row[2].Value, row[3].Value)
		what, goal := "files of the stream", goals{atMost(bits, limit, "%g bits/row")}
		if row[0].Value == "true" {
			what, goal = "files of the first copy", nil
		} else if created > 0 {
			note += fmt.Sprintf("; for each of the %d row versions that the stream created, dead or alive: %.2f bits", created, bits*stored/float64(created))
		}
		b.report.add(line{fmt.Sprintf("%s: hidden column `_pgmirror_lsn`, %s", name, what), row[1].Value + " bits/row", "Retina: HyBench 1.85, CH 7.94, after a bulk load 0.18", "", goal, note})
	}
	return nil
}
