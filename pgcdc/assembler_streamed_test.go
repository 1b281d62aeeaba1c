package pgcdc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"
)

func streamStartBytes(xid uint32, first bool) []byte {
	b := append(binary.BigEndian.AppendUint32([]byte{'S'}, xid), 0)
	if first {
		b[5] = 1
	}
	return b
}

func streamAbortBytes(xid, subxid uint32) []byte {
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32([]byte{'A'}, xid), subxid)
}

func streamCommitBytes(xid uint32, commitLSN, endLSN LSN, micros int64) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{'c'}, xid), commitBytes(commitLSN, endLSN, micros)[1:]...)
}

var streamStopBytes = []byte{'E'}

// by makes a message one of a subtransaction inside a block.
func by(xid uint32, message []byte) []byte {
	return append(binary.BigEndian.AppendUint32([]byte{message[0]}, xid), message[1:]...)
}

// block is a block of a transaction. Each message is the transaction's own unless by made it another's.
func block(xid uint32, first bool, messages ...[]byte) [][]byte {
	return append(append([][]byte{streamStartBytes(xid, first)}, messages...), streamStopBytes)
}

// printed is what each transaction reads as, with its rows counted.
func printed(t *testing.T, transactions []*Transaction) (all []string) {
	t.Helper()
	for _, tx := range transactions {
		all = append(all, fmt.Sprintf("%d, %d rows: %s", tx.XID, tx.Rows, steps(t, tx)))
		tx.Release()
	}
	return all
}

// TestStrayStreamAbort holds that a Stream Abort of a transaction that was never streamed changes nothing, wherever it stands: PostgreSQL 18 sends them
// without streaming too, when it finds that a transaction which it has spilled was rolled back (S-X3).
func TestStrayStreamAbort(t *testing.T) {
	whole := [][]byte{beginBytes(10, 0, 5), relationBytes(7, "t", "a"), insertBytes(7, "one"), insertBytes(7, "two"), commitBytes(10, 20, 0), beginBytes(30, 0, 6), insertBytes(7, "three"), commitBytes(30, 40, 0)}
	want := []string{"5, 2 rows: relation t 1\ninsert t 1: one\ninsert t 1: two", "6, 1 rows: insert t 1: three"}
	if got := printed(t, assembleAll(t, newAssembler(t.TempDir(), 0), whole)); !slices.Equal(got, want) {
		t.Fatalf("without: %q", got)
	}
	for what, stray := range map[string][]byte{"of the open transaction": streamAbortBytes(5, 5), "of a part of it": streamAbortBytes(5, 9), "of another": streamAbortBytes(77, 77),
		"of a part of another": streamAbortBytes(77, 78), "with LSN and time": append(streamAbortBytes(77, 77), make([]byte, 16)...)} {
		for at := range len(whole) + 1 {
			a := newAssembler(t.TempDir(), 1)
			if got := printed(t, assembleAll(t, a, slices.Insert(slices.Clone(whole), at, stray))); !slices.Equal(got, want) || a.ignored != 1 {
				t.Errorf("%s, before message %d: %q, %d messages ignored", what, at, got, a.ignored)
			}
		}
	}
}

