package pgcdc

import (
	"context"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/jackc/pgx/v5/pgconn"
)

// capturedStreamed is what pgoutput sent for streamedWorkload with streaming on, in binary, as capturedStream is; of many rows in
// a row that are alike in kind and subtransaction, two are kept.
const capturedStreamed = "testdata/streamed.bin"

// streamedTables: each session has a table that it alone alters and truncates, and all write to shared.
const streamedTables = `
	create table shared (id int primary key, v text, w numeric);
	create table own0 (id int primary key, v text);
	create table own1 (id int primary key, v text);
	create table own2 (id int primary key, v text);
	alter table own2 replica identity full;
	create table unseen (v text);
	create function rows_with_exceptions(first int, n int) returns void language plpgsql as $$
	begin
		for i in first .. first + n - 1 loop
			begin
				insert into shared values (i, repeat('e', 300), i);
				if i % 3 = 0 then raise exception 'no'; end if;
				if i % 5 = 0 then
					begin
						update shared set v = repeat('i', 300) where id = i;
						raise exception 'inner';
					exception when others then
						insert into unseen values ('caught');
					end;
				end if;
			exception when others then
				insert into shared values (-i, 'caught', null);
			end;
		end loop;
	end $$;
	create publication streamed for table shared, own0, own1, own2`

// streamedWorkload has in it what streaming adds. Each line is a session's number and what it does.
var streamedWorkload = []string{
	"0 begin; insert into shared select i, repeat('a', 200), i from generate_series(1, 400) i",
	"1 begin; insert into shared select i, repeat('b', 200), i from generate_series(1001, 1400) i",
	"2 insert into shared values (3000, 'between', 1); insert into own2 values (1, 'whole')",
	"0 savepoint a; insert into own0 select i, repeat('c', 200) from generate_series(1, 400) i; savepoint b; update shared set v = repeat('d', 200) where id <= 300",
	"1 savepoint a; delete from shared where id between 1001 and 1200; truncate own1; insert into own1 select i, repeat('f', 200) from generate_series(1, 300) i",
	"0 rollback to b; insert into shared select i, repeat('g', 200), null from generate_series(401, 700) i",
	"1 rollback to a; insert into shared select i, 'after', i from generate_series(1401, 1403) i; commit", // S-X1
	"0 savepoint c; alter table own0 add column gone int; insert into own0 select i, repeat('h', 200), i from generate_series(401, 800) i; rollback to c; insert into own0 values (900, 'old shape')",
	"0 alter table own0 add column kept text; insert into own0 select i, repeat('j', 200), 'kept' from generate_series(1001, 1300) i; commit",
	"2 insert into own0 values (2000, 'shape stated in a stream only', 'x')",
	"2 begin; insert into shared select i, repeat('k', 200), i from generate_series(5001, 7500) i; rollback", // S-X10
	"1 begin; select rows_with_exceptions(10001, 400); insert into shared values (20000, repeat('l', 2000), 1); commit",
	"2 begin; insert into shared select i, repeat('m', 200), i from generate_series(30001, 30500) i; prepare transaction 'p'",
	"1 insert into shared values (40000, 'before commit prepared', 1)",
	"2 commit prepared 'p'",
	"2 begin; insert into shared select i, repeat('n', 200), i from generate_series(31001, 31500) i; prepare transaction 'p'",
	"2 rollback prepared 'p'",
	"2 begin; insert into own2 select i, repeat('r', 200) from generate_series(2, 400) i; truncate own2, own1; insert into own2 select i, repeat('s', 200) from generate_series(1, 400) i; commit",
	"0 begin; savepoint a; insert into own1 select i, repeat('o', 200) from generate_series(1001, 1400) i; savepoint b; insert into own1 select i, repeat('p', 200) from generate_series(2001, 2400) i; release b; insert into own1 select i, repeat('q', 200) from generate_series(3001, 3400) i; rollback to a; insert into own1 values (4000, 'alone'); commit",
}

// sessions are connections to the server of a decodeServer.
type sessions struct {
	t     *testing.T
	conns []*pgconn.PgConn
}

func (s *decodeServer) sessions(t *testing.T, n int) *sessions {
	t.Helper()
	all := &sessions{t: t}
	for range n {
		conn, err := pgconn.ConnectConfig(t.Context(), s.config)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close(context.WithoutCancel(t.Context())) })
		all.conns = append(all.conns, conn)
	}
	return all
}

func (s *sessions) exec(session int, sql string) {
	s.t.Helper()
	if _, err := s.conns[session].Exec(s.t.Context(), sql).ReadAll(); err != nil {
		s.t.Fatalf("session %d: %v\nin %s", session, err, sql)
	}
}

