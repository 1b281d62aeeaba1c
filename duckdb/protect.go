package duckdb

import (
	"cmp"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strings"
)

// quoted finds a text: 'text', "text" or $$text$$.
const quoted = `\s*(?:[e]?'((?:[^']|'')*)'|"((?:[^"]|"")*)"|\$\$(.*?)\$\$)`

// writesTo finds where a statement writes a file that its text names: COPY … TO 'file', EXPORT DATABASE 'directory', ATTACH 'file'.
var writesTo = regexp.MustCompile(`(?is)\b(?:to|export\s+database|attach(?:\s+or\s+replace)?(?:\s+database)?(?:\s+if\s+not\s+exists)?)` + quoted)

// setTo finds the same in the settings that name files to be written: SET temp_directory = 'directory', PRAGMA log_query_path = 'file',
// CALL enable_logging(storage_path := 'directory').
var setTo = regexp.MustCompile(`(?is)\b"?(?:temp_directory|log_query_path|profiling_output|profile_output|extension_directory|secret_directory|home_directory|storage_path)"?\s*(?:=|:=|=>|\bto\b)` + quoted)

var comment = regexp.MustCompile(`(?s)--[^\n]*|/\*.*?\*/`)

var fileURL = regexp.MustCompile(`(?i)^file:(?://(?:localhost)?)?`)

var writer = regexp.MustCompile(`(?is)\b(?:copy|export|attach|set|pragma|call)\b`)

// refuseOwnFiles is an error when a statement would write into the directory that Config.Protect names. It is a guard against slips:
// it does not see a path that is computed or comes from a parameter.
func (db *DB) refuseOwnFiles(script string) error {
	if db.config.Protect == "" || !writer.MatchString(script) {
		return nil
	}
	own, err := realPath(db.config.Protect)
	if err != nil {
		return fmt.Errorf("find the data directory: %w", err)
	}
	var targets [][]string
	for _, text := range []string{script, comment.ReplaceAllString(script, " ")} { // a text may look as if it had a comment
		targets = append(targets, writesTo.FindAllStringSubmatch(text, -1)...)
		targets = append(targets, setTo.FindAllStringSubmatch(text, -1)...)
	}
	for _, found := range targets {
		name := cmp.Or(strings.ReplaceAll(found[1], "''", "'"), strings.ReplaceAll(found[2], `""`, `"`), found[3])
		name = fileURL.ReplaceAllString(name, "")
		path, err := realPath(name)
		if err != nil {
			continue // DuckDB says better why it cannot write there
		}
		if path == own || strings.HasPrefix(path, own+string(filepath.Separator)) {
			return fmt.Errorf("%s is in the mirror's data directory, whose files pgmirror alone writes; choose another place", name)
		}
	}
	return nil
}

// realPath is a path without symbolic links; its end need not exist.
func realPath(path string) (string, error) {
	path, err := filepath.Abs(path)
	if err != nil {
		return "", err
	}
	rest := ""
	for {
		real, err := filepath.EvalSymlinks(path)
		if err == nil {
			return filepath.Join(real, rest), nil
		}
		if !os.IsNotExist(err) || filepath.Dir(path) == path {
			return "", err
		}
		path, rest = filepath.Dir(path), filepath.Join(filepath.Base(path), rest)
	}
}
