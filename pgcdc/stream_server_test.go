package pgcdc_test

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"net"
	"slices"
	"strings"
	"sync/atomic"
	"testing"
	"time"

	"pgmirror/pgcdc"
	"pgmirror/test/harness"
)

var streamTests = map[string]serverTest{
	"Commits": streamCommits, "Idle": streamIdle, "Blocked": streamBlocked, "Paused": streamPaused, "Terminated": streamTerminated, "Silent": streamSilent,
	"OpenTransaction": streamOpenTransaction, "WaitPoint": streamWaitPoint, "Settings": streamSettings, "SlotRefusals": streamSlotRefusals,
	"SlotActive": streamSlotActive, "SlotGivenUp": streamSlotGivenUp, "Publication": streamPublication, "Partial": streamPartial, "Goodbye": streamGoodbye,
	"Undecodable": streamUndecodable,
}

// Commits arrive in order with increasing end LSNs, each whole, in both formats, with names as they were written.
func streamCommits(t *testing.T, p *harness.Postgres) {
	r := newRig(t, p)
	r.exec(`CREATE TABLE "Se lect"("Order" int PRIMARY KEY, "ä""b" text, select_ numeric)`, "CREATE TABLE u(i int)")
	r.publish("FOR ALL TABLES")
	r.createSlot()
	r.CloseSnapshot()
	for _, binary := range []bool{false, true} {
		f := r.stream(r.Source, binary)
		r.exec(`INSERT INTO "Se lect" VALUES (1, 'x', 1.50), (2, NULL, NULL)`, `UPDATE "Se lect" SET "ä""b" = 'y' WHERE "Order" = 1`,
			`DELETE FROM "Se lect"`, "TRUNCATE u")
		one, two := "1|x|1.50", "1|y|1.50"
		keys := []string{"delete public.Se lect 1|<n>|<n>", "delete public.Se lect 2|<n>|<n>"}
		if binary {
			one, two = "00000001|78|00020000000000020001"+"1388", "00000001|79|00020000000000020001"+"1388"
			keys = []string{"delete public.Se lect 00000001|<n>|<n>", "delete public.Se lect 00000002|<n>|<n>"}
		}
		second := strings.Replace(strings.SplitN(one, "|", 2)[0], "1", "2", 1) + "|<n>|<n>"
		var last pgcdc.LSN
		for _, want := range [][]string{
			{"insert public.Se lect " + one, "insert public.Se lect " + second}, {"update public.Se lect " + two}, keys, {"truncate 1"},
		} {
			transaction, got := f.rows()
			slices.Sort(got)
			if !slices.Equal(got, want) {
				t.Errorf("binary %v: %q, want %q", binary, got, want)
			}
			if transaction.EndLSN <= last || transaction.EndLSN > r.Received() {
				t.Errorf("end %s after %s, received %s", transaction.EndLSN, last, r.Received())
			}
			last = transaction.EndLSN
		}
		r.Acknowledge(last)
		f.cancel()
		if err := f.end(); !errors.Is(err, context.Canceled) {
			t.Errorf("cancelled stream: %v", err)
		}
		eventually(t, "the last status has moved the slot", func() bool { return r.slot().ConfirmedFlush >= last })
	}
}

