package pgcdc

import (
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"
)

// Messages as the protocol's documentation lays them out, made here so that a test can also make wrong ones.

func beginBytes(commitLSN LSN, micros int64, xid uint32) []byte {
	b := binary.BigEndian.AppendUint64([]byte{'B'}, uint64(commitLSN))
	return binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint64(b, uint64(micros)), xid)
}

func commitBytes(commitLSN, endLSN LSN, micros int64) []byte {
	b := binary.BigEndian.AppendUint64([]byte{'C', 0}, uint64(commitLSN))
	return binary.BigEndian.AppendUint64(binary.BigEndian.AppendUint64(b, uint64(endLSN)), uint64(micros))
}

func relationBytes(oid uint32, name string, columns ...string) []byte {
	b := append(binary.BigEndian.AppendUint32([]byte{'R'}, oid), "public\x00"+name+"\x00d"...)
	b = binary.BigEndian.AppendUint16(b, uint16(len(columns)))
	for i, column := range columns {
		key := byte(0)
		if i == 0 {
			key = 1
		}
		b = append(append(b, key), column+"\x00"...)
		b = binary.BigEndian.AppendUint32(binary.BigEndian.AppendUint32(b, 25), 0xffffffff)
	}
	return b
}

func tupleBytes(values ...string) []byte {
	b := binary.BigEndian.AppendUint16(nil, uint16(len(values)))
	for _, value := range values {
		b = append(binary.BigEndian.AppendUint32(append(b, 't'), uint32(len(value))), value...)
	}
	return b
}

func insertBytes(oid uint32, values ...string) []byte {
	return append(append(binary.BigEndian.AppendUint32([]byte{'I'}, oid), 'N'), tupleBytes(values...)...)
}

func truncateBytes(oids ...uint32) []byte {
	b := append(binary.BigEndian.AppendUint32([]byte{'T'}, uint32(len(oids))), 0)
	for _, oid := range oids {
		b = binary.BigEndian.AppendUint32(b, oid)
	}
	return b
}

// steps prints a transaction's changes, one a line.
func steps(t *testing.T, tx *Transaction) string {
	t.Helper()
	var lines []string
	print := func(tuple Tuple) (text string) {
		for _, value := range tuple {
			text += " " + string(value.Data)
		}
		return text
	}
	if err := tx.Changes(func(c *Change) error {
		switch c.Op {
		case OpRelation:
			lines = append(lines, fmt.Sprintf("relation %s %d", c.Relation.Name, len(c.Relation.Columns)))
		case OpInsert:
			lines = append(lines, fmt.Sprintf("insert %s %d:%s", c.Relation.Name, len(c.Relation.Columns), print(c.New)))
		case OpTruncate:
			lines = append(lines, fmt.Sprint("truncate ", c.Truncated))
		default:
			lines = append(lines, fmt.Sprint("op ", c.Op))
		}
		return nil
	}); err != nil {
		t.Fatal(err)
	}
	return strings.Join(lines, "\n")
}

// TestRelationsInPlace holds that each row shows the shape in force where it was written, also when the transaction is read
// after later ones arrived, and that a shape stated again keeps its pointer.
func TestRelationsInPlace(t *testing.T) {
	for _, spillBytes := range []int64{1 << 20, 1} {
		a := newAssembler(t.TempDir(), spillBytes)
		transactions := assembleAll(t, a, [][]byte{
			beginBytes(10, 0, 1),
			relationBytes(7, "t", "a"),
			insertBytes(7, "one"),
			relationBytes(7, "t", "a", "b"),
			insertBytes(7, "two", "2"),
			truncateBytes(7, 8),
			commitBytes(10, 20, 0),
			beginBytes(30, 0, 2),
			insertBytes(7, "three", "3"),
			relationBytes(7, "t", "a", "b"),
			insertBytes(7, "four", "4"),
			commitBytes(30, 40, 0),
			beginBytes(50, 0, 3),
			relationBytes(7, "renamed", "a"),
			commitBytes(50, 60, 0),
			beginBytes(70, 0, 4),
			insertBytes(7, "five"),
			commitBytes(70, 80, 0),
		})
		var got []string
		for _, tx := range transactions {
			first := steps(t, tx)
			if again := steps(t, tx); again != first {
				t.Errorf("the second reading gave\n%s\nthe first\n%s", again, first)
			}
			got = append(got, fmt.Sprintf("%d rows: %s", tx.Rows, first))
		}
		want := []string{
			"4 rows: relation t 1\ninsert t 1: one\nrelation t 2\ninsert t 2: two 2\ntruncate [7 8]",
			"2 rows: insert t 2: three 3\nrelation t 2\ninsert t 2: four 4",
			"0 rows: relation renamed 1",
			"1 rows: insert renamed 1: five",
		}
		if !slices.Equal(got, want) {
			t.Errorf("spill at %d:\n%s\nwant\n%s", spillBytes, strings.Join(got, "\n"), strings.Join(want, "\n"))
		}
		shapes := map[*Relation]bool{}
		transactions[1].Changes(func(c *Change) error { shapes[c.Relation] = true; return nil })
		if len(shapes) != 1 {
			t.Errorf("an unchanged shape has %d pointers", len(shapes))
		}
		for _, tx := range transactions {
			tx.Release()
		}
	}
}

