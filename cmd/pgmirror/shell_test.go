package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"
	"github.com/apache/arrow-go/v18/arrow/memory"

	"pgmirror/readstate"
)

// ordersProvider is a running mirror of one table, public.orders (id, customer), with as many rows as the LSN says.
type ordersProvider struct {
	fakeProvider
	pinned chan struct{} // gets one for each pin, when it has room

	mu  sync.Mutex
	lsn readstate.LSN
}

func (p *ordersProvider) moveTo(lsn readstate.LSN) {
	p.mu.Lock()
	p.lsn = lsn
	p.mu.Unlock()
}

func (p *ordersProvider) Pin(_ context.Context, request readstate.PinRequest) (*readstate.State, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	lsn := p.lsn
	if request.At != 0 {
		if request.At > lsn {
			return nil, errors.New("that LSN is in the future")
		}
		lsn = request.At
	}
	field := func(name, id string, typ arrow.DataType) arrow.Field {
		return arrow.Field{Name: name, Type: typ, Nullable: true, Metadata: arrow.MetadataFrom(map[string]string{readstate.FieldIDKey: id})}
	}
	schema := arrow.NewSchema([]arrow.Field{field("id", "1", arrow.PrimitiveTypes.Int64), field("customer", "2", arrow.BinaryTypes.String)}, nil)
	rows := make([]string, lsn)
	for i := range rows {
		rows[i] = fmt.Sprintf(`{"id":%d,"customer":"c%d"}`, i+1, i+1)
	}
	record, _, err := array.RecordFromJSON(memory.DefaultAllocator, schema, strings.NewReader("["+strings.Join(rows, ",")+"]"))
	if err != nil {
		return nil, err
	}
	select {
	case p.pinned <- struct{}{}:
	default:
	}
	return &readstate.State{LSN: lsn, Release: func() {}, Tables: []*readstate.Table{{
		Name: readstate.TableName{Schema: "public", Name: "orders"}, Schema: schema,
		Batches: []readstate.Batch{{ID: uint64(lsn), Sealed: true, Rows: int(lsn), Columns: recordReader{record}}},
	}}}, nil
}

type recordReader struct{ record arrow.RecordBatch }

func (r recordReader) Read(columns []int, from, to int) ([]arrow.Array, error) {
	out := make([]arrow.Array, len(columns))
	for i, c := range columns {
		out[i] = array.NewSlice(r.record.Column(c), int64(from), int64(to))
	}
	return out, nil
}

// serveOrders answers on a data directory until stop is called.
func serveOrders(t *testing.T, data string, p *ordersProvider) (stop func()) {
	t.Helper()
	l, err := readstate.Listen(data)
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	ended := make(chan error, 1)
	go func() {
		ended <- readstate.NewServer(p, slog.New(slog.DiscardHandler), readstate.ServerConfig{}).Serve(ctx, l)
	}()
	stop = sync.OnceFunc(func() {
		cancel()
		if err := <-ended; err != nil {
			t.Error(err)
		}
	})
	t.Cleanup(stop)
	return stop
}

// shellData is a data directory with a path short enough for a socket.
func shellData(t *testing.T) string {
	t.Helper()
	data, err := os.MkdirTemp("", "pgm")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(data) })
	mustCreate(t, data)
	return data
}

// contains checks each part of a text.
func contains(t *testing.T, text string, parts ...string) {
	t.Helper()
	for _, part := range parts {
		if !strings.Contains(text, part) {
			t.Errorf("no %q in\n%s", part, text)
		}
	}
}