// Work on a table that is not published moves the slot through keepalives alone, though the server never asks (S-W1, S-W3).
func streamIdle(t *testing.T, p *harness.Postgres) {
	r := newRig(t, p)
	r.exec("CREATE TABLE t(id int PRIMARY KEY)", "CREATE TABLE other(v text)")
	r.publish("FOR TABLE t")
	r.createSlot()
	r.CloseSnapshot()
	f := r.stream(r.Source, true)
	before := r.slot()
	r.exec("INSERT INTO other SELECT repeat('x', 500) FROM generate_series(1, 2000)")
	end := parseLSN(t, p.QueryRow("SELECT pg_current_wal_lsn()"))
	f.reach(end)
	eventually(t, "the server knows what has arrived", func() bool {
		return p.QueryRow("SELECT write_lsn >= '"+end.String()+"' FROM pg_stat_replication WHERE usename = '"+r.name+"'") == "t"
	})
	if after := r.slot(); after.ConfirmedFlush != before.ConfirmedFlush {
		t.Errorf("the slot moved to %s with nothing acknowledged", after.ConfirmedFlush)
	}
	r.Acknowledge(end)
	eventually(t, "the acknowledgement moves the slot", func() bool { return r.slot().ConfirmedFlush >= end })
	r.Acknowledge(before.ConfirmedFlush - 1)
	at := p.QueryRow("SELECT reply_time FROM pg_stat_replication WHERE usename = '" + r.name + "'")
	eventually(t, "an idle stream goes on telling its position", func() bool {
		return p.QueryRow("SELECT reply_time > '"+at+"' FROM pg_stat_replication WHERE usename = '"+r.name+"'") == "t"
	})
	if got := r.slot().ConfirmedFlush; got < end {
		t.Errorf("the slot went back from %s to %s", end, got)
	}
	row := p.QueryRow("SELECT flush_lsn = replay_lsn, write_lsn >= flush_lsn, application_name FROM pg_stat_replication WHERE usename = '" + r.name + "'")
	if row != "t|t|pgmirror" {
		t.Errorf("pg_stat_replication shows %s", row)
	}
}

// While nobody takes the events, the server is answered: the connection outlives both sides' patience.
func streamBlocked(t *testing.T, p *harness.Postgres) {
	r := newRig(t, p, func(c *pgcdc.Config) { c.StatusInterval = 200 * time.Millisecond })
	r.exec("CREATE TABLE t(id int PRIMARY KEY, v text)")
	r.publish("FOR TABLE t")
	r.createSlot()
	f := r.stream(r.Source, true)
	for i := range 20 {
		r.exec(fmt.Sprintf("INSERT INTO t SELECT i, repeat('x', 2000) FROM generate_series(%d, %d) i", i*500, i*500+499))
	}
	eventually(t, "the stream runs", func() bool { return r.slot().Active })
	pid := r.slot().ActivePID
	time.Sleep(6*200*time.Millisecond + 800*time.Millisecond) // what is shown is that a time passes without an end
	for i := range 20 {
		if _, rows := f.rows(); len(rows) != 500 {
			t.Fatalf("transaction %d has %d rows", i, len(rows))
		}
	}
	if now := r.slot().ActivePID; now != pid {
		t.Errorf("process %d, before %d", now, pid)
	}
}

// While Admit waits nothing more is read, though there is room for events, and the server is answered; afterwards everything arrives.
func streamPaused(t *testing.T, p *harness.Postgres) {
	gate := make(chan struct{})
	var closed atomic.Bool
	r := newRig(t, p, func(c *pgcdc.Config) {
		c.StatusInterval = 200 * time.Millisecond
		c.Admit = func(ctx context.Context) error {
			if !closed.Load() {
				return nil
			}
			select {
			case <-gate:
				return nil
			case <-ctx.Done():
				return ctx.Err()
			}
		}
	})
	r.exec("CREATE TABLE t(id int PRIMARY KEY, v text)")
	r.publish("FOR TABLE t")
	r.createSlot()
	ctx, cancel := context.WithCancel(context.Background())
	events, ended := make(chan pgcdc.Event, 10_000), make(chan error, 1)
	go func() { ended <- r.Stream(ctx, r.slot().ConfirmedFlush, true, events) }()
	defer func() { cancel(); <-ended }()
	<-events // the stream has begun
	closed.Store(true)
	for i := range 20 {
		r.exec(fmt.Sprintf("INSERT INTO t SELECT i, repeat('x', 2000) FROM generate_series(%d, %d) i", i*500, i*500+499))
	}
	pid, end := r.slot().ActivePID, r.slot().WALEnd
	time.Sleep(6*200*time.Millisecond + 800*time.Millisecond) // what is shown is that a time passes without an end
	if received := r.Received(); received >= end-1<<20 {
		t.Errorf("%s was read while nothing was admitted, the WAL ends at %s", received, end)
	}
	if now := r.slot().ActivePID; now != pid || pid == 0 {
		t.Errorf("process %d, before %d", now, pid)
	}
	close(gate)
	for rows, limit := 0, time.After(patience); rows < 20*500; {
		select {
		case e := <-events:
			if e.Transaction != nil {
				rows += int(e.Transaction.Rows)
				e.Transaction.Release()
			}
		case err := <-ended:
			ended <- err
			t.Fatalf("the stream ended: %v", err)
		case <-limit:
			t.Fatalf("only %d rows arrive", rows)
		}
	}
}

