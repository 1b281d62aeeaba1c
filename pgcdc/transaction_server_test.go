package pgcdc

import (
	"encoding/binary"
	"flag"
	"fmt"
	"os"
	"slices"
	"strings"
	"testing"
)

var captureFlag = flag.Bool("capture", false, "write the messages of the server test to testdata/stream.bin")

// capturedStream is what pgoutput sent for streamWorkload, in binary: messages, each after its length in four bytes.
const capturedStream = "testdata/stream.bin"

const streamTables = `
	create table items (id int primary key, name text, price numeric(10,2), born timestamptz);
	alter table items alter name set storage external;
	create table notes (x int, y text, z int[]);
	alter table notes replica identity full;
	create table pairs (a int, b uuid, v "char", primary key (b, a));
	create table aside (id int);
	create publication p for table items, notes, pairs;
	select pg_create_logical_replication_slot('s', 'pgoutput')`

// streamWorkload has in it what the assembler tells apart; every line is a transaction.
var streamWorkload = []string{
	`insert into items select i, 'name ' || i, i * 1.25, timestamptz '2024-01-01 00:00Z' + i * interval '1 s' from generate_series(1, 20) i`,
	`insert into aside values (1)`,
	`update items set price = price + 1 where id % 3 = 0; delete from items where id = 5; insert into items values (5, null, null, 'infinity')`,
	`update items set id = id + 100 where id <= 3`,
	`insert into items values (50, repeat('x', 5000), 1, null)`,
	`update items set price = 2 where id = 50`,
	`insert into notes select i % 3, 'y' || i % 2, array[i % 2, null] from generate_series(1, 9) i; delete from notes where ctid = '(0,4)'; update notes set y = null where x = 2`,
	`insert into notes values (7, 'before', '{}'); alter table notes add column w bool; insert into notes values (8, 'after', null, true); update notes set w = false where x = 7`,
	`insert into pairs select i, md5(i::text)::uuid, 'a' from generate_series(1, 5) i; update pairs set a = -a where a > 3; delete from pairs where a = 1`,
	`insert into pairs values (9, md5('9')::uuid, ''); truncate pairs, notes; insert into pairs values (10, md5('10')::uuid, 'z'); insert into notes values (1, 'y', null, null)`,
	`savepoint a; insert into items values (60, 'gone', 1, null); rollback to a; insert into items values (61, 'kept', 1, null)`,
	`select pg_logical_emit_message(true, 'prefix', 'content'), pg_logical_emit_message(false, 'prefix', 'content')`,
	`alter table items rename name to title; insert into items values (70, 'renamed', 0, 'infinity'); delete from items where id = 70`,
}

// rowsModel is the published tables as a mirror that applies changes one after the other would hold them: each row is
// its columns' calls, printed.
type rowsModel struct {
	tables map[string][][]string
	names  map[uint32]string
	types  func(oid uint32, mod int32) *Type
}

func (m *rowsModel) row(t *testing.T, relation *Relation, tuple Tuple, old []string) []string {
	t.Helper()
	row := make([]string, len(tuple))
	for i, value := range tuple {
		if value.Format == FormatUnchanged {
			row[i] = old[i]
			continue
		}
		calls, err := decodeCalls(m.types(relation.Columns[i].TypeOID, relation.Columns[i].TypeMod), value.Format, value.Data)
		if err != nil {
			t.Fatal(err)
		}
		row[i] = fmt.Sprint(calls)
	}
	return row
}

// cut removes and returns the one row that tuple names: by all its columns, or by the key's alone.
func (m *rowsModel) cut(t *testing.T, relation *Relation, tuple Tuple) []string {
	t.Helper()
	want := m.row(t, relation, tuple, make([]string, len(tuple)))
	rows := m.tables[relation.Name]
	i := slices.IndexFunc(rows, func(row []string) bool {
		for i, column := range relation.Columns {
			if column.Key && row[i] != want[i] {
				return false
			}
		}
		return true
	})
	if i < 0 {
		t.Fatalf("no row of %s has the identity %v", relation.Name, want)
	}
	row := rows[i]
	m.tables[relation.Name] = slices.Delete(rows, i, i+1)
	return row
}

// apply applies a change and says how many rows it counts for.
func (m *rowsModel) apply(t *testing.T, c *Change) int64 {
	t.Helper()
	switch c.Op {
	case OpRelation:
		m.names[c.Relation.OID] = c.Relation.Name
		for i, row := range m.tables[c.Relation.Name] { // columns added since are NULL
			for len(row) < len(c.Relation.Columns) {
				row = append(row, fmt.Sprint([]call{{"Null", nil}}))
			}
			m.tables[c.Relation.Name][i] = row
		}
		return 0
	case OpTruncate:
		for _, oid := range c.Truncated {
			m.tables[m.names[oid]] = nil
		}
		return int64(len(c.Truncated))
	case OpInsert:
		m.tables[c.Relation.Name] = append(m.tables[c.Relation.Name], m.row(t, c.Relation, c.New, nil))
	case OpUpdate:
		named := c.Old
		if c.OldKind == 0 {
			named = c.New
		}
		old := m.cut(t, c.Relation, named)
		m.tables[c.Relation.Name] = append(m.tables[c.Relation.Name], m.row(t, c.Relation, c.New, old))
	case OpDelete:
		m.cut(t, c.Relation, c.Old)
	}
	return 1
}