// peek is what pgoutput sends for all that the slot has to tell.
func (s *decodeServer) peek(t *testing.T, options string) ([][]byte, error) {
	t.Helper()
	s.exec(t, "checkpoint") // a rollback is not waited for until it is on disk, and only what is there is decoded
	result := s.conn.ExecParams(t.Context(), "select data from pg_logical_slot_peek_binary_changes('streamed', null, null, "+
		"'publication_names', 'streamed', 'messages', 'true', 'binary', 'true', "+options+")", nil, nil, nil, []int16{1}).Read()
	var messages [][]byte
	for _, row := range result.Rows {
		messages = append(messages, row[0])
	}
	return messages, result.Err
}

// assembled is transactions printed: all that they say but when shapes were stated. One without rows is left out: the server leaves
// it out itself, unless it has streamed a part.
func assembled(t *testing.T, a *assembler, messages [][]byte) (all []string) {
	t.Helper()
	told := map[uint32]*Relation{}
	for _, tx := range assembleAll(t, a, messages) {
		var text strings.Builder
		fmt.Fprintf(&text, "%d from %s to %s at %s, %d rows", tx.XID, tx.CommitLSN, tx.EndLSN, tx.CommitTime, tx.Rows)
		if err := tx.Changes(func(c *Change) error {
			if c.Op == OpRelation {
				told[c.Relation.OID] = c.Relation
				return nil
			}
			shape := ""
			if c.Relation != nil {
				if told[c.Relation.OID] != c.Relation {
					t.Errorf("transaction %d has a row of %s whose shape was not stated before it", tx.XID, c.Relation.Name)
				}
				shape = fmt.Sprintf("%+v", *c.Relation)
				c.Relation = nil
			}
			fmt.Fprintf(&text, "\n%s %+v", shape, *c)
			return nil
		}); err != nil {
			t.Fatal(err)
		}
		if tx.Rows > 0 {
			all = append(all, text.String())
		}
		tx.Release()
	}
	if len(a.streamed) != 0 || a.memory != 0 {
		t.Errorf("%d transactions and %d bytes are left open", len(a.streamed), a.memory)
	}
	return all
}

// checkStreamed holds that what the server streams is what it sends whole, with what PostgreSQL 18 says there of rollbacks (S-X3). The second result is false when it cannot stream it:
// see ErrStreaming.
func checkStreamed(t *testing.T, server *decodeServer) ([][]byte, bool) {
	t.Helper()
	whole, err := server.peek(t, "'proto_version', '1'")
	if err != nil {
		t.Fatal(err)
	}
	want := assembled(t, newAssembler(t.TempDir(), 0), whole)
	messages, err := server.peek(t, "'proto_version', '2', 'streaming', 'on'")
	if sqlState(err) == internalError {
		t.Logf("the server cannot stream this: %v", err)
		return nil, false
	}
	if err != nil {
		t.Fatal(err)
	}
	for _, spillBytes := range []int64{1 << 30, 100_000, 300} {
		got := assembled(t, newAssembler(t.TempDir(), spillBytes), messages)
		if len(got) != len(want) {
			t.Fatalf("%d transactions streamed, %d sent whole", len(got), len(want))
		}
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("spilling at %d, transaction %d is\n%.2000s\nsent whole it is\n%.2000s", spillBytes, i, got[i], want[i])
			}
		}
	}
	return messages, true
}

// thinned keeps two of many rows in a row.
func thinned(messages [][]byte) (kept [][]byte) {
	alike := func(a, b []byte) bool {
		return slices.Contains([]byte("IUD"), a[0]) && len(b) > 5 && slices.Equal(a[:5], b[:5])
	}
	for i, message := range messages {
		if i < 2 || !alike(message, messages[i-1]) || !alike(message, messages[i-2]) {
			kept = append(kept, message)
		}
	}
	return kept
}

// testStreamed runs streamedWorkload and then random sessions, and compares what the server streams with what it sends
// without streaming.
func testStreamed(t *testing.T, server *decodeServer) {
	server.exec(t, streamedTables)
	server.exec(t, "select pg_create_logical_replication_slot('streamed', 'pgoutput')")
	t.Run("workload", func(t *testing.T) {
		s := server.sessions(t, 3)
		for _, line := range streamedWorkload {
			s.exec(int(line[0]-'0'), line[2:])
		}
		messages, ok := checkStreamed(t, server)
		if !ok {
			t.Fatal("nothing to compare")
		}
		kinds := map[byte]int{}
		for _, message := range messages {
			kinds[message[0]]++
		}
		for _, kind := range "SEcARIUDTBC" {
			if kinds[byte(kind)] == 0 {
				t.Errorf("no message %q among %v", kind, kinds)
			}
		}
		if *captureFlag {
			writeCapture(t, capturedStreamed, thinned(messages))
		}
	})
	t.Run("random", func(t *testing.T) {
		compared := 0
		for seed := range uint64(4) {
			t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
				server.exec(t, "select pg_replication_slot_advance('streamed', pg_current_wal_insert_lsn())")
				newRandomSessions(server.sessions(t, 3), seed).run(100)
				if _, ok := checkStreamed(t, server); ok {
					compared++
				}
			})
		}
		if compared < 2 {
			t.Errorf("%d runs of 4 could be compared", compared)
		}
	})
}

