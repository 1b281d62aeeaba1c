package main

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"testing"
)

// defect is a way in which another engine of this kind, Retina's published code, was found to go wrong, what keeps ours from it, and what notices when that is taken away:
// mutants by name, and tests as package.Test where no mutant can be made of package mirror's text.
type defect struct {
	what, protection string
	mutants, tests   []string
}

var defects = []defect{
	{"two updates of one key in a transaction both find the old row: two versions live", "changes are applied one by one, each looked up after the one before; keys looked up together are used while no index changed",
		[]string{"keys looked up before inserts", "candidates used after the indexes changed", "probed before the changes that came first"}, nil},
	{"a transaction's deletes run before its inserts, so a row that was inserted and deleted stays", "changes are applied in the order of the stream", []string{"deletes before inserts of a transaction"}, nil},
	{"LWM passes a reader that begins between two computations", "a reader is registered in the critical section that reads HWM and computes LWM", []string{"LWM computed outside the lock", "LWM ignores readers", "fold past a reader"}, nil},
	{"a fold cuts the list of deletions that a reader walks", "a tile's entries below LWM alone are folded, into a copy that is swapped in; a reader that was overtaken is told so",
		nil, []string{"deletion.TestReadersWhileWriting", "deletion.TestAtBelowBase"}},
	{"entries out of order end a reader's walk early; a count is stored before its entry", "one writer; a deletion out of order is refused; the entry is stored before the count", nil, []string{"deletion.TestDeleteRefuses", "deletion.TestReadersWhileWriting"}},
	{"files are listed first and memory later: what was published in between is in neither", "the reader is pinned first; each table's version is then loaded once, files and memory together", []string{"version loaded before the pin", "version loaded just before the pin"}, nil},
	{"rows are masked with the deletions of another file", "segment and deletions are one entry of the read state", []string{"rows are masked with another segment's deletions"}, nil},
	{"what a failed transaction had applied becomes visible", "HWM moves at a transaction's end only; a table that fails keeps what it had before; a stop abandons the transaction",
		[]string{"publish before all tables are done", "half a row stays after an error", "failed table good up to the failure", "a cut inside a transaction"}, nil},
	{"after a crash the index knows rows that the checkpoint does not", "FileIndexes are held against the catalog's files, and built again where they differ; commits at or below the cut are skipped",
		[]string{"file index not checked against the catalog", "replay filter off"}, nil},
	{"files of which every row is dead are never retired", "a rewrite without output takes its inputs out all the same", []string{"files of dead rows alone stay"}, nil},
	{"entries of dead rows are never taken out of the index", "a merge leaves out what moved or died; a FileIndex without files is closed and deleted", []string{"rows that compaction moved are merged", "a merged index outlives its truncated files"}, nil},
	{"rows are dropped that a held reader still needs", "what a rewrite leaves out is deleted at LWM, which every reader and checkpoint holds back", []string{"flush leaves out what is deleted at HWM", "a compaction leaves out what is deleted at HWM", "the cut is not registered"}, nil},
	{"recovery leans on the sink's habits, and a flush that fails is left to be tried again some day", "the slot is acknowledged only after the commit of what it would send again; every effect may fail, and the run is repeated with each failing",
		[]string{"acknowledge before the commit", "an unfinished table is not dirty again"}, []string{"mirror.TestEveryEffect"}},
}

// TestDefects holds that what the table names is there: the mutants, which the program shows to be noticed, and the tests.
func TestDefects(t *testing.T) {
	for _, d := range defects {
		if len(d.mutants)+len(d.tests) == 0 || d.protection == "" {
			t.Errorf("nothing notices it: %s", d.what)
		}
		for _, name := range d.mutants {
			if !slices.ContainsFunc(mutants, func(m mutant) bool { return m.name == name }) {
				t.Errorf("no mutant %q", name)
			}
		}
		for _, test := range d.tests {
			if !hasTest(t, test) {
				t.Errorf("no test %s", test)
			}
		}
	}
}

// TestMutantsApply: the text that each mutant breaks is there, once, and what is left of it are declarations.
func TestMutantsApply(t *testing.T) {
	for i, m := range mutants {
		if err := newSchemata().add(filepath.Join("..", ".."), i+1, m); err != nil {
			t.Errorf("%s: %v", m.name, err)
		}
	}
}

// hasTest looks for a test of the module, package.Test.
func hasTest(t *testing.T, test string) bool {
	t.Helper()
	name := filepath.Ext(test)
	files, err := filepath.Glob(filepath.Join("..", "..", test[:len(test)-len(name)], "*_test.go"))
	if err != nil {
		t.Fatal(err)
	}
	declared := regexp.MustCompile(`(?m)^func ` + name[1:] + `\(t \*testing\.T\)`)
	return slices.ContainsFunc(files, func(path string) bool {
		text, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		return declared.Match(text)
	})
}