// testTransactions applies what pgoutput sends, in text and in binary, in memory and from spill files, to a
// model and finds the tables' rows in it.
func testTransactions(t *testing.T, server *decodeServer) {
	for _, sql := range append(strings.Split(streamTables, ";"), streamWorkload...) {
		server.exec(t, "begin; "+sql+"; commit")
	}
	// With two_phase off this arrives as a transaction like any other.
	server.exec(t, "begin; insert into items values (80, 'prepared', 1, null); prepare transaction 'x'")
	server.exec(t, "insert into items values (81, 'between', 1, null)")
	server.exec(t, "commit prepared 'x'")
	catalog := server.typeCatalog(t)
	types := func(oid uint32, mod int32) *Type { return catalog.resolve(oid, mod, "column") }

	want := map[string][][]string{}
	for _, table := range []string{"items", "notes", "pairs"} {
		var columns []*Type
		for _, row := range server.query(t, 0, "select atttypid::int, atttypmod from pg_attribute where attrelid = $1::text::regclass and attnum > 0 order by attnum", table) {
			oid, _ := parseInteger(row[0])
			mod, _ := parseInteger(row[1])
			columns = append(columns, types(uint32(oid), int32(mod)))
		}
		for _, values := range server.query(t, 0, "select * from "+table) {
			row := make([]string, len(values))
			for i, value := range values {
				format := FormatText
				if value == nil {
					format = FormatNull
				}
				calls, err := decodeCalls(columns[i], format, value)
				if err != nil {
					t.Fatal(err)
				}
				row[i] = fmt.Sprint(calls)
			}
			want[table] = append(want[table], row)
		}
	}

	for _, binaryOption := range []string{"false", "true"} {
		rows := server.query(t, 1, "select data from pg_logical_slot_peek_binary_changes('s', null, null, 'proto_version', '1', 'publication_names', 'p', 'messages', 'true', 'binary', $1)", binaryOption)
		messages := make([][]byte, len(rows))
		for i, row := range rows {
			messages[i] = row[0]
		}
		if *captureFlag && binaryOption == "true" {
			writeCapture(t, capturedStream, messages)
		}
		for _, spillBytes := range []int64{1 << 20, 300} {
			t.Run(fmt.Sprintf("binary=%s,spill=%d", binaryOption, spillBytes), func(t *testing.T) {
				model := &rowsModel{tables: map[string][][]string{}, names: map[uint32]string{}, types: types}
				a := newAssembler(t.TempDir(), spillBytes)
				spilled := 0
				for _, tx := range assembleAll(t, a, messages) {
					var counted int64
					if err := tx.Changes(func(c *Change) error { counted += model.apply(t, c); return nil }); err != nil {
						t.Fatal(err)
					}
					if counted != tx.Rows {
						t.Errorf("transaction %d counted %d rows when staged and %d when read", tx.XID, tx.Rows, counted)
					}
					if tx.Spilled {
						spilled++
					}
					tx.Release()
				}
				if (spilled > 0) != (spillBytes == 300) {
					t.Errorf("%d transactions spilled", spilled)
				}
				for table, rows := range want {
					slices.SortFunc(rows, slices.Compare[[]string])
					slices.SortFunc(model.tables[table], slices.Compare[[]string])
					if fmt.Sprint(rows) != fmt.Sprint(model.tables[table]) {
						t.Errorf("%s holds\n%.1000v\nthe server\n%.1000v", table, fmt.Sprint(model.tables[table]), fmt.Sprint(rows))
					}
				}
			})
		}
	}
}

// assembleAll feeds messages from one buffer that is overwritten after each call, as the connection's is.
func assembleAll(t testing.TB, a *assembler, messages [][]byte) []*Transaction {
	t.Helper()
	var transactions []*Transaction
	var buffer []byte
	for _, message := range messages {
		buffer = append(buffer[:0], message...)
		tx, err := a.message(buffer)
		if err != nil {
			t.Fatal(err)
		}
		if tx != nil {
			transactions = append(transactions, tx)
		}
		for i := range buffer {
			buffer[i] = 0xee
		}
	}
	return transactions
}

func writeCapture(t *testing.T, path string, messages [][]byte) {
	t.Helper()
	var stream []byte
	for _, message := range messages {
		stream = append(binary.BigEndian.AppendUint32(stream, uint32(len(message))), message...)
	}
	if err := os.WriteFile(path, stream, 0o644); err != nil {
		t.Fatal(err)
	}
}

// capturedMessages reads a stream that -capture wrote.
func capturedMessages(t testing.TB, path string) [][]byte {
	t.Helper()
	stream, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	return cutMessages(stream)
}

// cutMessages cuts a stream of messages, each after its length; what is left at the end is one more.
func cutMessages(stream []byte) (messages [][]byte) {
	for len(stream) >= 4 {
		size := min(uint64(binary.BigEndian.Uint32(stream)), uint64(len(stream)-4))
		messages = append(messages, stream[4:4+size])
		stream = stream[4+size:]
	}
	return messages
}
