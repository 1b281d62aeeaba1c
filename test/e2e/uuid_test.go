package e2e

import (
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"testing"

	"github.com/google/uuid"

	"pgmirror/test/interop"
)

// A row is found by its uuid by every reader, ours too, in whichever of ten files it lies, and only that row: with random uuids, with those of version 7, where
// each file has a range of its own, and at the edges at which signed and unsigned comparison differ (S-T8). No reader is told an order of uuids: the specifications order
// them as bytes, Iceberg's Java library up to 1.10 as two signed numbers, and older readers of others with their halves swapped, so that what one prunes rightly another loses.
func TestScenarioUUID(t *testing.T) {
	t.Parallel()
	const files, rows = 10, 30
	pg, m := scene(t, []string{"create table random(id uuid primary key, n int)", "create table ordered(id uuid primary key, n int)", "create table edges(n int primary key, id uuid)"},
		"--checkpoint-interval", "1h", "--compact", "off")
	rng := rand.New(rand.NewPCG(8, 8))
	ids := map[string][]uuid.UUID{}
	edges := []string{"00000000-0000-0000-0000-000000000000", "00000000-0000-0000-8000-000000000000", "00000000-0000-0000-ffff-ffffffffffff", "7fffffff-ffff-ffff-ffff-ffffffffffff",
		"80000000-0000-0000-0000-000000000000", "80000000-0000-0000-7fff-ffffffffffff", "ffffffff-ffff-ffff-0000-000000000000", "ffffffff-ffff-ffff-ffff-ffffffffffff",
		"00112233-4455-6677-8899-aabbccddeeff", "ffeeddcc-bbaa-9988-7766-554433221100"}
	for file := range files {
		var statements []string
		insert := func(table, id string) {
			ids[table] = append(ids[table], uuid.MustParse(id))
			n := itoa(len(ids[table]))
			if table == "edges" {
				statements = append(statements, "insert into edges values ("+n+", '"+id+"')")
			} else {
				statements = append(statements, "insert into "+table+" values ('"+id+"', "+n+")")
			}
		}
		insert("edges", edges[file])
		insert("edges", edges[(file+5)%len(edges)]) // so that files span the edges
		for range rows {
			insert("random", fmt.Sprintf("%016x%016x", rng.Uint64(), rng.Uint64()))
			insert("ordered", fmt.Sprintf("%08x%08x%016x", uint32(file)<<28, rng.Uint32(), rng.Uint64())) // their first half leaves the signed range in the ninth file
		}
		pg.Exec(strings.Join(statements, "; "))
		m.SQL("from random limit 0")
		m.Checkpoint()
	}
	all, err := readers()
	must(t, err)
	tables, err := interop.Tables(m.Data())
	must(t, err)
	for _, table := range tables {
		snapshots, err := table.Snapshots()
		must(t, err)
		newest := snapshots[len(snapshots)-1].ID
		want := map[uuid.UUID]int{} // how many rows have it
		for _, id := range ids[table.Name] {
			want[id]++
		}
		asked := slices.Clone(ids[table.Name])
		if table.Name != "edges" {
			asked = []uuid.UUID{}
			for file := range files {
				asked = append(asked, ids[table.Name][file*rows+rng.IntN(rows)])
			}
		}
		nobody := uuid.MustParse("7f000000-0000-4000-8000-00000000abcd")
		var ours []string // each with its own constant, which the scan gets
		for i, id := range append(asked, nobody) {
			ours = append(ours, fmt.Sprintf("select %d as i, '%s' as asked, count(*) as found, any_value(id::varchar) as id from %s where id = '%s'", i, id, table.Name, id))
		}
		for _, got := range m.SQL(strings.Join(ours, " union all ") + " order by i") {
			if id := uuid.MustParse(got[1]); got[2] != itoa(want[id]) || want[id] > 0 && got[3] != id.String() {
				t.Errorf("%s: sql finds %q, want %d", table.Name, got, want[id])
			}
		}
		for _, id := range append(asked, nobody) {
			for _, reader := range all.All {
				got, err := reader.Read(interop.Query{Table: table, Snapshot: newest, Match: &interop.Match{Column: "id", UUID: id}})
				if err != nil {
					t.Fatalf("%s: %s: %v", table.Name, reader.Name(), err)
				}
				if len(got.Rows) != want[id] || len(got.Rows) > 0 && !slices.Contains(got.Rows[0], id.String()) {
					t.Errorf("%s: %s finds %s %q in %d files, want %d", table.Name, reader.Name(), id, got.Rows, got.Files, want[id])
				}
			}
		}
	}
	if len(tables) != 3 {
		t.Errorf("%d tables", len(tables))
	}
}
