package iceberg

import (
	"bytes"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"pgmirror/readstate"
)

// With no mirror running, the newest cut and every retained older one can be read; anything else is refused by name.
func TestCommitted(t *testing.T) {
	dir := t.TempDir()
	w, _ := openLoaded(t, Config{Dir: dir, KeepSnapshots: 3})
	a, b := newLocation(t, "a"), newLocation(t, "b")
	f := writeRows(t, w, a, 10, 1, 2, 3)
	commit(t, w, 10, TableCommit{Name: a.Name, UUID: a.UUID, Create: true, Schema: a.Schema, Add: []DataFile{f}})
	commit(t, w, 20, TableCommit{Name: a.Name, UUID: a.UUID, Vectors: vectors(f.Path, vectorOf(3, 0))})
	g := writeRows(t, w, b, 30, 7)
	commit(t, w, 30, TableCommit{Name: b.Name, UUID: b.UUID, Create: true, Schema: b.Schema, Add: []DataFile{g}})
	commit(t, w, 40, TableCommit{Name: a.Name, UUID: a.UUID, Vectors: vectors(f.Path, vectorOf(3, 0, 1))})
	commit(t, w, 50, TableCommit{Name: a.Name, UUID: a.UUID, Remove: []string{f.Path}})
	commit(t, w, 60) // only the document moves

	c, err := OpenReadOnly(t.Context(), Config{Dir: dir, TableErr: func(mirror []byte, name TableName, at LSN) string {
		if name == b.Name && at == Newest {
			return "failed: " + string(mirror)
		}
		return ""
	}})
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	pin := func(at LSN) (*readstate.Table, *readstate.Table) {
		t.Helper()
		s, err := c.Pin(t.Context(), readstate.PinRequest{At: at})
		if err != nil {
			t.Fatalf("pin at %s: %v", at, err)
		}
		defer s.Release()
		if at != 0 && s.LSN != at {
			t.Fatalf("pinned %s, want %s", s.LSN, at)
		}
		return s.Tables[0], s.Tables[1]
	}
	newest, failed := pin(0)
	if len(newest.Files) != 0 || newest.Err != "" || failed.Err != `failed: {"lsn":60}` || failed.Files != nil {
		t.Errorf("newest: %+v, %+v", newest, failed)
	}
	if _, asked := pin(60); asked.Err != "" || len(asked.Files) != 1 {
		t.Errorf("the newest cut, asked for: %+v", asked)
	}
	at50, _ := pin(50)
	at40, b40 := pin(40)
	at20, b20 := pin(20)
	if len(at50.Files) != 0 || at40.Files[0].Deleted.Cardinality() != 2 || at20.Files[0].Deleted.Cardinality() != 1 {
		t.Errorf("table a at 50: %+v, at 40: %+v, at 20: %+v", at50, at40, at20)
	}
	if b40.Err != "" || b40.Files[0].Path != g.Path || !strings.Contains(b20.Err, "was not in the mirror") {
		t.Errorf("table b at 40: %+v, at 20: %+v", b40, b20)
	}
	for at, nearest := range map[LSN][2]string{10: {"the oldest is 0/14", ""}, 21: {"0/14", "0/1E"}, 29: {"0/14", "0/1E"}, 59: {"0/32", "0/3C"}} {
		if _, err := c.Pin(t.Context(), readstate.PinRequest{At: at}); !errors.Is(err, ErrNotRetained) || !strings.Contains(err.Error(), nearest[0]) || !strings.Contains(err.Error(), nearest[1]) {
			t.Errorf("pin at %s: error %v, want ErrNotRetained and %v", at, err, nearest)
		}
	}
	for _, req := range []readstate.PinRequest{{WaitSource: true}, {WaitLSN: 61}, {At: 61}} {
		if _, err := c.Pin(t.Context(), req); err == nil || !strings.Contains(err.Error(), "0/3C") {
			t.Errorf("pin %+v: error %v", req, err)
		}
	}
	if _, err := c.Pin(t.Context(), readstate.PinRequest{AtTime: time.Now().Add(time.Hour)}); err == nil || !strings.Contains(err.Error(), "lies in the future") {
		t.Errorf("pin at a time to come: %v", err)
	}
	h := writeRows(t, w, b, 62, 8)
	result := commit(t, w, 65, TableCommit{Name: b.Name, UUID: b.UUID, At: 63, Add: []DataFile{h}})
	if got := result.Tables[b.Name].LSN; got != 63 {
		t.Errorf("the snapshot of a table that failed is at %s", got)
	}
	if a63, b63 := pin(63); !strings.Contains(a63.Err, "no checkpoint") || len(b63.Files) != 2 {
		t.Errorf("at the failed table's last good LSN: %+v, %+v", a63, b63)
	}
	if a65, b65 := pin(65); a65.Err != "" || len(b65.Files) != 2 {
		t.Errorf("at its cut: %+v, %+v", a65, b65)
	}
	commit(t, w, 70, TableCommit{Name: b.Name, UUID: b.UUID, Drop: true})
	s, err := c.Pin(t.Context(), readstate.PinRequest{})
	if err != nil || s.LSN != 70 || len(s.Tables) != 1 {
		t.Errorf("after a commit: %+v, %v", s, err)
	}
	if path := c.SearchPath(); len(path) != 1 || path[0] != "public" {
		t.Errorf("search path %v", path)
	}
	w.Close()
	closed, err := OpenReadOnly(t.Context(), Config{Dir: dir}) // with the writer's log gone
	if err != nil {
		t.Fatal(err)
	}
	defer closed.Close()
	if s, err := closed.Pin(t.Context(), readstate.PinRequest{}); err != nil || s.LSN != 70 {
		t.Errorf("after the writer closed: %+v, %v", s, err)
	}
}

// A catalog that is not whole is named, with what to do, whoever opens it, and is left as it is.
func TestTornCatalog(t *testing.T) {
	for name, tear := range map[string]func(whole []byte) []byte{
		"empty":          func([]byte) []byte { return nil },
		"another file":   func([]byte) []byte { return bytes.Repeat([]byte("no database\n"), 1000) },
		"half":           func(whole []byte) []byte { return whole[:len(whole)/2/4096*4096] },
		"pages of zeros": func(whole []byte) []byte { clear(whole[4096:]); return whole },
	} {
		t.Run(name, func(t *testing.T) {
			dir := t.TempDir()
			w, _ := openLoaded(t, Config{Dir: dir})
			a := newLocation(t, "a")
			commit(t, w, 50, TableCommit{Name: a.Name, UUID: a.UUID, Create: true, Schema: a.Schema})
			w.Close()
			path := filepath.Join(dir, "catalog.db")
			whole, err := os.ReadFile(path)
			if err != nil {
				t.Fatal(err)
			}
			piece := tear(whole)
			if err := os.WriteFile(path, piece, 0o600); err != nil {
				t.Fatal(err)
			}
			c, err := OpenReadOnly(t.Context(), Config{Dir: dir})
			if err == nil {
				c.Close()
			}
			if err == nil || !strings.Contains(err.Error(), "put the data directory back") {
				t.Errorf("for reading: %v", err)
			}
			if now, err := os.ReadFile(path); err != nil || !bytes.Equal(now, piece) {
				t.Errorf("it has changed: %v", err)
			}
		})
	}
}
