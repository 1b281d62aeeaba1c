package main

import (
	"context"
	"errors"
	"log/slog"
	"os"
	"strings"
	"testing"

	"pgmirror/readstate"
)

// fakeProvider is a running mirror without tables.
type fakeProvider struct {
	answers map[string]string // by command
	asked   []string
}

func (f *fakeProvider) Pin(context.Context, readstate.PinRequest) (*readstate.State, error) {
	return &readstate.State{LSN: 5, Release: func() {}}, nil
}

func (f *fakeProvider) SearchPath() []string { return []string{"public"} }

func (f *fakeProvider) Status(context.Context) ([]byte, error) { return []byte(exampleStatus), nil }

func (f *fakeProvider) Call(_ context.Context, command string, args []byte, progress func(string)) ([]byte, error) {
	f.asked = append(f.asked, command+" "+string(args))
	progress("working on " + command)
	if command == "resync" {
		return nil, errors.New("resync: no table is mirrored")
	}
	answer, ok := f.answers[command]
	if !ok {
		return nil, errors.New("no such command")
	}
	return []byte(answer), nil
}

// serveFake answers on a data directory's socket as run would, until the test ends.
func serveFake(t *testing.T, f *fakeProvider) (data string) {
	t.Helper()
	data, err := os.MkdirTemp("", "pgm") // short enough for a socket
	if err != nil {
		t.Fatal(err)
	}
	mustCreate(t, data)
	l, err := readstate.Listen(data)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- readstate.NewServer(f, slog.New(slog.DiscardHandler), readstate.ServerConfig{}).Serve(ctx, l)
	}()
	t.Cleanup(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
		if err := os.RemoveAll(data); err != nil {
			t.Error(err)
		}
	})
	return data
}