// TestStreamedTransactions holds that what blocks bring is handed out in commit order, without what was rolled back, in memory and
// from files alike.
func TestStreamedTransactions(t *testing.T) {
	messages := slices.Concat(
		block(1, true, by(1, relationBytes(7, "t", "a")), by(1, insertBytes(7, "one")), by(2, insertBytes(7, "gone")), by(1, insertBytes(7, "gone with it?"))),
		block(9, true, by(9, relationBytes(7, "t", "a")), by(9, insertBytes(7, "other"))),
		[][]byte{beginBytes(10, 0, 5), relationBytes(7, "t", "a"), insertBytes(7, "whole"), commitBytes(10, 20, 0)},
		[][]byte{streamAbortBytes(1, 33)}, // had nothing to show
		block(9, false, by(10, insertBytes(7, "in ten")), by(11, insertBytes(7, "in eleven")), by(10, insertBytes(7, "in ten again")), by(9, truncateBytes(7, 8))),
		[][]byte{streamAbortBytes(1, 1), streamCommitBytes(9, 30, 40, 0)},
		block(3, true, by(4, relationBytes(7, "t", "a")), by(4, insertBytes(7, "a")), by(5, insertBytes(7, "b")), by(4, insertBytes(7, "c")), by(3, insertBytes(7, "d")), by(6, insertBytes(7, "e")), by(7, insertBytes(7, "f"))),
		[][]byte{streamAbortBytes(3, 7), streamAbortBytes(3, 6)},
		block(3, false, by(3, relationBytes(7, "t", "a")), by(8, insertBytes(7, "g"))),
		[][]byte{streamCommitBytes(3, 50, 60, 0)},
		block(20, true, by(20, relationBytes(7, "t", "a")), by(20, insertBytes(7, "h")), by(21, insertBytes(7, "gone")), by(22, insertBytes(7, "gone"))),
		[][]byte{streamAbortBytes(20, 22)},
		block(20, false, by(21, insertBytes(7, "gone in a second run"))),
		[][]byte{streamAbortBytes(20, 21), streamCommitBytes(20, 70, 80, 0)},
	)
	want := []string{
		"5, 1 rows: relation t 1\ninsert t 1: whole",
		"9, 6 rows: relation t 1\ninsert t 1: other\ninsert t 1: in ten\ninsert t 1: in eleven\ninsert t 1: in ten again\ntruncate [7 8]",
		"3, 5 rows: relation t 1\ninsert t 1: a\ninsert t 1: b\ninsert t 1: c\ninsert t 1: d\nrelation t 1\ninsert t 1: g",
		"20, 1 rows: relation t 1\ninsert t 1: h",
	}
	for _, spillBytes := range []int64{1 << 20, 100, 1} {
		a := newAssembler(t.TempDir(), spillBytes)
		if got := printed(t, assembleAll(t, a, messages)); !slices.Equal(got, want) {
			t.Errorf("spill at %d:\n%s\nwant\n%s", spillBytes, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		if len(a.streamed) != 0 || a.memory != 0 {
			t.Errorf("%d transactions and %d bytes are left", len(a.streamed), a.memory)
		}
		if names, _ := filepath.Glob(filepath.Join(a.spillDir, "*")); len(names) != 0 {
			t.Errorf("files are left: %v", names)
		}
	}
}

// TestStreamedChunks holds that a rollback takes out exactly its rows where these fill many chunks of memory.
func TestStreamedChunks(t *testing.T) {
	row := func(name string) []byte { return insertBytes(7, name+strings.Repeat("x", 10_000)) }
	for kept := range 30 {
		messages := [][]byte{streamStartBytes(1, true), by(1, relationBytes(7, "t", "a"))}
		var want []string
		for i := range kept {
			messages = append(messages, by(1, row(fmt.Sprint("kept", i))))
			want = append(want, fmt.Sprint("kept", i))
		}
		for range 60 {
			messages = append(messages, by(2, row("gone")))
		}
		messages = append(messages, streamStopBytes, streamAbortBytes(1, 2), streamStartBytes(1, false), by(1, row("last")), streamStopBytes, streamCommitBytes(1, 10, 20, 0))
		want = append(want, "last")
		if kept == 0 {
			messages = slices.Insert(messages, len(messages)-3, by(1, relationBytes(7, "t", "a")))
		}
		tx := assembleAll(t, newAssembler("", 1<<30), messages)[0]
		var got []string
		if err := tx.Changes(func(c *Change) error {
			if c.Op == OpInsert {
				name, _, _ := strings.Cut(string(c.New[0].Data), "x")
				got = append(got, name)
			}
			return nil
		}); err != nil || !slices.Equal(got, want) || tx.Rows != int64(len(want)) {
			t.Errorf("%d kept: %d rows, %q, %v", kept, tx.Rows, got, err)
		}
		tx.Release()
	}
}

// TestStreamedHeader holds that a streamed transaction has of its commit what a whole one has.
func TestStreamedHeader(t *testing.T) {
	const micros = 757_382_400_123_456 // 2024-01-01 00:00:00.123456
	tx := assembleAll(t, newAssembler("", 0), append(block(741, true), streamCommitBytes(741, 0x16B374D848, 0x16B374D878, micros)))[0]
	defer tx.Release()
	want := time.Date(2024, 1, 1, 0, 0, 0, 123_456_000, time.UTC)
	if tx.XID != 741 || tx.CommitLSN != 0x16B374D848 || tx.EndLSN != 0x16B374D878 || tx.CommitTime != want || tx.Rows != 0 || tx.Spilled {
		t.Errorf("got %+v", tx)
	}
}

// TestStreamedShapes holds which shape each row has, and that it is stated before the row in what is handed out, when shapes are
// stated in streamed transactions, in parts that are rolled back, and beside each other.
func TestStreamedShapes(t *testing.T) {
	old, changed := relationBytes(7, "t", "a"), relationBytes(7, "t", "a", "b")
	whole := func(xid uint32, end LSN, messages ...[]byte) [][]byte {
		return slices.Concat([][]byte{beginBytes(end-5, 0, xid)}, messages, [][]byte{commitBytes(end-5, end, 0)})
	}
	for name, c := range map[string]struct {
		messages [][]byte
		want     []string
	}{
		"a committed one is taken for granted": {slices.Concat(
			block(1, true, by(1, old), by(1, insertBytes(7, "x"))), [][]byte{streamCommitBytes(1, 10, 20, 0)},
			whole(2, 30, insertBytes(7, "y")),
		), []string{"1, 1 rows: relation t 1\ninsert t 1: x", "2, 1 rows: insert t 1: y"}},
		"its last one": {slices.Concat(
			whole(9, 10, old, insertBytes(7, "w")),
			block(1, true, by(1, old), by(1, insertBytes(7, "x")), by(1, changed), by(1, insertBytes(7, "y", "z"))), [][]byte{streamCommitBytes(1, 15, 20, 0)},
			whole(2, 30, insertBytes(7, "y", "z")),
		), []string{"9, 1 rows: relation t 1\ninsert t 1: w", "1, 2 rows: relation t 1\ninsert t 1: x\nrelation t 2\ninsert t 2: y z", "2, 1 rows: insert t 2: y z"}},
		"one that is rolled back never was": {slices.Concat(
			whole(9, 10, old, insertBytes(7, "w")),
			block(1, true, by(1, changed), by(1, insertBytes(7, "x", "y"))), [][]byte{streamAbortBytes(1, 1)},
			whole(2, 30, insertBytes(7, "z")),
		), []string{"9, 1 rows: relation t 1\ninsert t 1: w", "2, 1 rows: insert t 1: z"}},
		"nor was one of a part": {slices.Concat(
			whole(9, 10, old, insertBytes(7, "w")),
			block(1, true, by(1, old), by(1, insertBytes(7, "x")), by(2, changed), by(2, insertBytes(7, "y", "z"))), [][]byte{streamAbortBytes(1, 2)},
			block(1, false, by(1, old), by(1, insertBytes(7, "z"))), [][]byte{streamCommitBytes(1, 15, 20, 0)},
			whole(2, 30, insertBytes(7, "z")),
		), []string{"9, 1 rows: relation t 1\ninsert t 1: w", "1, 2 rows: relation t 1\ninsert t 1: x\nrelation t 1\ninsert t 1: z", "2, 1 rows: insert t 1: z"}},
		"while it runs others have theirs": {slices.Concat(
			whole(9, 10, old, insertBytes(7, "w")),
			block(1, true, by(1, changed), by(1, insertBytes(7, "x", "y"))),
			whole(2, 20, insertBytes(7, "z")),
			[][]byte{streamCommitBytes(1, 25, 30, 0)},
			whole(3, 40, insertBytes(7, "x", "y")),
		), []string{"9, 1 rows: relation t 1\ninsert t 1: w", "2, 1 rows: insert t 1: z", "1, 1 rows: relation t 2\ninsert t 2: x y", "3, 1 rows: insert t 2: x y"}},
		// The server counts on what it stated last, whoever commits first; the reader of transactions hears it again.
		"a newer one stays": {slices.Concat(
			block(1, true, by(1, old), by(1, insertBytes(7, "x"))),
			whole(2, 20, changed, insertBytes(7, "y", "z")),
			[][]byte{streamCommitBytes(1, 25, 30, 0)},
			whole(3, 40, insertBytes(7, "y", "z")),
			whole(4, 50, insertBytes(7, "y", "z")),
		), []string{"2, 1 rows: relation t 2\ninsert t 2: y z", "1, 1 rows: relation t 1\ninsert t 1: x", "3, 1 rows: relation t 2\ninsert t 2: y z", "4, 1 rows: insert t 2: y z"}},
		"stated again it is the newer one": {slices.Concat(
			block(1, true, by(1, old), by(1, insertBytes(7, "x"))),
			whole(2, 20, changed, insertBytes(7, "y", "z")),
			block(1, false, by(1, old), by(1, insertBytes(7, "x"))),
			[][]byte{streamCommitBytes(1, 25, 30, 0)},
			whole(3, 40, insertBytes(7, "x")),
		), []string{"2, 1 rows: relation t 2\ninsert t 2: y z", "1, 2 rows: relation t 1\ninsert t 1: x\nrelation t 1\ninsert t 1: x", "3, 1 rows: insert t 1: x"}},
		"before a rollback it does not count": {slices.Concat(
			whole(9, 10, old, insertBytes(7, "w")),
			block(1, true, by(1, changed), by(2, insertBytes(7, "x", "y"))), [][]byte{streamAbortBytes(1, 2), streamCommitBytes(1, 25, 30, 0)},
			whole(2, 40, old, insertBytes(7, "x")),
		), []string{"9, 1 rows: relation t 1\ninsert t 1: w", "1, 0 rows: relation t 2", "2, 1 rows: relation t 1\ninsert t 1: x"}},
		"stated outside a transaction": {slices.Concat(
			[][]byte{old}, whole(2, 10, insertBytes(7, "x")),
		), []string{"2, 1 rows: relation t 1\ninsert t 1: x"}},
	} {
		for _, spillBytes := range []int64{1 << 20, 1} {
			if got := printed(t, assembleAll(t, newAssembler(t.TempDir(), spillBytes), c.messages)); !slices.Equal(got, c.want) {
				t.Errorf("%s, spill at %d:\n%s\nwant\n%s", name, spillBytes, strings.Join(got, "\n"), strings.Join(c.want, "\n"))
			}
		}
	}
	a := newAssembler("", 0)
	assembleAll(t, a, slices.Concat(whole(9, 10, old, insertBytes(7, "w")), block(1, true, by(1, changed), by(2, insertBytes(7, "x", "y"))),
		[][]byte{streamAbortBytes(1, 2), streamCommitBytes(1, 25, 30, 0)}))
	if shape := a.relations[7].relation; len(shape.Columns) != 1 {
		t.Errorf("a shape that a rollback took back from the server's books is in ours: %+v", shape)
	}
}

// TestStreamedSpills holds that open transactions share the bound of memory, that the largest goes to its file, and that a
// rollback gives the disk space back.
func TestStreamedSpills(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spill")
	disk := func() (files int, bytes int64) {
		names, _ := filepath.Glob(filepath.Join(dir, spillPattern))
		for _, name := range names {
			info, err := os.Stat(name)
			if err != nil {
				t.Fatal(err)
			}
			bytes += info.Size()
		}
		return len(names), bytes
	}
	const budget = 100_000
	a := newAssembler(dir, budget)
	send := func(messages ...[]byte) {
		t.Helper()
		assembleAll(t, a, messages)
		if a.memory > budget {
			t.Fatalf("%d bytes in memory", a.memory)
		}
	}
	row := insertBytes(7, strings.Repeat("x", 1000))
	rows := func(xid uint32, n int) (rows [][]byte) {
		for range n {
			rows = append(rows, by(xid, row))
		}
		return rows
	}
	for xid := uint32(1); xid <= 4; xid++ {
		send(block(xid*10, true, append([][]byte{by(xid*10, relationBytes(7, "t", "a"))}, rows(xid*10, 20)...)...)...)
	}
	// Each has a mark, a relation and its rows.
	if want := 4 * int64(frameHeader+markSize+frameHeader+20*(frameHeader+len(row))); a.memory != want {
		t.Errorf("%d bytes in memory, want %d", a.memory, want)
	}
	if files, _ := disk(); files != 0 {
		t.Fatalf("%d files within the bound", files)
	}
	send(block(20, false, rows(20, 30)...)...) // now the largest of all
	if files, bytes := disk(); files != 1 || bytes < 30_000 || a.streamed[20].staged.spill == nil || a.streamed[20].staged.memory != 0 {
		t.Fatalf("%d files of %d bytes; the largest is spilled: %t", files, bytes, a.streamed[20].staged.spill != nil)
	}
	send(block(20, false, rows(21, 2000)...)...)
	_, before := disk()
	send(streamAbortBytes(20, 21))
	if _, after := disk(); after > before/10 {
		t.Errorf("%d bytes on disk, %d before the rollback", after, before)
	}
	send(block(20, false, rows(20, 5)...)...)
	send(beginBytes(10, 0, 5), relationBytes(7, "t", "a"))
	for range 200 {
		send(row)
	}
	if a.open.staged.spill == nil {
		t.Error("a whole transaction larger than the others is not spilled")
	}
	send(commitBytes(10, 20, 0))
	tx := assembleAll(t, a, [][]byte{streamCommitBytes(20, 30, 40, 0)})[0]
	if got := steps(t, tx); tx.Rows != 55 || !tx.Spilled || strings.Count(got, "insert") != 55 {
		t.Errorf("%d rows, %d inserts", tx.Rows, strings.Count(got, "insert"))
	}
	tx.Release()
	send(streamAbortBytes(10, 10))
	if len(a.streamed) != 2 {
		t.Errorf("%d transactions are open", len(a.streamed))
	}
	left := a.streamed[30].Transaction
	a.reset() // the connection is lost: the server sends the two that are left again
	if left.staged != nil {
		t.Error("an open transaction keeps its memory")
	}
	if files, _ := disk(); files != 0 || len(a.streamed) != 0 || a.memory != 0 {
		t.Errorf("after a reset: %d files, %d transactions, %d bytes", files, len(a.streamed), a.memory)
	}
	if _, err := a.message(streamStartBytes(30, false)); !errors.Is(err, ErrProtocol) {
		t.Errorf("after a reset a streamed transaction goes on: %v", err)
	}
}

// TestDiskFull holds that a full disk is an error that says so and is worth another try, and that the other try has everything.
func TestDiskFull(t *testing.T) {
	full, err := syscall.Open("/dev/full", syscall.O_RDWR, 0)
	if err != nil {
		t.Fatal(err)
	}
	a := newAssembler(t.TempDir(), 1)
	messages := block(1, true, by(1, relationBytes(7, "t", "a")))
	for range 2 * spillBuffer / 1000 {
		messages = append(messages[:len(messages)-1], by(1, insertBytes(7, strings.Repeat("x", 1000))), streamStopBytes)
	}
	assembleAll(t, a, messages[:2])
	spill := a.streamed[1].staged.spill
	spill.file.Close()
	spill.file = os.NewFile(uintptr(full), spill.file.Name()) // its name is what is deleted in the end
	for _, message := range messages[2:] {
		if _, err = a.message(message); err != nil {
			break
		}
	}
	if !errors.Is(err, ErrSpill) || !errors.Is(err, syscall.ENOSPC) || !IsRetryable(err) || !strings.Contains(err.Error(), "no space left") {
		t.Fatalf("%v", err)
	}
	a.reset()
	tx := assembleAll(t, a, append(messages, streamCommitBytes(1, 10, 20, 0)))[0]
	defer tx.Release()
	if got := strings.Count(steps(t, tx), "insert"); got != 2*spillBuffer/1000 {
		t.Errorf("%d rows", got)
	}
}

// TestMalformedBlocks holds that each of these sequences ends in an error: an ErrProtocol, or an ErrStreaming where the server
// contradicts itself over a rollback.
func TestMalformedBlocks(t *testing.T) {
	relation, row := by(1, relationBytes(7, "t", "a")), by(1, insertBytes(7, "x"))
	open := block(1, true, relation, row)
	for name, c := range map[string]struct {
		messages [][]byte
		want     error
	}{
		"start of a wrong length":           {[][]byte{{'S', 0, 0, 0, 1}}, ErrProtocol},
		"start of no kind":                  {[][]byte{{'S', 0, 0, 0, 1, 2}}, ErrProtocol},
		"start in a block":                  {[][]byte{streamStartBytes(1, true), streamStartBytes(2, true)}, ErrProtocol},
		"start in a transaction":            {[][]byte{beginBytes(10, 0, 1), streamStartBytes(2, true)}, ErrProtocol},
		"a later block without the first":   {[][]byte{streamStartBytes(1, false)}, ErrProtocol},
		"a first block after another":       {slices.Concat(open, [][]byte{streamStartBytes(1, true)}), ErrProtocol},
		"stop without start":                {[][]byte{streamStopBytes}, ErrProtocol},
		"stop of a wrong length":            {[][]byte{streamStartBytes(1, true), {'E', 0}}, ErrProtocol},
		"begin in a block":                  {[][]byte{streamStartBytes(1, true), beginBytes(10, 0, 2)}, ErrProtocol},
		"commit in a block":                 {[][]byte{streamStartBytes(1, true), commitBytes(10, 20, 0)}, ErrProtocol},
		"stream commit in a block":          {slices.Concat(open[:3], [][]byte{streamCommitBytes(1, 10, 20, 0)}), ErrProtocol},
		"stream commit in a transaction":    {slices.Concat(open, [][]byte{beginBytes(10, 0, 2), streamCommitBytes(1, 10, 20, 0)}), ErrProtocol},
		"stream commit of nothing":          {[][]byte{streamCommitBytes(1, 10, 20, 0)}, ErrProtocol},
		"stream commit of a wrong length":   {slices.Concat(open, [][]byte{streamCommitBytes(1, 10, 20, 0)[:29]}), ErrProtocol},
		"stream commit that ends too early": {slices.Concat(open, [][]byte{streamCommitBytes(1, 10, 10, 0)}), ErrProtocol},
		"end LSN goes back":                 {slices.Concat([][]byte{beginBytes(10, 0, 5), commitBytes(10, 20, 0)}, open, [][]byte{streamCommitBytes(1, 15, 20, 0)}), ErrProtocol},
		"abort in a block":                  {slices.Concat(open[:3], [][]byte{streamAbortBytes(1, 1)}), ErrProtocol},
		"abort of a wrong length":           {slices.Concat(open, [][]byte{streamAbortBytes(1, 1)[:8]}), ErrProtocol},
		"row between blocks":                {slices.Concat(open, [][]byte{row}), ErrProtocol},
		"truncate between blocks":           {slices.Concat(open, [][]byte{truncateBytes(7)}), ErrProtocol},
		"row without a subtransaction":      {[][]byte{streamStartBytes(1, true), relation, {'I', 0, 0, 0, 7}}, ErrProtocol},
		"row without a relation's number":   {[][]byte{streamStartBytes(1, true), relation, by(1, []byte("I\x00\x00\x00"))}, ErrProtocol},
		"row of a relation of the session":  {[][]byte{relationBytes(7, "t", "a"), streamStartBytes(1, true), row}, ErrProtocol},
		"row of a relation of another":      {slices.Concat(open, [][]byte{streamStartBytes(2, true), by(2, insertBytes(7, "x"))}), ErrProtocol},
		"row of a relation rolled back":     {slices.Concat(block(1, true, by(2, relationBytes(7, "t", "a")), by(2, insertBytes(7, "x"))), [][]byte{streamAbortBytes(1, 2), streamStartBytes(1, false), row}), ErrProtocol},
		"row of a relation whose statement a rollback took back": {slices.Concat(block(1, true, relation, by(2, insertBytes(7, "x"))), [][]byte{streamAbortBytes(1, 2), streamCommitBytes(1, 10, 20, 0),
			beginBytes(30, 0, 5), insertBytes(7, "x")}), ErrProtocol},
		"truncate of a wrong count":          {[][]byte{streamStartBytes(1, true), by(1, truncateBytes(7)[:9])}, ErrProtocol},
		"relation that ends in its name":     {[][]byte{streamStartBytes(1, true), relation[:10]}, ErrProtocol},
		"a commit after too large a part":    {slices.Concat(block(1, true, relation, row, by(2, insertBytes(7, "x")), row), [][]byte{streamAbortBytes(1, 2), streamCommitBytes(1, 10, 20, 0)}), ErrStreaming},
		"a row after too large a part":       {slices.Concat(block(1, true, relation, by(2, insertBytes(7, "x")), by(3, insertBytes(7, "x")), by(2, insertBytes(7, "x"))), [][]byte{streamAbortBytes(1, 3), streamStartBytes(1, false), by(2, insertBytes(7, "x"))}), ErrStreaming},
		"message of two_phase":               {slices.Concat(open, [][]byte{append([]byte{'p'}, make([]byte, 40)...)}), ErrProtocol},
		"row that ends in a column, at once": {slices.Concat(block(1, true, relation, row[:14]), [][]byte{streamCommitBytes(1, 10, 20, 0)}), ErrProtocol},
	} {
		a := newAssembler("", 0)
		var err error
		for i, message := range c.messages {
			var tx *Transaction
			if tx, err = a.message(message); tx != nil {
				err = tx.Changes(func(*Change) error { return nil })
				tx.Release()
			}
			if err != nil && i < len(c.messages)-1 {
				t.Errorf("%s: message %d: %v", name, i, err)
				break
			}
		}
		if !errors.Is(err, c.want) {
			t.Errorf("%s: %v", name, err)
		}
		a.reset()
	}
}
