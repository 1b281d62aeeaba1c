package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"

	"pgmirror/mirror"
	"pgmirror/pgcdc"
)

// operationsTable is a table of docs/operations.md: for each row its cells, the first one's names in backquotes beside them.
func operationsTable(t *testing.T, section string) (rows [][]string) {
	t.Helper()
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, text, found := strings.Cut(string(page), "\n## "+section+"\n")
	if !found {
		t.Fatalf("no section %q", section)
	}
	text, _, _ = strings.Cut(text, "\n## ")
	for line := range strings.Lines(text) {
		if !strings.HasPrefix(line, "| ") {
			continue
		}
		cells := strings.Split(strings.Trim(strings.TrimSpace(line), "|"), "|")
		for i := range cells {
			cells[i] = strings.TrimSpace(cells[i])
		}
		rows = append(rows, cells)
	}
	return rows[1:] // the first is the head
}

// codeSpans are what stands in backquotes.
func codeSpans(cell string) (spans []string) {
	for _, span := range regexp.MustCompile("`([^`]*)`").FindAllStringSubmatch(cell, -1) {
		spans = append(spans, span[1])
	}
	return spans
}

func firstColumn(rows [][]string) (names []string) {
	for _, row := range rows {
		names = append(names, codeSpans(row[0])...)
	}
	return names
}

// same compares what the page has with what the code has, in any order.
func same(t *testing.T, what string, documented, coded []string) {
	t.Helper()
	slices.Sort(documented)
	slices.Sort(coded)
	if !slices.Equal(slices.Compact(documented), slices.Compact(coded)) {
		t.Errorf("%s: documented are\n%q, the code has\n%q", what, documented, coded)
	}
}

// The page has every setting, in the order of the help, with its default.
func TestSettingsAreDocumented(t *testing.T) {
	var documented, coded []string
	for _, row := range operationsTable(t, "Settings") {
		name, def := codeSpans(row[0]), strings.Trim(row[1], "`")
		if name[0] == "copy_workers" { // it differs by machine
			def = ""
		}
		documented = append(documented, name[0]+" "+def)
	}
	for _, k := range settingTable {
		def := k.def
		switch k.key {
		case "slot":
			def = "pgmirror_<database>"
		case "copy_workers":
			def = ""
		}
		coded = append(coded, k.key+" "+def)
	}
	if !slices.Equal(documented, coded) {
		t.Errorf("documented are\n%q, the code has\n%q", documented, coded)
	}
}

// The page has every metric with its labels.
func TestMetricsAreDocumented(t *testing.T) {
	descriptions := make(chan *prometheus.Desc, 100)
	(&mirror.Mirror{}).Describe(descriptions)
	close(descriptions)
	coded := []string{"pgmirror_build_info{version,revision}"} // newRegistry's
	form := regexp.MustCompile(`fqName: "([a-z_]+)".*variableLabels: \{([a-z,]*)\}`)
	for d := range descriptions {
		parts := form.FindStringSubmatch(d.String())
		if parts == nil {
			t.Fatalf("%s", d)
		}
		if parts[2] != "" {
			parts[1] += "{" + parts[2] + "}"
		}
		coded = append(coded, parts[1])
	}
	same(t, "metrics", firstColumn(operationsTable(t, "The HTTP port")), coded)
}

// The page and that of the status document have every state of the mirror and of a table that the code can set.
func TestStatesAreDocumented(t *testing.T) {
	states, tables := map[string]bool{}, map[string]bool{}
	text := func(e ast.Expr) string {
		if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			s, _ := strconv.Unquote(lit.Value)
			return s
		}
		return ""
	}
	inspectSources(t, "../../mirror/*.go", func(n ast.Node) {
		switch n := n.(type) {
		case *ast.CallExpr:
			if s, ok := n.Fun.(*ast.SelectorExpr); ok && s.Sel.Name == "setState" {
				states[text(n.Args[0])] = true
			}
		case *ast.AssignStmt:
			s, ok := n.Lhs[0].(*ast.SelectorExpr)
			switch state := text(n.Rhs[0]); {
			case !ok || state == "":
			case s.Sel.Name == "state": // sharedState's; a table's are constants
				states[state] = true
			case s.Sel.Name == "State": // TableStatus's
				tables[state] = true
			}
		case *ast.KeyValueExpr:
			if key, ok := n.Key.(*ast.Ident); ok && key.Name == "State" && text(n.Value) != "" {
				states[text(n.Value)] = true
			}
		case *ast.ValueSpec:
			if kind, ok := n.Type.(*ast.Ident); ok && kind.Name == "tableState" {
				tables[text(n.Values[0])] = true
			}
		}
	})
	var ofMirror, ofTable []string
	for _, row := range operationsTable(t, "States") {
		if name, ok := strings.CutPrefix(row[0], "table "); ok {
			ofTable = append(ofTable, codeSpans(name)...)
			continue
		}
		ofMirror = append(ofMirror, codeSpans(row[0])...)
	}
	ofTable = slices.DeleteFunc(ofTable, func(s string) bool { return s == "insert only" }) // an addition to streaming
	same(t, "states", ofMirror, slices.Collect(maps.Keys(states)))
	same(t, "states of a table", ofTable, slices.Collect(maps.Keys(tables)))

	page, err := os.ReadFile("../../docs/formats/status.md")
	if err != nil {
		t.Fatal(err)
	}
	rows := regexp.MustCompile("(?m)^\\| `state` \\| ([^|]*) \\|").FindAllStringSubmatch(string(page), -1)
	if len(rows) != 2 {
		t.Fatalf("%q", rows)
	}
	same(t, "states in the document", codeSpans(rows[0][1]), slices.Collect(maps.Keys(states)))
	same(t, "states of a table in the document", codeSpans(rows[1][1]), slices.Collect(maps.Keys(tables)))
}