// Each command asks the running mirror what it should, prints the answer on standard output and ends with its exit code;
// progress goes to standard error.
func TestCommandsOverTheSocket(t *testing.T) {
	f := &fakeProvider{answers: map[string]string{
		"checkpoint": `{"lsn":"0/5"}`,
		"inspect":    `{"table":"public.t","files":[{"path":"x"}]}`,
		"compact":    `{"tables":[{"name":"public.t","files_before":3,"files_after":2,"files_waiting":2,"longest_stall_seconds":0.0021}]}`,
		"forget":     `{"tables":["public.t","s.u"]}`,
		"expire":     `{"tables":[{"name":"public.t","snapshots_expired":2,"snapshots_kept":1}],"files_deleted":1,"files_waiting":4,"orphans":["/w/x"]}`,
		"verify":     `{"lsn":"0/5","tables":[{"name":"public.n","outcome":"equal","source_rows":3,"mirror_rows":3,"unrepresentable":2},{"name":"public.t","outcome":"different","source_rows":2000,"mirror_rows":1,"reason":"the row counts differ","differences":[{"key":"id=7","source_rows":1}]}]}`,
	}}
	data := serveFake(t, f)
	for _, c := range []struct {
		args, stdin string
		code        int
		out, errs   string // parts of them
	}{
		{"status", "", exitOK, "pgmirror v1: streaming", ""},
		{"status --json", "", exitOK, exampleStatus + "\n", ""},
		{"checkpoint", "", exitOK, "lsn: 0/5\n", "working on checkpoint"},
		{"inspect t", "", exitOK, "files: 1\npath", ""},
		{"inspect public.t --json", "", exitOK, f.answers["inspect"], ""},
		{"compact t", "", exitOK, "public.t: 2 files, before 3; changes waited for 2.1 ms at most; left alone for now, as a query, a .pin or history reads below their newest rows: 2\n", ""},
		{"expire --dry-run --orphans", "", exitOK, "public.t: 2 snapshots would be expired, 1 kept\n1 file would be deleted, 4 to be deleted later\norphan: /w/x\n1 orphan would be deleted\n", ""},
		{"expire", "", exitOK, "public.t: 2 snapshots expired, 1 kept\n1 file deleted, 4 to be deleted later\n", ""},
		{"resync t", "", exitCannotRun, "", "pgmirror: resync: no table"},
		{"status --watch soon", "", exitUsage, "", `unexpected argument "soon"`},
		{"forget t s.u", "no\n", exitFinding, "", "t, s.u here.\nGo on? Type yes: pgmirror: nothing was removed"},
		{"forget t s.u", "yes\n", exitOK, "removed public.t\nremoved s.u\n", ""},
		{"forget t --yes", "", exitOK, "removed public.t\n", ""},
		{"verify", "", exitFinding, "public.t        2,000            1  different: the row counts differ\n\npublic.t differs in:\n  id=7: missing in the mirror\n", "working on verify\npgmirror: the mirror differs from the source: 1 of 2 tables"},
		{"verify", "", exitFinding, "equal, with 2 values held as NULL (on_unrepresentable: null)\n", ""},
		{`verify a "B".c --json --sample 0.5% --patience 2s`, "", exitFinding, `"mirror_rows":1`, "the mirror differs"},
		{"sql --format csv -c select~42~as~a", "", exitOK, "a\n42\n", ""},
		{"sql --format csv", "select 1 as a; select 2 as a;", exitOK, "a\n1\na\n2\n", ""},
		{"sql --format json -f -", "select 1 as a", exitOK, `[{"a":1}]`, ""},
		{"sql", ".mode csv\nselect 1 as a,\n  '\n.mode json\n' as b; /* still\n.mode json */\n.mode json\nselect 2 as a;\n\n.status\n", exitOK, "a,b\n1,\"\n.mode json\n\"\n[{\"a\":2}]\npgmirror v1: streaming", ""},
		{"sql --format csv", "create temp table t(i int);\ninsert into t values (1);\nselect * from t;\n.exit\nselec", exitOK, "i\n1\n", ""},
		{"sql --format csv", "select 1 as a;\n.nonsense\nselect 2;", exitFinding, "a\n1\n", ".nonsense: no such command"},
		{`sql -c .mode~csv\nselect~1~as~a`, "", exitOK, "a\n1\n", ""},
		{"sql -c select~*~from~nowhere", "", exitFinding, "", "nowhere"},
		{"sql -c select~1;selec", "", exitFinding, "", "selec"},
	} {
		var out, errs strings.Builder
		args := strings.Fields(c.args + " --data " + data)
		for i := range args {
			args[i] = strings.NewReplacer("~", " ", `\n`, "\n").Replace(args[i])
		}
		code := execute(t.Context(), args, program{stdin: strings.NewReader(c.stdin), stdout: &out, stderr: &errs})
		if code != c.code || !strings.Contains(out.String(), c.out) || !strings.Contains(errs.String(), c.errs) {
			t.Errorf("%s: exit code %d\n%s\n%s", c.args, code, out.String(), errs.String())
		}
	}
	want := []string{`checkpoint `, `inspect {"table":"t"}`, `inspect {"table":"public.t"}`, `compact {"tables":["t"]}`, `expire {"dry_run":true,"orphans":true}`, `expire {}`, `resync {"tables":["t"]}`, `forget {"tables":["t","s.u"]}`, `forget {"tables":["t"]}`, `verify {}`, `verify {}`,
		`verify {"tables":["a","\"B\".c"],"sample":0.5,"patience_ms":2000}`}
	if strings.Join(f.asked, "\n") != strings.Join(want, "\n") {
		t.Errorf("asked\n%s\nwant\n%s", strings.Join(f.asked, "\n"), strings.Join(want, "\n"))
	}
	delete(f.answers, "checkpoint")
	var errs strings.Builder
	if code := execute(t.Context(), []string{"checkpoint", "--data", data}, program{stdout: &errs, stderr: &errs}); code != exitCannotRun || !strings.Contains(errs.String(), "no such command") {
		t.Errorf("a refused command: %d %s", code, errs.String())
	}
}
