package duckdb

import (
	"context"
	"fmt"
	"strconv"
)

// Suggestion is how a text may go on.
type Suggestion struct {
	Text string
	// Start is where Text begins, in bytes of the text that is completed: what stands there from Start on is replaced.
	Start int
}

// Complete asks DuckDB's own sql_auto_complete how the unfinished statement in text may go on, best first. It runs on the
// user's connection, whose temporary tables it knows; in a transaction that has failed there are no suggestions.
func (db *DB) Complete(ctx context.Context, text string) ([]Suggestion, error) {
	db.run.Lock()
	defer db.run.Unlock()
	defer db.interruptOn(ctx)()
	rows, err := readStrings(db.conn, "SELECT suggestion, suggestion_start::VARCHAR FROM sql_auto_complete("+literal(text)+")")
	if err != nil {
		return nil, fmt.Errorf("complete: %w", err)
	}
	out := make([]Suggestion, len(rows))
	for i, row := range rows {
		start, err := strconv.Atoi(row[1])
		if err != nil || start < 0 || start > len(text) {
			return nil, fmt.Errorf("complete: suggestion %d starts at %q of a text of %d bytes", i, row[1], len(text))
		}
		out[i] = Suggestion{Text: row[0], Start: start}
	}
	return out, nil
}