// A person types, completes with Tab, goes over lines, abandons with Ctrl-C, finds what was typed with the up arrow, reads errors with
// a caret, interrupts a query, and leaves with Ctrl-D. The next shell knows what was typed.
func TestShellTyping(t *testing.T) {
	data, home := shellData(t), t.TempDir()
	p := &ordersProvider{lsn: 3, pinned: make(chan struct{}, 1)}
	serveOrders(t, data, p)
	term := startTerminal(t, []string{"HOME=" + home}, "sql", "--data", data)
	term.expect("pgmirror> ")

	contains(t, term.run("select 42 as answer;"), "answer", "42", "└")
	contains(t, term.run("select 'a' ||"), "...> ")
	contains(t, term.run("'b' as ab;"), "│ ab ")
	if out := term.run("\x1b[A"); !strings.Contains(out, "│ ab ") {
		t.Errorf("the up arrow does not bring the statement of two lines back:\n%s", out)
	}
	term.keys("select max(custo\t")
	term.expect("customer")
	contains(t, term.run(") as m from orders;"), "│ c3 ")
	contains(t, term.run("select 1 as"), "...> ")
	term.keys("one from ord\t\t") // twice lists them
	contains(t, term.expect("ordinality"), "orders")
	term.expect("one from ord")
	contains(t, term.run("ers limit 1;"), "│   one ")

	contains(t, term.run("select 'left"), "...> ")
	term.keys("garbage")
	term.expect("garbage")
	term.keys("\x03")
	term.expect("pgmirror> ")
	contains(t, term.run("select 7 as seven;"), "seven", "7")

	contains(t, term.run("select nope from orders;"), `"nope" not found`, "LINE 1: select nope from orders;\r\n               ^")

	// Ctrl-C during a query that would take hours. What was pinned before is out of the channel.
	select {
	case <-p.pinned:
	default:
	}
	term.keys("select sum(sin(a.range * b.range)) from range(100000000) a, range(1000000) b;\r")
	<-p.pinned
	term.keys("\x03")
	term.expect("Interrupted")
	term.expect("pgmirror> ")
	contains(t, term.run("select 8 as eight;"), "eight")
	term.run(" select 'secret';")
	term.keys("\x04")
	if code := term.exit(); code != exitOK {
		t.Errorf("Ctrl-D: exit code %d", code)
	}

	path := filepath.Join(home, ".local", "state", "pgmirror", "history")
	text, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	contains(t, string(text), "select 42 as answer;\nselect 'a' || 'b' as ab;\n", "select 8 as eight;\n")
	if strings.Contains(string(text), "secret") || strings.Contains(string(text), "garbage") {
		t.Errorf("kept what should not be:\n%s", text)
	}
	if info, err := os.Stat(path); err != nil || info.Mode().Perm() != 0o600 {
		t.Errorf("the history's mode: %v %v", info.Mode(), err)
	}
	term = startTerminal(t, []string{"HOME=" + home}, "sql", "--data", data)
	term.expect("pgmirror> ")
	contains(t, term.run("\x1b[A"), "eight")
}