// TestTransactionHeader holds what Begin and Commit say, the server's clock included.
func TestTransactionHeader(t *testing.T) {
	const micros = 757_382_400_123_456 // 2024-01-01 00:00:00.123456
	tx := assembleAll(t, newAssembler("", 0), [][]byte{beginBytes(0x16B374D848, micros, 741), commitBytes(0x16B374D848, 0x16B374D878, micros)})[0]
	defer tx.Release()
	want := time.Date(2024, 1, 1, 0, 0, 0, 123_456_000, time.UTC)
	if tx.XID != 741 || tx.CommitLSN != 0x16B374D848 || tx.EndLSN != 0x16B374D878 || tx.CommitTime != want || tx.Rows != 0 || tx.Spilled {
		t.Errorf("got %+v", tx)
	}
}

// TestSpillFiles holds that a large transaction's file goes with its Release, that reset deletes what a crash left, and
// that a transaction which was handed out stays readable over a reset.
func TestSpillFiles(t *testing.T) {
	dir := filepath.Join(t.TempDir(), "spill")
	files := func() []string {
		names, err := filepath.Glob(filepath.Join(dir, "*"))
		if err != nil {
			t.Fatal(err)
		}
		return names
	}
	large := func(commitLSN LSN) [][]byte {
		messages := [][]byte{beginBytes(commitLSN, 0, 1), relationBytes(7, "t", "a")}
		for i := range 1000 {
			messages = append(messages, insertBytes(7, fmt.Sprint(i, strings.Repeat("x", i))))
		}
		return messages
	}
	a := newAssembler(dir, 10_000)
	a.reset()
	first := assembleAll(t, a, append(large(10), commitBytes(10, 20, 0)))[0]
	second := assembleAll(t, a, append(large(30), commitBytes(30, 40, 0)))[0]
	if len(files()) != 2 || !first.Spilled || first.Rows != 1000 {
		t.Fatalf("files %v, transaction %+v", files(), first)
	}
	want := steps(t, second)
	if !strings.HasSuffix(want, "insert t 1: 999"+strings.Repeat("x", 999)) || strings.Count(want, "\n") != 1000 {
		t.Errorf("the spilled transaction reads %.300s", want)
	}
	first.Release()
	first.Release()
	if len(files()) != 1 {
		t.Errorf("after a release: %v", files())
	}
	if err := first.Changes(func(*Change) error { return nil }); err == nil {
		t.Error("a released transaction can be read")
	}

	assembleAll(t, a, large(50)) // the connection breaks here
	foreign := filepath.Join(dir, "README")
	for _, name := range []string{foreign, filepath.Join(dir, "transaction-of-the-last-life.spill")} {
		if err := os.WriteFile(name, nil, 0o600); err != nil {
			t.Fatal(err)
		}
	}
	a.reset()
	if !slices.Equal(files(), []string{foreign}) {
		t.Errorf("after a reset: %v", files())
	}
	if steps(t, second) != want {
		t.Error("a reset changed a transaction that was handed out")
	}
	second.Release()
	if _, err := a.message(insertBytes(7, "x")); !errors.Is(err, ErrProtocol) {
		t.Errorf("after a reset an open transaction goes on: %v", err)
	}
}

// TestSpillErrors holds that a spill directory that cannot be used ends the stream with an error that is not the server's.
func TestSpillErrors(t *testing.T) {
	file := filepath.Join(t.TempDir(), "file")
	if err := os.WriteFile(file, nil, 0o600); err != nil {
		t.Fatal(err)
	}
	a := newAssembler(file, 1)
	for i, message := range [][]byte{beginBytes(10, 0, 1), relationBytes(7, "t", "a")} {
		_, err := a.message(message)
		if errors.Is(err, ErrSpill) != (i == 1) || errors.Is(err, ErrProtocol) {
			t.Errorf("message %d: %v", i, err)
		}
	}
	a.reset()
	if _, err := a.message(beginBytes(10, 0, 1)); err == nil || errors.Is(err, ErrProtocol) {
		t.Errorf("after a reset of a directory that is none: %v", err)
	}
}

