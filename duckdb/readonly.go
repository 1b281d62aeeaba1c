package duckdb

import (
	"fmt"
	"strings"
)

// refusals are DuckDB's words for changing a view.
var refusals = []string{
	"is not an table", "Can only update base table", "Can only delete from base table", "Can only merge into base tables",
	"can only create an index on a base table", "Can only modify view", "is of type View, trying to drop type Table",
}

// explain adds to DuckDB's refusal to change a view what that means for a mirrored table.
func explain(err error) error {
	for _, r := range refusals {
		if strings.Contains(err.Error(), r) {
			return fmt.Errorf("%w\nMirrored tables are views and cannot be changed; CREATE TEMP TABLE … AS makes a copy that can", err)
		}
	}
	return err
}