// A terminated walsender is a lost connection, worth another try, and the next try succeeds (S-U3).
func streamTerminated(t *testing.T, p *harness.Postgres) {
	r := newRig(t, p)
	r.exec("CREATE TABLE t(id int PRIMARY KEY)")
	r.publish("FOR TABLE t")
	r.createSlot()
	f := r.stream(r.Source, true)
	r.exec("INSERT INTO t VALUES (1)")
	f.rows()
	p.Exec(fmt.Sprintf("SELECT pg_terminate_backend(%d)", r.slot().ActivePID))
	if err := f.end(); !pgcdc.IsRetryable(err) {
		t.Errorf("not retryable: %v", err)
	}
	f = r.stream(r.Source, true)
	if _, rows := f.rows(); !slices.Equal(rows, []string{"insert public.t 00000001"}) {
		t.Errorf("after reconnecting: %q", rows)
	}
}

// A connection whose packets are dropped without a word is noticed (S-U3).
func streamSilent(t *testing.T, p *harness.Postgres) {
	firewall := newFirewall(t, fmt.Sprintf("127.0.0.1:%d", p.Port()))
	r := newRig(t, p, func(c *pgcdc.Config) { c.StatusInterval = 200 * time.Millisecond })
	r.exec("CREATE TABLE t(id int PRIMARY KEY)")
	r.publish("FOR TABLE t")
	r.createSlot()
	through := r.cfg
	through.Source = fmt.Sprintf("host=127.0.0.1 port=%d user=%s dbname=%s sslmode=disable", firewall.port(), r.name, r.name)
	s, err := pgcdc.New(through)
	if err != nil {
		t.Fatal(err)
	}
	defer s.Close()
	f := r.stream(s, true)
	r.exec("INSERT INTO t VALUES (1)")
	f.rows()
	time.Sleep(6*200*time.Millisecond + 800*time.Millisecond) // an idle but living connection stays
	select {
	case err := <-f.result:
		t.Fatalf("an idle stream ended: %v", err)
	default:
	}
	firewall.drop.Store(true)
	if err := f.end(); !errors.Is(err, pgcdc.ErrSilent) || !pgcdc.IsRetryable(err) {
		t.Errorf("silent connection: %v", err)
	}
}

// firewall passes a TCP connection on until it is told to drop what comes.
type firewall struct {
	listener net.Listener
	drop     atomic.Bool
}

func newFirewall(t *testing.T, to string) *firewall {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { l.Close() })
	f := &firewall{listener: l}
	go func() {
		for {
			client, err := l.Accept()
			if err != nil {
				return
			}
			server, err := net.Dial("tcp", to)
			if err != nil {
				client.Close()
				return
			}
			t.Cleanup(func() { client.Close(); server.Close() })
			go f.pass(client, server)
			go f.pass(server, client)
		}
	}()
	return f
}

func (f *firewall) pass(from, to net.Conn) {
	buffer := make([]byte, 32<<10)
	for {
		n, err := from.Read(buffer)
		if err == nil && !f.drop.Load() {
			_, err = to.Write(buffer[:n])
		}
		if err != nil {
			if !errors.Is(err, io.EOF) || !f.drop.Load() {
				to.Close()
			}
			return
		}
	}
}

func (f *firewall) port() int { return f.listener.Addr().(*net.TCPAddr).Port }

