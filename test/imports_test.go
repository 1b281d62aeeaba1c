package test

import (
	"fmt"
	"go/parser"
	"go/token"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// module is the path of our module; an import below it is one of ours.
const module = "pgmirror"

// mayImport is the table of who may import whom, by folder. A folder covers those below it unless they have a line of their
// own; a package may always import its own folder's. "*" stands for every one of ours.
var mayImport = map[string][]string{
	"pgcdc":            {},
	"globalindex":      {},
	"deletion":         {},
	"readstate":        {"deletion"},
	"iceberg":          {"deletion", "readstate"},
	"mirror":           {"pgcdc", "globalindex", "deletion", "readstate", "iceberg"},
	"duckdb":           {"readstate"},
	"duckdb/extension": {"readstate"},
	"cmd/pgmirror":     {"*"},
	"test":             {"*"},
	".":                {},
}

// testHelpers may be imported by every package's tests.
const testHelpers = "test/harness"

// testsMayImport is what a package's tests may import besides.
var testsMayImport = map[string][]string{
	"duckdb": {"deletion"}, // to make the vectors of a read state
}

// cgoOnly is the one package that may hold C.
const cgoOnly = "duckdb"

// Every Go file of the tree imports only what the table allows. The files are parsed here: an answer of the Go tool would be
// served from the test cache.
func TestImportsFollowTheTable(t *testing.T) {
	files := 0
	err := filepath.WalkDir("..", func(path string, d fs.DirEntry, err error) error {
		if err != nil {
			return err
		}
		name := d.Name()
		if d.IsDir() && path != ".." && (strings.HasPrefix(name, ".") || name == "bin" || name == "testdata") {
			return fs.SkipDir
		}
		if d.IsDir() || filepath.Ext(name) != ".go" {
			return nil
		}
		files++
		relative, err := filepath.Rel("..", path)
		if err != nil {
			return err
		}
		faults, err := importFaults(filepath.ToSlash(relative), nil)
		for _, fault := range faults {
			t.Error(fault)
		}
		return err
	})
	if err != nil {
		t.Fatal(err)
	}
	if files < 20 {
		t.Fatalf("only %d Go files were found: the walk is broken", files)
	}
}

// importFaults parses one file, named by its slash-separated path in the tree, and lists the imports it may not have. Source
// nil reads the file.
func importFaults(file string, source any) ([]string, error) {
	name := file
	if source == nil {
		name = filepath.Join("..", file)
	}
	parsed, err := parser.ParseFile(token.NewFileSet(), name, source, parser.ImportsOnly)
	if err != nil {
		return nil, err
	}
	folder := strings.TrimSuffix(strings.TrimSuffix(file, filepath.Base(file)), "/")
	if folder == "" {
		folder = "."
	}
	line, ok := tableLine(folder)
	if !ok {
		return []string{file + ": its folder has no line in the table of imports"}, nil
	}
	var faults []string
	for _, spec := range parsed.Imports {
		path, err := strconv.Unquote(spec.Path.Value)
		if err != nil {
			return nil, err
		}
		if path == "C" && folder != cgoOnly {
			faults = append(faults, fmt.Sprintf("%s: cgo outside %s", file, cgoOnly))
		}
		target, ours := strings.CutPrefix(path, module+"/")
		if !ours {
			continue
		}
		to, known := tableLine(target)
		ofTests := strings.HasSuffix(file, "_test.go") && (target == testHelpers || slices.Contains(testsMayImport[line], to))
		if !known || !ofTests && to != line && !slices.Contains(mayImport[line], to) && !slices.Contains(mayImport[line], "*") {
			faults = append(faults, fmt.Sprintf("%s: %s may not import %s", file, line, target))
		}
	}
	return faults, nil
}

// tableLine finds the line that covers a folder: its own, or the nearest above it.
func tableLine(folder string) (string, bool) {
	for at := folder; ; {
		if _, ok := mayImport[at]; ok {
			return at, true
		}
		cut := strings.LastIndex(at, "/")
		if cut < 0 {
			return "", false
		}
		at = at[:cut]
	}
}

// The check itself sees what it must see.
func TestImportFaults(t *testing.T) {
	for _, c := range []struct {
		file, imports string
		faults        int
	}{
		{"mirror/a.go", `"pgmirror/pgcdc"; "fmt"`, 0},
		{"mirror/a.go", `"pgmirror/duckdb"`, 1},
		{"mirror/inner/a.go", `"pgmirror/mirror"; "pgmirror/iceberg"`, 0},
		{"pgcdc/a.go", `"pgmirror/deletion"; x "pgmirror/readstate"`, 2},
		{"readstate/a.go", `"pgmirror/deletion"`, 0},
		{"deletion/a.go", `"pgmirror/readstate"`, 1},
		{"pgcdc/a_test.go", `"pgmirror/test/harness"`, 0},
		{"pgcdc/a.go", `"pgmirror/test/harness"`, 1},
		{"duckdb/a_test.go", `"pgmirror/deletion"`, 0},
		{"duckdb/a.go", `"pgmirror/deletion"`, 1},
		{"pgcdc/a_test.go", `"pgmirror/test/e2e"`, 1},
		{"duckdb/a.go", `"C"`, 0},
		{"duckdb/extension/a.go", `"C"`, 1},
		{"cmd/pgmirror/a.go", `"C"; "pgmirror/mirror"`, 1},
		{"cmd/pgmirror/a.go", `"pgmirror/duckdb"`, 0},
		{"test/demo/a.go", `"pgmirror/duckdb"; "pgmirror/test/harness"`, 0},
		{"stray/a.go", `"fmt"`, 1},
		{"cmd/other/a.go", `"fmt"`, 1},
		{"mirror/a.go", `"pgmirror/stray"`, 1},
		{"deps.go", `"fmt"`, 0},
		{"deps.go", `"pgmirror/mirror"`, 1},
	} {
		faults, err := importFaults(c.file, "package x\nimport ("+c.imports+")\n")
		if err != nil {
			t.Fatalf("%s: %v", c.file, err)
		}
		if len(faults) != c.faults {
			t.Errorf("%s with %s: got %q, want %d faults", c.file, c.imports, faults, c.faults)
		}
	}
}
