package e2e

import (
	"bytes"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	warehouse "pgmirror/iceberg"
)

// Deletion vectors are whole Puffin files, and a data file never has two that are live: deletes from one file over several
// checkpoints leave one vector with all of them (S-I1, S-I2).
func TestScenarioDeletionVectors(t *testing.T) {
	t.Parallel()
	pg, m := scene(t, []string{"create table t(id int primary key)", "insert into t select generate_series(1, 1000)"})
	for i := range 4 {
		pg.Exec("delete from t where id = " + itoa(10+i))
		answers(t, m, "select count(*) from t", itoa(999-i))
		m.Checkpoint()
	}
	if code := m.Stop(); code != 0 {
		t.Fatalf("exit code %d", code)
	}
	readableAlone(t, m, "select count(*), sum(id) from t", "996|"+itoa(500500-10-11-12-13))
	puffins := 0
	err := filepath.WalkDir(filepath.Join(m.Data(), "warehouse"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || !strings.HasSuffix(path, ".puffin") {
			return err
		}
		puffins++
		content, err := os.ReadFile(path)
		if err == nil && (!bytes.HasPrefix(content, []byte("PFA1")) || !bytes.HasSuffix(content, []byte("PFA1"))) {
			t.Errorf("%s is no whole Puffin file", path)
		}
		return err
	})
	if err != nil || puffins == 0 {
		t.Fatalf("%d Puffin files, %v", puffins, err)
	}
	w, err := warehouse.Open(t.Context(), warehouse.Config{Dir: m.Data()})
	if err != nil {
		t.Fatal(err)
	}
	defer w.Close()
	state, err := w.Load(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	if len(state.Tables) != 1 || len(state.Tables[0].Files) != 1 || state.Tables[0].Files[0].Deleted.Cardinality() != 4 {
		t.Fatalf("the table consists of %+v", state.Tables)
	}
}