// TestIgnoredMessages holds that messages nobody asked for, and those that carry no rows, change nothing, wherever they
// come; and that those which could carry rows are refused.
func TestIgnoredMessages(t *testing.T) {
	harmless := [][]byte{
		append([]byte{'A'}, make([]byte, 8)...), // a Stream Abort, as PostgreSQL 18 sends it
		{'x'},
		append([]byte{'O'}, "\x00\x00\x00\x00\x00\x00\x00\x01origin\x00"...),
		append([]byte{'Y'}, "\x00\x00\x40\x01public\x00mood\x00"...),
		append([]byte{'M'}, "\x00\x00\x00\x00\x00\x00\x00\x00\x01p\x00\x00\x00\x00\x01c"...),
	}
	a := newAssembler("", 0)
	var messages [][]byte
	for _, message := range [][]byte{beginBytes(10, 0, 1), relationBytes(7, "t", "a"), insertBytes(7, "one"), commitBytes(10, 20, 0)} {
		messages = append(append(messages, harmless...), message)
	}
	tx := assembleAll(t, a, append(messages, harmless...))[0]
	defer tx.Release()
	if got := steps(t, tx); got != "relation t 1\ninsert t 1: one" || a.ignored != 2*5 {
		t.Errorf("%d ignored, steps %s", a.ignored, got)
	}
	for _, kind := range "pbPKr" {
		if _, err := newAssembler("", 0).message([]byte{byte(kind)}); !errors.Is(err, ErrProtocol) {
			t.Errorf("message %q: %v", kind, err)
		}
	}
}

