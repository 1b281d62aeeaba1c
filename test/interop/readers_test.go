package interop

import (
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strings"
	"testing"
)

// readers serves all tests of this binary.
var readers *Readers

func TestMain(m *testing.M) {
	var err error
	if readers, err = Start(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
	code := m.Run()
	if err := readers.Close(); err != nil {
		fmt.Fprintln(os.Stderr, err)
		code = 1
	}
	os.Exit(code)
}

// What java/Writer.java writes, in the textual form.
var (
	javaColumns = strings.Fields("id truth small single double money text bytes uuid day clock moment instant texts _pgmirror_lsn")
	javaRows    = []Row{
		{"1", "true", "-2147483648", "0x80000000", "0x3fb999999999999a", "-1234567890123456789012345678.0123456789", "'it''s'",
			`\x`, "00000000-0000-0000-ffff-ffffffffffff", "2147483647", "86399999999", "9223372036854775807",
			"-9223372036854775807", "['a''b',null,'']", "100"},
		{"2", "null", "null", "null", "null", "null", "null", "null", "null", "null", "null", "null", "null", "null", "101"},
		{"3", "false", "0", "nan", "0xfff0000000000000", "0.0000000000", "''", `\x00ff`, "00000000-0000-0002-ffff-fffffffffffd",
			"-2147483647", "0", "-9223372036854775807", "9223372036854775807", "[]", "200"},
		{"4", "true", "7", "0x00000001", "0x7fefffffffffffff", "12.5000000000", "'żółw 🐢'", `\x00`,
			"00000000-0000-0001-ffff-fffffffffffe", "-2440588", "1", "-210866803200000000", "-1", "['x']", "201"},
	}
)

func writeWithJava(t *testing.T) Table {
	t.Helper()
	dir := t.TempDir()
	classPath, err := setup("interop-java.sh")
	if err != nil {
		t.Fatal(err)
	}
	if out, err := exec.CommandContext(context.Background(), "java", "-XX:TieredStopAtLevel=1", "-cp", classPath, "Writer", dir).CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	tables, err := Tables(dir)
	if err != nil {
		t.Fatal(err)
	}
	if len(tables) != 1 || tables[0].Namespace != "public" || tables[0].Name != "every_type" {
		t.Fatalf("tables: %+v", tables)
	}
	return tables[0]
}

// Every reader shows each snapshot of a warehouse that Iceberg Java wrote: all types at their extremes, deletion vectors,
// superseded ones and ones that share a Puffin file. A filter on the hidden column is exact in every reader and opens only
// the files that can hold such rows.
func TestReadersAgreeOnJavaWarehouse(t *testing.T) {
	table := writeWithJava(t)
	snapshots, err := table.Snapshots()
	if err != nil {
		t.Fatal(err)
	}
	want := [][]Row{
		{javaRows[0], javaRows[1]},
		{javaRows[0], javaRows[1], javaRows[2], javaRows[3]},
		{javaRows[1], javaRows[2], javaRows[3]},
		{javaRows[3]},
	}
	if len(snapshots) != len(want) {
		t.Fatalf("%d snapshots, want %d", len(snapshots), len(want))
	}
	for i, s := range snapshots {
		readers.Check(t, table, s.ID, javaColumns, want[i])
	}

	ids, digests := make([]int64, len(snapshots)), make([]string, len(snapshots))
	for i, s := range snapshots {
		ids[i] = s.ID
		var rows []Row
		for _, row := range want[i] {
			rows = append(rows, row[:len(javaTypes)])
		}
		digests[i] = DigestOf(rows)
	}
	for _, reader := range readers.Digesters {
		got, err := reader.Digests(table, ids, read())
		if err != nil || !slices.Equal(got, digests) {
			t.Errorf("%s gives the digests %q, want %q: %v", reader.Name(), got, digests, err)
		}
	}

	second := snapshots[1].ID
	readers.CheckAbove(t, table, second, 99, javaColumns, []Row{javaRows[0], javaRows[1], javaRows[2], javaRows[3]}, 2)
	readers.CheckAbove(t, table, second, 100, javaColumns, []Row{javaRows[1], javaRows[2], javaRows[3]}, 2)
	readers.CheckAbove(t, table, second, 101, javaColumns, []Row{javaRows[2], javaRows[3]}, 1)
	readers.CheckAbove(t, table, second, 200, javaColumns, []Row{javaRows[3]}, 1)
	readers.CheckAbove(t, table, second, 201, javaColumns, nil, 0)
}