// A transaction that was open at a reconnect comes again from its first row, even after a later commit, past its start,
// was acknowledged [an open transaction holds back no acknowledgement].
func streamOpenTransaction(t *testing.T, p *harness.Postgres) {
	r := newRig(t, p)
	r.exec("CREATE TABLE t(id int PRIMARY KEY)")
	r.publish("FOR TABLE t")
	r.createSlot()
	f := r.stream(r.Source, false)
	open := p.Open("postgres", r.name)
	open.Exec("BEGIN", "INSERT INTO t SELECT generate_series(1, 100)")
	r.exec("INSERT INTO t VALUES (1000)", "CHECKPOINT")
	later, rows := f.rows()
	if !slices.Equal(rows, []string{"insert public.t 1000"}) {
		t.Fatalf("%q", rows)
	}
	r.Acknowledge(later.EndLSN)
	eventually(t, "the slot moves past the open transaction's start", func() bool { return r.slot().ConfirmedFlush >= later.EndLSN })
	p.Exec(fmt.Sprintf("SELECT pg_terminate_backend(%d)", r.slot().ActivePID))
	f.end()
	f = r.stream(r.Source, false)
	open.Exec("INSERT INTO t SELECT generate_series(101, 200)", "COMMIT")
	if transaction, rows := f.rows(); len(rows) != 200 || rows[0] != "insert public.t 1" || rows[199] != "insert public.t 200" || transaction.Rows != 200 {
		t.Errorf("%d rows, %d counted", len(rows), transaction.Rows)
	}
}

