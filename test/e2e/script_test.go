package e2e

import (
	"context"
	"encoding/json"
	"flag"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"pgmirror/mirror"
	"pgmirror/test/harness"
)

// script is a random run as it happened: what the source did, in its order, and what became of pgmirror meanwhile. It can be played again, and made
// smaller (test/shrink).
type script struct {
	Version  int      `json:"version,omitempty"`  // the least major one of the source
	Settings []string `json:"settings,omitempty"` // of the source
	Setup    []string `json:"setup"`
	Args     []string `json:"args"` // of pgmirror run
	Acts     []act    `json:"acts"`
}

// act is one step of a script.
type act struct {
	Pause string   `json:"pause,omitempty"` // before it, as a duration
	Do    string   `json:"do"`              // sql; kill or stop, and start again; compare; read
	SQL   []string `json:"sql,omitempty"`   // for the source; of compare and read for both
	Want  string   `json:"want,omitempty"`  // of a read that was wrong: the answer, or an error
	Least bool     `json:"least,omitempty"` // the answer's first column may be more
}

// recorder writes a script while the run goes on.
type recorder struct {
	mu     sync.Mutex
	script *script
	last   time.Time // of the newest act
}

func record(t *testing.T, s *script) *recorder {
	r := &recorder{script: s, last: time.Now()}
	t.Cleanup(func() { r.tell(t) })
	return r
}

func (r *recorder) add(a act) {
	r.mu.Lock()
	defer r.mu.Unlock()
	now := time.Now()
	a.Pause, r.last = now.Sub(r.last).Round(time.Millisecond).String(), now
	r.script.Acts = append(r.script.Acts, a)
}

// tell leaves the script of a run that failed in a file, and says how it is made smaller.
func (r *recorder) tell(t *testing.T) {
	if !t.Failed() {
		return
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	text, err := json.MarshalIndent(r.script, "", "\t")
	must(t, err)
	f, err := os.CreateTemp("", "pgmirror-run-*.json")
	must(t, err)
	defer f.Close()
	if _, err := f.Write(text); err != nil {
		t.Fatal(err)
	}
	t.Logf("what happened is in %s; `go run ./test/shrink %s` makes it smaller", f.Name(), f.Name())
}

var replayFile = flag.String("replay.file", "", "the script that TestReplays plays, instead of those in testdata/replays")

// TestReplays plays runs that once failed, made small.
func TestReplays(t *testing.T) {
	t.Parallel()
	files := []string{*replayFile}
	if *replayFile == "" {
		var err error
		files, err = filepath.Glob("testdata/replays/*.json")
		must(t, err)
		if len(files) == 0 {
			t.Fatal("there is no script")
		}
	}
	for _, name := range files {
		t.Run(strings.TrimSuffix(filepath.Base(name), ".json"), func(t *testing.T) {
			t.Parallel()
			text, err := os.ReadFile(name)
			must(t, err)
			var s script
			must(t, json.Unmarshal(text, &s))
			s.play(t)
		})
	}
}

// source starts the script's source.
func (s *script) source(t *testing.T) *harness.Postgres {
	var settings []harness.Option
	for _, set := range s.Settings {
		name, value, _ := strings.Cut(set, "=")
		settings = append(settings, harness.Setting(name, value))
	}
	pg := harness.StartPostgres(t, settings...)
	pg.Needs(s.Version, "what the script does")
	pg.CreateMirrorRole(mirrorRole, "postgres")
	pg.Exec(s.Setup...)
	return pg
}

// playing is said when a script's acts begin: a failure before is none of the script's (test/shrink).
const playing = "the acts begin"

// play does what the script says. What the source refuses is rolled back, as in a random run.
func (s *script) play(t *testing.T) {
	pg := s.source(t)
	conn, err := pgconn.Connect(context.Background(), pg.SocketURL("postgres", "postgres"))
	must(t, err)
	defer conn.Close(context.Background())
	m := StartMirror(t, pg, "p", s.Args...)
	t.Log(playing)
	for _, a := range s.Acts {
		if pause, err := time.ParseDuration(a.Pause); err == nil {
			time.Sleep(pause)
		}
		switch a.Do {
		case "sql":
			for _, sql := range a.SQL {
				tried(conn, sql)
			}
		case "kill":
			m.Kill()
			m.Start()
		case "stop":
			m.WaitStatus("answering", func(*mirror.Status) bool { return true })
			if code := m.Stop(); code != 0 {
				t.Fatalf("SIGTERM: exit code %d", code)
			}
			m.Start()
		case "compare":
			compareAll(t, pg, m, a.SQL)
		case "read": // of what the source has here: what it had then may come from acts that are left out
			rows, err := pg.Query(a.SQL[0])
			if err != nil {
				continue
			}
			a.Want = show(rows)
			if wrong := a.answered(m); wrong != "" {
				t.Fatal(wrong)
			}
		default:
			t.Fatalf("%q is no act", a.Do)
		}
	}
}

// compareAll holds what is published against the source's, with those of some queries that the source can answer.
func compareAll(t *testing.T, pg *harness.Postgres, m *Mirror, queries []string) {
	t.Helper()
	caughtUp(pg, m)
	rows, err := pg.Query("select schemaname || '.' || tablename from pg_publication_tables where pubname = 'p' order by 1")
	must(t, err)
	var names []string
	for _, row := range rows {
		names = append(names, row[0])
		within(t, row[0]+" is read", func() bool { // looks may still find something; a query waits for them, and for the copy that they ask for
			_, err := m.TrySQL("select 1 from "+row[0]+" limit 1", "--wait-lsn", "source")
			return err == nil
		})
	}
	for _, query := range queries {
		if _, err := pg.Query(query); err == nil && slices.ContainsFunc(names, func(name string) bool {
			return strings.Contains(query+" ", " "+strings.TrimPrefix(name, "public.")+" ")
		}) {
			alike(t, pg, m, query)
		}
	}
	m.Verify(names...)
}

// answered says what is wrong with the mirror's answer to a read; nothing is with an error.
func (a *act) answered(m *Mirror) string {
	rows, err := m.TrySQL(a.SQL[0], "--wait-lsn", "source")
	if err != nil || len(rows) != 1 {
		return ""
	}
	got := show(rows)
	if got == a.Want || a.Least && atLeast(got, a.Want) {
		return ""
	}
	return a.SQL[0] + ": a reader saw " + got + ", want " + a.Want
}

// atLeast says whether one answer is another with a first number that may be larger.
func atLeast(got, want string) bool {
	first, rest, _ := strings.Cut(got, "|")
	least, wanted, _ := strings.Cut(want, "|")
	n, err := strconv.ParseInt(first, 10, 64)
	m, wrong := strconv.ParseInt(least, 10, 64)
	return err == nil && wrong == nil && rest == wanted && n >= m
}
