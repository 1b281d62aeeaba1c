package e2e

import (
	"errors"
	"reflect"
	"strings"
	"testing"
)

const null = "<null>"

// parseCSV reads CSV as DuckDB writes it: nothing between two delimiters is NULL, here "<null>", and "" is the empty string.
// encoding/csv cannot tell the two apart.
func parseCSV(text string) ([][]string, error) {
	var rows [][]string
	row := []string{}
	for i := 0; i < len(text); {
		value := ""
		if text[i] == '"' {
			var end int
			if value, end = quoted(text, i+1); end < 0 {
				return nil, errors.New("CSV ends inside quotes")
			}
			i = end
		} else {
			end := len(text)
			if n := strings.IndexAny(text[i:], ",\n"); n >= 0 {
				end = i + n
			}
			if value = text[i:end]; value == "" {
				value = null
			}
			i = end
		}
		row = append(row, value)
		switch {
		case i == len(text):
			return nil, errors.New("CSV ends inside a line")
		case text[i] == '\n':
			rows, row = append(rows, row), []string{}
			i++
		case text[i] == ',':
			i++
			if i < len(text) && text[i] == '\n' { // the last value of the line is NULL
				rows, row = append(rows, append(row, null)), []string{}
				i++
			}
		default:
			return nil, errors.New("CSV has text behind a closing quote")
		}
	}
	if len(row) > 0 {
		return nil, errors.New("CSV ends inside a line")
	}
	return rows, nil
}

// quoted reads up to the closing quote and returns the offset behind it, or -1.
func quoted(text string, i int) (value string, end int) {
	var b strings.Builder
	for {
		n := strings.IndexByte(text[i:], '"')
		if n < 0 {
			return "", -1
		}
		b.WriteString(text[i : i+n])
		i += n + 1
		if i == len(text) || text[i] != '"' {
			return b.String(), i
		}
		b.WriteByte('"')
		i++
	}
}

// The expected values are what DuckDB's own documentation of its CSV writer says of each.
func TestParseCSV(t *testing.T) {
	for text, want := range map[string][][]string{
		"":                           nil,
		"a\n":                        {{"a"}},
		"a,b\n1,\n":                  {{"a", "b"}, {"1", null}},
		"a,b\n,1\n\n":                {{"a", "b"}, {null, "1"}, {null}},
		"a\n\"\"\n":                  {{"a"}, {""}},
		"\"x\"\"y\",\"1,2\n3\"\n":    {{`x"y`, "1,2\n3"}},
		"\"\",,\"\"\n\"a\"\n\"#\"\n": {{"", null, ""}, {"a"}, {"#"}},
	} {
		if got, err := parseCSV(text); err != nil || !reflect.DeepEqual(got, want) {
			t.Errorf("%q: %q, %v, want %q", text, got, err, want)
		}
	}
	for _, text := range []string{"a", "\"a", "\"a\"b\n", "a,", "\"a\""} {
		if got, err := parseCSV(text); err == nil {
			t.Errorf("%q was read as %q", text, got)
		}
	}
}