// randomSessions are sessions whose transactions interleave. Each writes rows of its own, so that none waits for another.
type randomSessions struct {
	*sessions
	r      *rand.Rand
	open   []bool
	saved  [][]string // savepoints, the outermost first
	next   []int      // the next key
	serial int
}

func newRandomSessions(s *sessions, seed uint64) *randomSessions {
	n := len(s.conns)
	r := &randomSessions{sessions: s, r: rand.New(rand.NewPCG(seed, 0x5eed)), open: make([]bool, n), saved: make([][]string, n), next: make([]int, n)}
	for i := range n {
		r.next[i] = (i+1)*100_000_000 + int(seed)*1_000_000
	}
	return r
}

func (r *randomSessions) run(steps int) {
	r.t.Helper()
	for range steps {
		r.step(r.r.IntN(len(r.conns)))
	}
	for i := range r.conns {
		if r.open[i] {
			r.end(i)
		}
	}
}

func (r *randomSessions) end(i int) {
	r.t.Helper()
	switch r.r.IntN(5) {
	case 0:
		r.exec(i, "rollback")
	case 1:
		r.exec(i, fmt.Sprintf("prepare transaction 'r%d'", i))
		r.exec(i, fmt.Sprintf([]string{"commit prepared 'r%d'", "rollback prepared 'r%d'"}[r.r.IntN(2)], i))
	default:
		r.exec(i, "commit")
	}
	r.open[i], r.saved[i] = false, nil
}

// step lets session i do one thing.
func (r *randomSessions) step(i int) {
	r.t.Helper()
	if !r.open[i] {
		r.exec(i, "begin")
		r.open[i] = true
	}
	saved := r.saved[i]
	switch r.r.IntN(20) {
	case 0, 1, 2:
		name := fmt.Sprintf("s%d", r.serial)
		r.serial++
		r.exec(i, "savepoint "+name)
		r.saved[i] = append(saved, name)
	case 3, 4:
		if len(saved) > 0 {
			to := r.r.IntN(len(saved))
			r.exec(i, "rollback to "+saved[to])
			r.saved[i] = saved[:to+1] // the savepoint itself stays
		}
	case 5:
		if len(saved) > 0 {
			to := r.r.IntN(len(saved))
			r.exec(i, "release "+saved[to])
			r.saved[i] = slices.Clone(saved[:to])
		}
	case 6:
		r.end(i)
	case 7:
		column := fmt.Sprintf("c%d_%d", r.next[i], r.serial)
		r.serial++
		r.exec(i, fmt.Sprintf("alter table own%d add column %s int default %d", i, column, r.serial))
	case 8:
		r.exec(i, fmt.Sprintf("truncate own%d", i))
	case 9:
		r.exec(i, fmt.Sprintf("insert into unseen select repeat('u', 300) from generate_series(1, %d)", r.r.IntN(300)))
	case 10:
		r.exec(i, "select pg_logical_emit_message(true, 'p', repeat('x', 3000)), pg_logical_emit_message(false, 'p', 'y')")
	case 11:
		n := 1 + r.r.IntN(100)
		r.exec(i, fmt.Sprintf("select rows_with_exceptions(%d, %d)", r.next[i], n))
		r.next[i] += n
	case 12: // out of line, and more than the server keeps in memory
		r.exec(i, fmt.Sprintf("insert into own%d (id, v) select %d, string_agg(md5(i::text), '') from generate_series(1, %d) i", i, r.next[i], 1+r.r.IntN(6000)))
		r.next[i]++
	case 13:
		r.exec(i, fmt.Sprintf("update shared set w = %d where id between %d and %d", r.serial, r.next[i]-r.r.IntN(500), r.next[i]))
	case 14:
		r.exec(i, fmt.Sprintf("delete from shared where id between %d and %d", r.next[i]-r.r.IntN(500), r.next[i]-r.r.IntN(100)))
	case 15:
		r.exec(i, fmt.Sprintf("update own%d set v = v || 'u' where id %% 7 = %d", i, r.r.IntN(7)))
	default:
		n := 1 + r.r.IntN(300)
		table := []string{"shared (id, v)", fmt.Sprintf("own%d (id, v)", i)}[r.r.IntN(2)]
		r.exec(i, fmt.Sprintf("insert into %s select i, repeat('v', %d) from generate_series(%d, %d) i", table, r.r.IntN(400), r.next[i], r.next[i]+n-1))
		r.next[i] += n
	}
}
