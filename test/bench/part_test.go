package main

import (
	"os"
	"path/filepath"
	"testing"
)

// Parts of a document are written in any order and again, and none changes another or what stands between them.
func TestPartsLeaveEachOther(t *testing.T) {
	path := filepath.Join(t.TempDir(), "doc.md")
	for _, p := range [][2]string{{"bench", "one\n"}, {"soak", "two\n\n"}, {"bench", "three\nfour"}} {
		if err := writePart(path, p[0], p[1]); err != nil {
			t.Fatal(err)
		}
	}
	got, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	want := "<!-- part: bench -->\nthree\nfour\n<!-- end: bench -->\n\n<!-- part: soak -->\ntwo\n<!-- end: soak -->\n"
	if string(got) != want {
		t.Errorf("the document is\n%s\nwant\n%s", got, want)
	}
	if _, err := replacePart("<!-- part: soak -->\nno end\n", "soak", "x"); err == nil {
		t.Error("a part without an end was replaced")
	}
}