// With asynchronous commit the wait point still lies at or above one's own commit, and the stream passes it without
// another write, as a role without any right but to connect (M messages are PUBLIC's).
func streamWaitPoint(t *testing.T, p *harness.Postgres) {
	r := newRig(t, p)
	r.exec("CREATE TABLE t(id int PRIMARY KEY)")
	r.publish("FOR TABLE t")
	r.createSlot()
	f := r.stream(r.Source, true)
	writer := p.Open("postgres", r.name)
	writer.Exec("SET synchronous_commit = off")
	for i := range 10 {
		writer.Exec(fmt.Sprintf("INSERT INTO t VALUES (%d)", i))
		lsn, err := r.WaitPoint(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		transaction, _ := f.rows()
		if lsn < transaction.EndLSN {
			t.Errorf("wait point %s below the commit that ends at %s", lsn, transaction.EndLSN)
		}
		f.reach(lsn)
	}
	// PostgreSQL 17 gave the function another argument.
	signature := p.QueryRow("SELECT oid::regprocedure FROM pg_proc WHERE proname = 'pg_logical_emit_message' AND proargtypes[2] = 'text'::regtype")
	r.exec("REVOKE EXECUTE ON FUNCTION " + signature + " FROM PUBLIC")
	lsn, err := r.WaitPoint(t.Context())
	if err != nil || lsn == 0 {
		t.Errorf("without the right to write messages: %s, %v", lsn, err)
	}
}

// Defaults of the role and of the database change no value, in the stream or in a copy (S-T15).
func streamSettings(t *testing.T, p *harness.Postgres) {
	r := newRig(t, p)
	r.exec("CREATE TABLE t(id int PRIMARY KEY, at timestamptz, d date, i interval, b bytea, f float8, m money, c regclass)")
	r.publish("FOR TABLE t")
	for _, of := range []string{"DATABASE " + r.name, "ROLE " + r.name} {
		for _, setting := range []string{"datestyle = 'German'", "timezone = 'Asia/Kolkata'", "bytea_output = 'escape'", "extra_float_digits = 0",
			"intervalstyle = 'iso_8601'", "search_path = 'public'", "quote_all_identifiers = on",
			"client_encoding = 'LATIN1'", "client_min_messages = 'error'"} {
			p.Exec("ALTER " + of + " SET " + setting)
		}
	}
	for _, timeout := range []string{"statement_timeout", "idle_session_timeout", "idle_in_transaction_session_timeout"} {
		p.Exec("ALTER ROLE " + r.name + " SET " + timeout + " = 1") // of the role alone: the database's would end the test's own sessions
	}
	r.createSlot()
	insert := p.Open("postgres", r.name)
	insert.Exec("SET datestyle = 'ISO'; SET statement_timeout = 0; SET timezone = 'UTC'")
	insert.Exec("INSERT INTO t VALUES (1, '2024-02-01 03:04:05.678+00', '2024-02-01', '1 mon 2 days 03:04:05', '\\x00ff', 0.1::float8 + 0.2::float8, 1234.5, 'public.t')")
	want := "1|2024-02-01 03:04:05.678+00|2024-02-01|1 mon 2 days 03:04:05|\\x00ff|0.30000000000000004|$1,234.50|public.t"
	f := r.stream(r.Source, false)
	if _, rows := f.rows(); !slices.Equal(rows, []string{"insert public.t " + want}) {
		t.Errorf("stream: %q", rows)
	}
	// The copy's own snapshot predates the row; a new slot's does not.
	f.cancel()
	f.end()
	if err := r.DropSlot(t.Context()); err != nil {
		t.Fatal(err)
	}
	snapshot := r.createSlot()
	table := r.table("t")
	var got []string
	err := r.Copy(t.Context(), snapshot, table, func(tuple pgcdc.Tuple) error {
		got = append(got, texts(pgcdc.Tuple{tuple[6], tuple[7]}))
		return nil
	})
	if err != nil || !slices.Equal(got, []string{"$1,234.50|public.t"}) {
		t.Errorf("copy: %q, %v", got, err)
	}
}

// A slot that is missing or belongs to something else is refused by what it is, and never dropped in place of ours.
func streamSlotRefusals(t *testing.T, p *harness.Postgres) {
	r := newRig(t, p)
	r.exec("CREATE TABLE t(id int PRIMARY KEY)")
	r.publish("FOR TABLE t")
	refusal := func() error { return r.Stream(t.Context(), 0, true, make(chan pgcdc.Event)) }
	if err := refusal(); !errors.Is(err, pgcdc.ErrSlotMissing) || pgcdc.IsRetryable(err) {
		t.Errorf("missing: %v", err)
	}
	if err := r.DropSlot(t.Context()); err != nil {
		t.Errorf("drop of a missing slot: %v", err)
	}
	for what, statement := range map[string]string{
		"plugin":   "SELECT pg_create_logical_replication_slot('" + r.name + "', 'test_decoding')",
		"database": "",
		"physical": "SELECT pg_create_physical_replication_slot('" + r.name + "')",
	} {
		if statement == "" {
			p.Exec("SELECT pg_create_logical_replication_slot('" + r.name + "', 'pgoutput')") // in the database postgres
		} else {
			r.exec(statement)
		}
		if err := refusal(); !errors.Is(err, pgcdc.ErrSlotMismatch) || pgcdc.IsRetryable(err) {
			t.Errorf("%s: %v", what, err)
		}
		if err := r.DropSlot(t.Context()); !errors.Is(err, pgcdc.ErrSlotMismatch) {
			t.Errorf("%s dropped: %v", what, err)
		}
		p.Exec("SELECT pg_drop_replication_slot('" + r.name + "')")
	}
	r.createSlot()
	if _, err := r.CreateSlot(t.Context()); !errors.Is(err, pgcdc.ErrSlotExists) || pgcdc.IsRetryable(err) {
		t.Errorf("made twice: %v", err)
	}
}

// A second stream and a drop wait for the first connection to go away, as after kill -9 and an instant restart (S-W11).
func streamSlotActive(t *testing.T, p *harness.Postgres) {
	r := newRig(t, p)
	r.exec("CREATE TABLE t(id int PRIMARY KEY)", "INSERT INTO t VALUES (1)")
	r.publish("FOR TABLE t")
	r.createSlot()
	first := r.stream(r.Source, true)
	eventually(t, "the first stream runs", func() bool { return r.slot().Active })
	second := r.stream(r.open(), true)
	select {
	case err := <-second.result:
		t.Fatalf("the second stream did not wait: %v", err)
	case <-time.After(300 * time.Millisecond):
	}
	first.cancel()
	first.end()
	r.exec("INSERT INTO t VALUES (2)")
	if _, rows := second.rows(); !slices.Equal(rows, []string{"insert public.t 00000002"}) {
		t.Errorf("%q", rows)
	}
	time.AfterFunc(300*time.Millisecond, second.cancel)
	if err := r.DropSlot(t.Context()); err != nil {
		t.Errorf("drop of a slot in use: %v", err)
	}
	if _, found, err := r.Slot(t.Context()); found || err != nil {
		t.Errorf("after the drop: %v, %v", found, err)
	}
}

// The making of a slot waits for older transactions; when it is given up, the server gives it up too, and nothing is left.
func streamSlotGivenUp(t *testing.T, p *harness.Postgres) {
	log := make(lines, 100)
	r := newRig(t, p, func(c *pgcdc.Config) { c.Log = slog.New(slog.NewTextHandler(log, nil)) })
	r.SetSlotNotice(10 * time.Millisecond)
	writer := p.Open("postgres", r.name)
	writer.Exec("CREATE TABLE t(id int PRIMARY KEY)", "BEGIN", "INSERT INTO t VALUES (1)")
	ctx, cancel := context.WithCancel(t.Context())
	slots := func() string {
		return p.QueryRow("SELECT count(*) FROM pg_replication_slots WHERE slot_name = '" + r.name + "'")
	}
	result := make(chan error, 1)
	go func() {
		_, err := r.CreateSlot(ctx)
		result <- err
	}()
	pid, _ := writer.Query("SELECT pg_backend_pid()")
	limit := time.After(patience)
	for told := false; !told; {
		select {
		case line := <-log: // it may tell of other tests' transactions on this server first
			told = strings.Contains(line, pid[0][0])
		case err := <-result:
			t.Fatalf("the slot did not wait: %v", err)
		case <-limit:
			t.Fatalf("nothing tells that the slot waits for process %s", pid[0][0])
		}
	}
	cancel()
	if err := <-result; !errors.Is(err, context.Canceled) {
		t.Errorf("given up: %v", err)
	}
	writer.Exec("COMMIT")
	eventually(t, "no slot is left", func() bool { return slots() == "0" })
	if snapshot := r.createSlot(); snapshot.Name == "" || snapshot.ConsistentPoint != r.slot().ConfirmedFlush {
		t.Errorf("%+v, slot at %s", snapshot, r.slot().ConfirmedFlush)
	}
}

// lines is a log that can be waited for.
type lines chan string

func (l lines) Write(line []byte) (int, error) {
	l <- string(line)
	return len(line), nil
}

// Publications that are missing, leave something out, or are younger than the slot (S-W7) are told apart.
func streamPublication(t *testing.T, p *harness.Postgres) {
	r := newRig(t, p)
	r.exec("CREATE TABLE t(id int PRIMARY KEY)")
	refusal := func() error { return r.Stream(t.Context(), 0, true, make(chan pgcdc.Event)) }
	r.createSlot()
	if err := refusal(); !errors.Is(err, pgcdc.ErrPublicationMissing) || pgcdc.IsRetryable(err) {
		t.Errorf("missing: %v", err)
	}
	if _, err := r.Look(t.Context()); !errors.Is(err, pgcdc.ErrPublicationMissing) {
		t.Errorf("look at a missing one: %v", err)
	}
	r.exec("INSERT INTO t VALUES (1)")
	r.publish("FOR TABLE t WITH (publish = 'insert, update')")
	err := refusal()
	if !errors.Is(err, pgcdc.ErrPublicationPartial) || !strings.Contains(err.Error(), "delete, truncate") {
		t.Errorf("partial: %v", err)
	}
	if table := r.table("t"); !strings.Contains(table.Unsupported, "leaves out delete, truncate") {
		t.Errorf("a look at a partial one: %q", table.Unsupported)
	}
	r.cfg.PartialPublish = true
	if tables, err := r.open().Look(t.Context()); err != nil || tables.Tables[0].Unsupported != "" {
		t.Errorf("a look at a partial one that is accepted: %v, %q", err, tables.Tables[0].Unsupported)
	}
	f := r.stream(r.open(), true)
	if err := f.end(); !errors.Is(err, pgcdc.ErrPublicationYounger) || pgcdc.IsRetryable(err) {
		t.Errorf("younger: %v", err)
	}
}

// A publication that becomes partial keeps no stream of this Source from beginning again: it stops its own tables, and others go on.
func streamPartial(t *testing.T, p *harness.Postgres) {
	r := newRig(t, p)
	r.exec("CREATE TABLE t(id int PRIMARY KEY)", "CREATE TABLE u(id int PRIMARY KEY)")
	r.more("whole FOR TABLE t", "part FOR TABLE u")
	r.cfg.PartialPublish = false
	s := r.open()
	r.createSlot()
	for i, change := range []string{"publish = 'insert, update, delete, truncate'", "publish = 'insert'"} {
		r.exec("ALTER PUBLICATION part SET (" + change + ")")
		f := r.stream(s, true)
		r.exec(fmt.Sprintf("INSERT INTO t VALUES (%d)", i))
		if _, rows := f.rows(); len(rows) != 1 {
			t.Errorf("%s: %q", change, rows)
		}
		f.cancel()
		f.end()
		eventually(t, "the slot is free", func() bool { return !r.slot().Active })
	}
	if err := r.open().Stream(t.Context(), 0, true, make(chan pgcdc.Event)); !errors.Is(err, pgcdc.ErrPublicationPartial) {
		t.Errorf("the first stream of a Source: %v", err)
	}
}

// A stream that is cancelled in the midst of much data, with nobody taking it, ends at once.
func streamGoodbye(t *testing.T, p *harness.Postgres) {
	r := newRig(t, p)
	r.exec("CREATE TABLE t(id int PRIMARY KEY, v text)")
	r.publish("FOR TABLE t")
	r.createSlot()
	for i := range 10 {
		r.exec(fmt.Sprintf("INSERT INTO t SELECT i, repeat('x', 2000) FROM generate_series(%d, %d) i", i*1000, i*1000+999))
	}
	f := r.stream(r.Source, true)
	<-f.events
	began := time.Now()
	f.cancel()
	if err := f.end(); !errors.Is(err, context.Canceled) {
		t.Errorf("%v", err)
	}
	if took := time.Since(began); took > 3*time.Second {
		t.Errorf("ended after %v", took)
	}
}

// A fast stop of the source is not held up by what is not acknowledged; afterwards the stream goes on (S-W10), a kill
// loses nothing, and a server that is down is worth another try.
func TestSourceShutdown(t *testing.T) {
	p := harness.StartPostgres(t)
	r := newRig(t, p)
	r.exec("CREATE TABLE t(id int PRIMARY KEY)")
	r.publish("FOR TABLE t")
	r.createSlot()
	r.CloseSnapshot()
	f := r.stream(r.Source, true)
	r.exec("INSERT INTO t VALUES (1)")
	f.rows()
	began := time.Now()
	stopped := make(chan error, 1)
	go func() { stopped <- p.Stop(harness.Fast) }()
	if err := f.end(); !pgcdc.IsRetryable(err) {
		t.Errorf("stopped source: %v", err)
	}
	if err := <-stopped; err != nil || time.Since(began) > 5*time.Second {
		t.Errorf("stopped after %v, %v", time.Since(began), err)
	}
	if _, err := r.Identify(t.Context()); !pgcdc.IsRetryable(err) {
		t.Errorf("source that is down: %v", err)
	}
	p.Start()
	f = r.stream(r.Source, true)
	if _, rows := f.rows(); !slices.Equal(rows, []string{"insert public.t 00000001"}) {
		t.Errorf("after the restart: %q", rows)
	}
	p.Kill()
	if err := f.end(); !pgcdc.IsRetryable(err) {
		t.Errorf("killed source: %v", err)
	}
	p.Start()
	f = r.stream(r.Source, true)
	if _, rows := f.rows(); !slices.Equal(rows, []string{"insert public.t 00000001"}) {
		t.Errorf("after the kill: %q", rows)
	}
}

// A slot whose WAL was removed is lost, in its row, for a new stream, and for one that was running (S-W6).
func TestSlotLost(t *testing.T) {
	p := harness.StartPostgres(t, harness.Setting("max_slot_wal_keep_size", "1MB"), harness.Setting("min_wal_size", "32MB"),
		harness.Setting("max_wal_size", "32MB"))
	r := newRig(t, p)
	r.exec("CREATE TABLE t(id int PRIMARY KEY)")
	r.publish("FOR TABLE t")
	r.createSlot()
	f := r.stream(r.Source, true)
	r.exec("INSERT INTO t VALUES (1)")
	f.rows()
	for range 4 {
		r.exec("CREATE TABLE junk AS SELECT 1", "SELECT pg_switch_wal()", "DROP TABLE junk", "CHECKPOINT")
	}
	if err := f.end(); err == nil {
		t.Error("the running stream ended without an error")
	}
	eventually(t, "the slot is lost", func() bool { return r.slot().WALStatus == "lost" })
	err := r.Stream(t.Context(), 0, true, make(chan pgcdc.Event))
	if !errors.Is(err, pgcdc.ErrSlotLost) || pgcdc.IsRetryable(err) {
		t.Errorf("lost slot: %v", err)
	}
	if err := r.DropSlot(t.Context()); err != nil {
		t.Errorf("drop of a lost slot: %v", err)
	}
}