// The page has every name that a finding of check can have.
func TestFindingsAreDocumented(t *testing.T) {
	var coded []string
	name := func(e ast.Expr) {
		if lit, ok := e.(*ast.BasicLit); ok && lit.Kind == token.STRING {
			s, _ := strconv.Unquote(lit.Value)
			coded = append(coded, s)
		}
	}
	for _, files := range []string{"../../pgcdc/check*.go", "check*.go"} {
		inspectSources(t, files, func(n ast.Node) {
			literal, ok := n.(*ast.CompositeLit)
			if !ok {
				return
			}
			kind := ""
			switch t := literal.Type.(type) {
			case *ast.Ident:
				kind = t.Name
			case *ast.SelectorExpr:
				kind = t.Sel.Name
			case *ast.ArrayType: // its elements leave the type out
				if s, ok := t.Elt.(*ast.SelectorExpr); ok && s.Sel.Name == "Finding" {
					for _, e := range literal.Elts {
						checkOf(e, name)
					}
				}
			}
			if kind != "Finding" || len(literal.Elts) == 0 {
				return
			}
			if _, keyed := literal.Elts[0].(*ast.KeyValueExpr); keyed {
				checkOf(literal, name)
				return
			}
			name(literal.Elts[1])
		})
	}
	same(t, "findings", firstColumn(operationsTable(t, "check")), coded)

	var prevent []string
	for _, check := range coded {
		if (pgcdc.Finding{Level: pgcdc.LevelError, Check: check}).Prevents() {
			prevent = append(prevent, check)
		}
	}
	page, err := os.ReadFile("../../docs/operations.md")
	if err != nil {
		t.Fatal(err)
	}
	_, list, _ := strings.Cut(string(page), "end it with exit code 3 and their fixes: ")
	list, _, _ = strings.Cut(list, ". ")
	same(t, "findings that prevent a start", codeSpans(list), prevent)
}

// checkOf passes on the value of the key Check.
func checkOf(e ast.Expr, name func(ast.Expr)) {
	literal, ok := e.(*ast.CompositeLit)
	if !ok {
		return
	}
	for _, element := range literal.Elts {
		if pair, ok := element.(*ast.KeyValueExpr); ok {
			if key, ok := pair.Key.(*ast.Ident); ok && key.Name == "Check" {
				name(pair.Value)
			}
		}
	}
}

// The page's table of the data directory has what is in one.
func TestDataDirIsDocumented(t *testing.T) {
	var documented []string
	for _, name := range firstColumn(operationsTable(t, "The data directory")) {
		documented = append(documented, strings.TrimSuffix(name, "/"))
	}
	same(t, "entries", documented, []string{lockFile, formatFile, catalogFile, warehouseDir, indexDir, spillDir, readsDir, socketFile})
}

// inspectSources walks the syntax of the files of a pattern that are no tests.
func inspectSources(t *testing.T, pattern string, visit func(ast.Node)) {
	t.Helper()
	files, err := filepath.Glob(pattern)
	if err != nil || len(files) == 0 {
		t.Fatalf("%s: %v, %v", pattern, files, err)
	}
	for _, file := range files {
		if strings.HasSuffix(file, "_test.go") {
			continue
		}
		tree, err := parser.ParseFile(token.NewFileSet(), file, nil, parser.SkipObjectResolution)
		if err != nil {
			t.Fatal(err)
		}
		ast.Inspect(tree, func(n ast.Node) bool {
			visit(n)
			return true
		})
	}
}
