package iceberg

import (
	"context"
	"database/sql"
	"database/sql/driver"
	"errors"
	"path/filepath"
	"slices"
	"testing"

	"pgmirror/readstate"
)

// lossy connects to a database whose answer to a COMMIT is lost, whether that took effect or not, and which can perhaps not be read afterwards.
type lossy struct {
	sqlite driver.Driver
	dsn    string
	took   bool // the COMMIT takes effect
	silent bool // nothing can be read after it
	lost   bool // it has come
}

var errLost = errors.New("the answer was lost")

func (l *lossy) Driver() driver.Driver { return l.sqlite }

func (l *lossy) Connect(context.Context) (driver.Conn, error) {
	c, err := l.sqlite.Open(l.dsn)
	if err != nil {
		return nil, err
	}
	return &lossyConn{c.(fullConn), l}, nil
}

type fullConn interface {
	driver.Conn
	driver.ConnBeginTx
	driver.ExecerContext
	driver.QueryerContext
}

type lossyConn struct {
	fullConn
	of *lossy
}

func (c *lossyConn) BeginTx(ctx context.Context, options driver.TxOptions) (driver.Tx, error) {
	tx, err := c.fullConn.BeginTx(ctx, options)
	return &lossyTx{tx, c.of}, err
}

func (c *lossyConn) QueryContext(ctx context.Context, query string, args []driver.NamedValue) (driver.Rows, error) {
	if c.of.lost && c.of.silent {
		return nil, errLost
	}
	return c.fullConn.QueryContext(ctx, query, args)
}

type lossyTx struct {
	driver.Tx
	of *lossy
}

func (t *lossyTx) Commit() error {
	if t.of.lost {
		return t.Tx.Commit()
	}
	t.of.lost = true
	if t.of.took {
		return errors.Join(errLost, t.Tx.Commit())
	}
	return errors.Join(errLost, t.Tx.Rollback())
}

// When the answer to a commit is lost, reading the catalogue back decides (S-R9). While nobody can say what happened, no file is deleted and nothing more is
// committed; the next life finds one cut or the other, whole.
func TestCommitWhoseAnswerIsLost(t *testing.T) {
	for _, c := range []struct {
		name         string
		took, silent bool
	}{{"took effect", true, false}, {"took none", false, false}, {"took effect, unknown", true, true}, {"took none, unknown", false, true}} {
		t.Run(c.name, func(t *testing.T) {
			dir := t.TempDir()
			w, _ := openLoaded(t, Config{Dir: dir})
			a := newLocation(t, "a")
			f, g := writeRows(t, w, a, 10, 1, 2, 3), writeRows(t, w, a, 20, 4)
			commit(t, w, 10, TableCommit{Name: a.Name, UUID: a.UUID, Create: true, Schema: a.Schema, Add: []DataFile{f}})
			connector := &lossy{sqlite: w.catalog.db.Driver(), dsn: "file:" + filepath.Join(dir, "catalog.db") + "?_pragma=synchronous(FULL)&_txlock=immediate", took: c.took, silent: c.silent}
			if err := w.catalog.db.Close(); err != nil {
				t.Fatal(err)
			}
			w.catalog.db = sql.OpenDB(connector)
			next := Commit{Mirror: []byte(`{"lsn":20}`), LSN: 20, Tables: []TableCommit{{Name: a.Name, UUID: a.UUID, Add: []DataFile{g}, Remove: []string{f.Path}}}}
			_, err := w.Commit(t.Context(), next)
			if (err == nil) != (c.took && !c.silent) || errors.Is(err, errUnknownOutcome) != c.silent {
				t.Fatalf("the commit ended with %v", err)
			}
			if c.silent {
				files := filesBelow(t, dir)
				if _, err := w.Commit(t.Context(), next); !errors.Is(err, errUnknownOutcome) {
					t.Errorf("a commit after one whose outcome is unknown: %v", err)
				}
				if _, err := w.Expire(t.Context(), 10, false); !errors.Is(err, errUnknownOutcome) {
					t.Errorf("an expiry after it: %v", err)
				}
				if now := filesBelow(t, dir); !slices.Equal(now, files) {
					t.Errorf("files were %q and are %q", files, now)
				}
			} else if err != nil {
				if _, err := w.Commit(t.Context(), next); err != nil {
					t.Errorf("the same commit again: %v", err)
				}
			}
			w.Close()
			want, file := LSN(20), g.Path
			if c.silent && !c.took {
				want, file = 10, f.Path
			}
			r, err := OpenReadOnly(t.Context(), Config{Dir: dir})
			if err != nil {
				t.Fatal(err)
			}
			defer r.Close()
			if s, err := r.Pin(t.Context(), readstate.PinRequest{}); err != nil || s.LSN != want || s.Tables[0].Err != "" || len(s.Tables[0].Files) != 1 || s.Tables[0].Files[0].Path != file {
				t.Errorf("the next life finds %+v, %v", s, err)
			}
			openLoaded(t, Config{Dir: dir}) // and its files whole
		})
	}
}
