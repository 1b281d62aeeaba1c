package pgcdc

import (
	"slices"
	"strings"
)

// searchPath is what a session of ours has before we pin it: reset_val. The driver's own setting is not in it.
func (l *looker) searchPath() ([]string, error) {
	var path []string
	err := l.rows("SELECT reset_val FROM pg_settings WHERE name = 'search_path'", func(r *rowReader) error {
		path = parseSearchPath(r.text())
		return nil
	})
	if !slices.Contains(path, "public") {
		path = append(path, "public")
	}
	return path, err
}

// parseSearchPath splits a list of identifiers; "$user" is left out. Unquoted ones are folded to lower case.
func parseSearchPath(list string) []string {
	var path []string
	for len(list) > 0 {
		list = strings.TrimLeft(list, ", \t\n\r\v\f")
		var name string
		if rest, quoted := strings.CutPrefix(list, `"`); quoted {
			name, list = unquoteIdent(rest)
		} else {
			end := strings.IndexByte(list, ',')
			if end < 0 {
				end = len(list)
			}
			name, list = strings.ToLower(strings.TrimSpace(list[:end])), list[end:]
		}
		if name != "" && name != "$user" {
			path = append(path, name)
		}
	}
	return path
}

// unquoteIdent reads a quoted identifier after its first quote, and returns what follows it.
func unquoteIdent(s string) (name, rest string) {
	var b strings.Builder
	for {
		before, after, found := strings.Cut(s, `"`)
		b.WriteString(before)
		if !found || !strings.HasPrefix(after, `"`) {
			return b.String(), after
		}
		b.WriteByte('"')
		s = after[1:]
	}
}