// The commands with a dot: what each prints and changes.
func TestShellCommands(t *testing.T) {
	data := shellData(t)
	p := &ordersProvider{lsn: 3, pinned: make(chan struct{}, 1)}
	serveOrders(t, data, p)
	term := startTerminal(t, []string{"XDG_STATE_HOME=" + t.TempDir(), "PAGER=sed s/^/paged:/"}, "sql", "--data", data)
	term.expect("pgmirror> ")

	contains(t, term.run(".help"), ".tables", ".exit")
	contains(t, term.run(".nonsense"), "no such command")
	term.run(`create table "My notes" (n integer not null, "order" text);`)
	contains(t, term.run(".tables"), "main.\"My notes\"\r\n", "public.orders\r\n")
	if out := term.run(".tables ord%"); strings.Contains(out, "My notes") || !strings.Contains(out, "public.orders") {
		t.Errorf(".tables with a pattern:\n%s", out)
	}
	contains(t, term.run(".schema"), "CREATE TABLE main.\"My notes\" (\r\n  n INTEGER NOT NULL,\r\n  \"order\" VARCHAR\r\n);",
		"CREATE TABLE public.orders (\r\n  id BIGINT,\r\n  customer VARCHAR\r\n);")
	contains(t, term.run(".status"), "pgmirror v1: streaming")

	term.run(".mode markdown")
	contains(t, term.run("from orders limit 2;"), "| id | customer |\r\n|---:|----------|\r\n|  1 | c1       |\r\n|  2 | c2       |\r\n")
	term.run(".mode csv")
	contains(t, term.run("from orders limit 1;"), "id,customer\r\n1,c1\r\n")
	contains(t, term.run(".mode xml"), "unknown format")
	contains(t, term.run(".mode"), "csv")
	term.run(".pager")
	contains(t, term.run("select 1 as a;"), "paged:a\r\npaged:1\r\n")
	term.run(".pager off")
	term.run(".mode table")
	term.run(".timer on")
	contains(t, term.run("select 1;"), "Run Time (s): real ")
	term.run(".timer off")

	term.run(".maxrows 4")
	contains(t, term.run("from range(100) t(n);"), "100 rows (4 shown)", "│     98 │", "│   ·    │")
	wide := "select " + strings.Join(strings.Split(strings.Repeat("'0123456789abcdef'", 12), "''"), "','") + ";"
	term.keys(wide + "\r")
	term.expect("12 columns (5 shown)")
	term.expect("pgmirror> ")

	contains(t, term.run(".lsn"), "0/3\r\n")
	contains(t, term.run(".pin"), "0/3, pinned until .unpin\r\npgmirror@0/3> ")
	p.moveTo(5)
	contains(t, term.run("select count(*) from orders;"), "│            3 │")
	contains(t, term.run(".lsn"), "0/3, pinned")
	contains(t, term.run(".pin 0/2"), "0/2, pinned")
	contains(t, term.run("select count(*) from orders;"), "│            2 │")
	contains(t, term.run(".pin 0/FF"), "in the future", "pgmirror@0/2> ")
	contains(t, term.run(".pin x"), "not an LSN")
	contains(t, term.run(".unpin"), "pgmirror> ")
	contains(t, term.run("select count(*) from orders;"), "│            5 │")
	term.run("begin;")
	contains(t, term.run("select count(*) from orders;"), "│            5 │")
	contains(t, term.run(".lsn"), "0/5, until this transaction ends")
	contains(t, term.run(".pin"), "open transaction")
	term.run("commit;")

	file := filepath.Join(t.TempDir(), "script.sql")
	if err := os.WriteFile(file, []byte(".mode csv\nselect 1\n  as one;\nselect 2 as two\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	contains(t, term.run(".read "+file), "one\r\n1\r\n", "two\r\n2\r\n")
	if err := os.WriteFile(file, []byte("select 1;\n\nselect\n nope;\nselect 'not reached';"), 0o600); err != nil {
		t.Fatal(err)
	}
	if out := term.run(".read '" + file + "'"); !strings.Contains(out, "script.sql, line 3: ") || strings.Contains(out, "not reached") {
		t.Errorf(".read of a file with a fault:\n%s", out)
	}
	if err := os.WriteFile(file, []byte(".read "+file), 0o600); err != nil {
		t.Fatal(err)
	}
	contains(t, term.run(".read "+file), "16 files inside each other")
	term.keys(".exit\r")
	if code := term.exit(); code != exitOK {
		t.Errorf(".exit: exit code %d", code)
	}
}

// Results that do not go to the terminal are whole; the prompt is on standard error.
func TestShellIntoFile(t *testing.T) {
	data := shellData(t)
	serveOrders(t, data, &ordersProvider{lsn: 50, pinned: make(chan struct{}, 1)})
	file, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer file.Close()
	term := startTerminalTo(t, file, []string{"HOME=" + t.TempDir()}, "sql", "--data", data)
	term.expect("pgmirror> ")
	term.run("select id, repeat('x', 200) as x from orders order by id;")
	term.keys(".exit\r")
	if code := term.exit(); code != exitOK {
		t.Errorf("exit code %d", code)
	}
	out, err := os.ReadFile(file.Name())
	if err != nil {
		t.Fatal(err)
	}
	if text := string(out); strings.Count(text, strings.Repeat("x", 200)) != 50 || strings.Contains(text, "pgmirror>") {
		t.Errorf("got\n%s", text)
	}
}

// A shell outlives the run it is connected to: without one statements say so, with a new one they are answered again. A state that was
// pinned is gone, which is said with what to do.
func TestShellReconnects(t *testing.T) {
	data := shellData(t)
	p := &ordersProvider{lsn: 3, pinned: make(chan struct{}, 1)}
	stop := serveOrders(t, data, p)
	term := startTerminal(t, []string{"XDG_STATE_HOME=" + t.TempDir()}, "sql", "--data", data)
	term.expect("pgmirror> ")
	contains(t, term.run("select count(*) from orders;"), "│            3 │")
	term.run(".pin")
	stop()
	contains(t, term.run("select max(customer) from orders;"), readstate.ErrLost.Error(), ".unpin reads the newest again")
	term.run(".unpin")
	contains(t, term.run("select count(*) from orders;"), readstate.ErrLost.Error(), readstate.ErrNotRunning.Error())
	contains(t, term.run(".status"), readstate.ErrNotRunning.Error())
	contains(t, term.run("select 6 * 7 as x;"), "42")

	p = &ordersProvider{lsn: 9, pinned: make(chan struct{}, 1)}
	serveOrders(t, data, p)
	contains(t, term.run("select count(*) from orders;"), "is there again", "│            9 │")
	out := term.run("select max(id) from orders;")
	if strings.Contains(out, "again") {
		t.Errorf("the notice came twice:\n%s", out)
	}
	contains(t, out, "│       9 │")
}

// What Tab puts in the place of what is typed goes on from it, however the candidates are spelled.
func TestLikeFirst(t *testing.T) {
	for _, c := range []struct {
		typed string
		words []string
		want  []string
	}{
		{"ord", []string{"orders_2025", `"OrderLines"`, "orders_2026"}, []string{"orders_2025", "orders_2026"}},
		{"ord", []string{`"OrderLines"`, `"Orders"`, `"ORDERS"`}, []string{`"OrderLines"`, `"Orders"`}},
		{"ord", []string{"ORDER", "orders"}, []string{"orders"}},
		{"Ord", []string{"ORDER", "orders", "ordinal"}, []string{"ORDER"}},
		{"", []string{"a", `"B"`}, []string{"a", `"B"`}},
		{"x", nil, nil},
	} {
		got := likeFirst(slices.Clone(c.words), c.typed)
		if !slices.Equal(got, c.want) {
			t.Errorf("%q: %q, want %q", c.typed, got, c.want)
		}
	}
}