// TestMalformedStream holds that each of these sequences ends in an ErrProtocol, on arrival or when it is read.
func TestMalformedStream(t *testing.T) {
	begin, relation, commit := beginBytes(10, 0, 1), relationBytes(7, "t", "a", "b"), commitBytes(10, 20, 0)
	row := func(kind byte, tail string) []byte {
		return append(binary.BigEndian.AppendUint32([]byte{kind}, 7), tail...)
	}
	for name, messages := range map[string][][]byte{
		"empty":                       {{}},
		"begin in a transaction":      {begin, begin},
		"begin of a wrong length":     {begin[:20]},
		"commit without begin":        {commit},
		"commit of a wrong length":    {begin, commit[:25]},
		"commit of another LSN":       {begin, commitBytes(11, 20, 0)},
		"commit at another time":      {begin, commitBytes(10, 20, 1)},
		"commit that ends too early":  {begin, commitBytes(10, 10, 0)},
		"end LSN goes back":           {begin, commit, beginBytes(5, 0, 2), commitBytes(5, 20, 0)},
		"row without begin":           {relation, insertBytes(7, "1", "2")},
		"row of an unknown relation":  {begin, relation, insertBytes(8, "1", "2")},
		"row without relation":        {begin, {'I', 0, 0}},
		"truncate without begin":      {relation, truncateBytes(7)},
		"truncate of a wrong count":   {begin, truncateBytes(7)[:9]},
		"truncate of too many":        {begin, {'T', 0xff, 0xff, 0xff, 0xff, 0}},
		"relation without end":        {begin, relation[:len(relation)-1]},
		"relation with more":          {begin, append(slices.Clone(relation), 0)},
		"relation that ends in name":  {begin, relation[:8]},
		"relation of many columns":    {begin, append(relationBytes(7, "t")[:len(relationBytes(7, "t"))-2], 0xff, 0xff)},
		"relation not in UTF-8":       {begin, relationBytes(7, "\xff", "a")},
		"relation of no identity":     {begin, append([]byte("R\x00\x00\x00\x07s\x00t\x00x"), 0, 0)},
		"row of three columns":        {begin, relation, insertBytes(7, "1", "2", "3"), commit},
		"row with more":               {begin, relation, append(insertBytes(7, "1", "2"), 0), commit},
		"row that ends in its header": {begin, relation, row('I', ""), commit},
		"row that ends in a column":   {begin, relation, insertBytes(7, "1", "2")[:17], commit},
		"row that ends in a value":    {begin, relation, insertBytes(7, "1", "22")[:19], commit},
		"row that ends before one":    {begin, relation, insertBytes(7, "1", "2")[:14], commit},
		"value of a huge length":      {begin, relation, row('I', "N\x00\x02nt\xff\xff\xff\xff"), commit},
		"column of no format":         {begin, relation, row('I', "N\x00\x02nz"), commit},
		"insert of an old row":        {begin, relation, row('I', "O\x00\x02nn"), commit},
		"delete of a new row":         {begin, relation, row('D', "N\x00\x02nn"), commit},
		"update without a new row":    {begin, relation, row('U', "K\x00\x02nn"), commit},
		"update of two old rows":      {begin, relation, row('U', "K\x00\x02nnO\x00\x02nn"), commit},
	} {
		a := newAssembler("", 0)
		var err error
		for _, message := range messages {
			var tx *Transaction
			if tx, err = a.message(message); err != nil {
				break
			}
			if tx != nil {
				err = tx.Changes(func(*Change) error { return nil })
				tx.Release()
			}
		}
		if !errors.Is(err, ErrProtocol) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// TestCapturedStream holds that what a server sent reads the same from memory and, from any byte on, from a spill file.
func TestCapturedStream(t *testing.T) {
	testCapturedStream(t, capturedMessages(t, capturedStream), 60, 397)
	testCapturedStream(t, capturedMessages(t, capturedStreamed), 100, 1501)
}

func testCapturedStream(t *testing.T, messages [][]byte, changes int, step int64) {
	read := func(spillBytes int64) (got []string) {
		for _, tx := range assembleAll(t, newAssembler(t.TempDir(), spillBytes), messages) {
			if err := tx.Changes(func(c *Change) error {
				shape := fmt.Sprintf("%+v", c.Relation)
				c.Relation = nil
				got = append(got, fmt.Sprintf("%d %s %+v", tx.XID, shape, *c))
				return nil
			}); err != nil {
				t.Fatal(err)
			}
			tx.Release()
		}
		return got
	}
	want := read(1 << 30)
	if len(want) < changes {
		t.Fatalf("%d changes", len(want))
	}
	for spillBytes := int64(1); spillBytes < 20*step; spillBytes += step {
		got := read(spillBytes)
		if len(got) != len(want) {
			t.Fatalf("%d changes with spills at %d bytes, %d without", len(got), spillBytes, len(want))
		}
		for i := range got {
			if got[i] != want[i] {
				t.Fatalf("change %d with spills at %d bytes is %.500s\nwithout %.500s", i, spillBytes, got[i], want[i])
			}
		}
	}
}

// TestChangesStopsAtError holds that an error of yield is returned as it is.
func TestChangesStopsAtError(t *testing.T) {
	stop := errors.New("stop")
	for _, tx := range assembleAll(t, newAssembler(t.TempDir(), 2000), capturedMessages(t, capturedStream)) {
		calls := 0
		if err := tx.Changes(func(*Change) error { calls++; return stop }); err != stop && tx.Rows > 0 || calls > 1 {
			t.Errorf("%v after %d calls", err, calls)
		}
		tx.Release()
	}
}

// TestLargeStaging holds that messages of all sizes around those of the chunks come back as they went in.
func TestLargeStaging(t *testing.T) {
	messages := [][]byte{beginBytes(10, 0, 1), relationBytes(7, "t", "a")}
	var want []string
	for _, size := range []int{0, 1, smallChunk - 40, smallChunk, largeChunk - 20, largeChunk, 3 * largeChunk, 5, largeChunk / 2, largeChunk/2 + 1, 2} {
		value := strings.Repeat("v", size)
		want = append(want, value)
		messages = append(messages, insertBytes(7, value))
	}
	for range 2 { // the second time from pooled memory
		a := newAssembler("", 0)
		tx := assembleAll(t, a, append(messages, commitBytes(10, 20, 0)))[0]
		var got []string
		if err := tx.Changes(func(c *Change) error {
			if c.Op == OpInsert {
				got = append(got, string(c.New[0].Data))
			}
			return nil
		}); err != nil || !slices.Equal(got, want) {
			t.Fatalf("%d values came back as %d, error %v", len(want), len(got), err)
		}
		tx.Release()
	}
}

// TestReadWhileAssembling holds that one goroutine may read and release transactions while another assembles the next
// ones and resets between connections, with memory going back and forth through the pools.
func TestReadWhileAssembling(t *testing.T) {
	messages := capturedMessages(t, capturedStream)
	var want []string
	for _, tx := range assembleAll(t, newAssembler("", 0), messages) {
		want = append(want, steps(t, tx))
		tx.Release()
	}
	const connections = 50
	transactions := make(chan *Transaction, 4)
	a := newAssembler(filepath.Join(t.TempDir(), "spill"), 1500)
	go func() {
		defer close(transactions)
		for range connections {
			a.reset()
			for _, message := range messages {
				tx, err := a.message(message)
				if err != nil {
					t.Error(err)
					return
				}
				if tx != nil {
					transactions <- tx
				}
			}
		}
	}()
	read := 0
	for tx := range transactions {
		if got := steps(t, tx); got != want[read%len(want)] {
			t.Fatalf("transaction %d reads %.300s\nwant %.300s", read, got, want[read%len(want)])
		}
		tx.Release()
		read++
	}
	if read != connections*len(want) {
		t.Errorf("%d transactions, want %d", read, connections*len(want))
	}
}
