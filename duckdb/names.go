package duckdb

import (
	"strconv"
	"strings"
)

// names hands out identifiers that stay apart although DuckDB ignores case.
type names struct{ taken map[string]bool }

func newNames() names { return names{taken: make(map[string]bool)} }

// take returns the name itself, or name_1, name_2, … when one that differs only by case was taken before.
func (n names) take(name string) string {
	out := name
	for i := 1; n.taken[lower(out)]; i++ {
		out = name + "_" + strconv.Itoa(i)
	}
	n.taken[lower(out)] = true
	return out
}

// apart names all of a kind, in their order. Of names that differ only by case the one in lower case stays as it is, so that what is
// written without quotes means what it means in PostgreSQL.
func apart(list []string) []string {
	taken, out := newNames(), make([]string, len(list))
	for _, lowered := range []bool{true, false} {
		for i, name := range list {
			if (name == lower(name)) == lowered {
				out[i] = taken.take(name)
			}
		}
	}
	return out
}

// lower folds case as DuckDB does for identifiers: ASCII letters only.
func lower(s string) string {
	return strings.Map(func(r rune) rune {
		if 'A' <= r && r <= 'Z' {
			return r + 'a' - 'A'
		}
		return r
	}, s)
}

// ident quotes an identifier.
func ident(s string) string { return `"` + strings.ReplaceAll(s, `"`, `""`) + `"` }

// literal quotes a string constant.
func literal(s string) string { return "'" + strings.ReplaceAll(s, "'", "''") + "'" }

// plain says whether a name reads the same with and without quotes in a key.
func plain(s string) bool {
	for _, r := range s {
		if r != '_' && (r < 'a' || r > 'z') && (r < '0' || r > '9') {
			return false
		}
	}
	return s != ""
}

// key is how pgmirror_sql names a table: schema.table, a part in double quotes when it holds anything but a-z, 0-9, _.
func key(schema, table string) string {
	part := func(s string) string {
		if plain(s) {
			return s
		}
		return ident(s)
	}
	return part(schema) + "." + part(table)
}
