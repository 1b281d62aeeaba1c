package pgcdc_test

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"

	"pgmirror/pgcdc"
	"pgmirror/test/harness"
)

var copyTests = map[string]serverTest{
	"Rows": copyRows, "Rewritten": copyRewritten, "SnapshotLost": copySnapshotLost, "Stopped": copyStopped,
}

// A copy has exactly the rows of the snapshot, each value as the type's own send or output function writes it, and none of
// those that came after it or that a child table holds.
func copyRows(t *testing.T, p *harness.Postgres) {
	r := newRig(t, p)
	columns := map[string]string{ // name to type: some binary, some text alone
		`"Se lect"`: "int", "n": "numeric", "ts": "timestamptz", "j": "jsonb", "arr": "int[]", `"r ""1"""`: "int4range", "pt": "point",
		"c": "char(5)", "o": "oidvector", `"ü"`: "text", "iv": "interval", "money_": "money", "ra": "point[]",
	}
	names := make([]string, 0, len(columns))
	definition := ""
	for name, typ := range columns {
		names = append(names, name)
		definition += name + " " + typ + ", "
	}
	table := `"Group"."by"`
	r.exec(`CREATE SCHEMA "Group"`, `GRANT USAGE ON SCHEMA "Group" TO `+r.name, `CREATE TABLE `+table+` (`+definition+` id int PRIMARY KEY)`,
		`GRANT SELECT ON `+table+` TO `+r.name, `INSERT INTO `+table+`(id) VALUES (0)`,
		`INSERT INTO `+table+` (id, "Se lect", n, ts, j, arr, "r ""1""", pt, c, o, "ü", iv, money_, ra) SELECT i, i, i / 3.0,
			'2024-01-01'::timestamptz + i * '1h'::interval, jsonb_build_object('i', i), ARRAY[i, NULL], int4range(i, i + 2), point(i, 0.1), 'ab',
			'1 2'::oidvector, repeat('ä', i % 3), i * '1 day 1s'::interval, i::money, ARRAY[point(i, 1)] FROM generate_series(1, 3000) i`,
		`CREATE TABLE child() INHERITS (`+table+`)`, `INSERT INTO child(id) VALUES (-1)`)
	r.publish("FOR TABLE ONLY " + table)
	snapshot := r.createSlot()
	r.exec(`INSERT INTO `+table+`(id) VALUES (100000)`, `DELETE FROM `+table+` WHERE id = 17`)
	shape := r.table("by")
	if shape.Unsupported != "" {
		t.Fatal(shape.Unsupported)
	}
	// The server's own functions give the expected bytes, under the same snapshot and settings.
	server := p.Open("postgres", r.name)
	server.Exec("SET search_path = pg_catalog; SET timezone = 'UTC'; SET extra_float_digits = 3",
		"BEGIN ISOLATION LEVEL REPEATABLE READ", "SET TRANSACTION SNAPSHOT '"+snapshot.Name+"'")
	sends := map[string]string{"int4": "int4send"}
	rows, _ := server.Query("SELECT t.typname, t.typsend::text FROM pg_type t WHERE t.typsend <> 0")
	for _, row := range rows {
		sends[row[0]] = row[1]
	}
	expression, text := "", 0
	for _, c := range shape.Columns {
		if expression != "" {
			expression += " || '|' || "
		}
		name := harness.Ident(c.Name)
		if c.Type.BinaryOK {
			typname, _ := server.Query(fmt.Sprintf("SELECT typname FROM pg_type WHERE oid = %d", c.Type.OID))
			expression += "coalesce(encode(" + sends[typname[0][0]] + "(" + name + "), 'hex'), '<n>')"
		} else {
			text++
			expression += "CASE WHEN " + name + " IS NULL THEN '<n>' ELSE format('%s', " + name + ") END"
		}
	}
	if text == 0 || text == len(shape.Columns) {
		t.Fatalf("%d of %d columns are text: both kinds are wanted", text, len(shape.Columns))
	}
	expected, _ := server.Query("SELECT " + expression + " FROM ONLY " + table)
	var want, got []string
	for _, row := range expected {
		want = append(want, row[0])
	}
	err := r.Copy(t.Context(), snapshot, shape, func(tuple pgcdc.Tuple) error {
		got = append(got, texts(tuple))
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	slices.Sort(want)
	slices.Sort(got)
	if len(want) != 3001 || !slices.Equal(got, want) {
		t.Errorf("%d rows, want %d", len(got), len(want))
		for i := range min(len(got), len(want)) {
			if got[i] != want[i] {
				t.Fatalf("got\n%s\nwant\n%s", got[i], want[i])
			}
		}
	}
}

// A table that was rewritten, altered, emptied, renamed, replaced or dropped after the snapshot is not copied; under the
// snapshot it would read as empty, or as another table. What changes neither rows nor columns disturbs no copy.
func copyRewritten(t *testing.T, p *harness.Postgres) {
	r := newRig(t, p)
	rewritten := []string{
		"ALTER TABLE %s ALTER v TYPE bigint USING v * 100", "VACUUM FULL %s", "TRUNCATE %s", "ALTER TABLE %s ADD n int", "ALTER TABLE %s ADD d int DEFAULT 3",
		"ALTER TABLE %s DROP v", "ALTER TABLE %s RENAME v TO w", "ALTER TABLE %[1]s RENAME TO %[1]s_x", "DROP TABLE %s",
		"BEGIN; ALTER TABLE %[1]s RENAME TO %[1]s_old; CREATE TABLE %[1]s(id int PRIMARY KEY, v int); GRANT SELECT ON %[1]s TO PUBLIC; COMMIT",
	}
	harmless := []string{"ANALYZE %s", "VACUUM %s", "ALTER TABLE %s ALTER v SET STATISTICS 10", "UPDATE %s SET v = v + 1", "CREATE INDEX ON %s(v)",
		"ALTER TABLE %s ALTER v SET NOT NULL"}
	for i := range len(rewritten) + len(harmless) {
		r.exec(fmt.Sprintf("CREATE TABLE t%d(id int PRIMARY KEY, v int)", i), fmt.Sprintf("INSERT INTO t%d SELECT i, i FROM generate_series(1, 100) i", i))
	}
	r.publish("FOR ALL TABLES")
	snapshot := r.createSlot()
	catalog := r.look()
	tables := map[string]*pgcdc.Table{}
	for i := range catalog.Tables {
		tables[catalog.Tables[i].Name] = &catalog.Tables[i]
	}
	for i, statement := range append(rewritten, harmless...) {
		name := fmt.Sprintf("t%d", i)
		table := tables[name]
		r.exec(fmt.Sprintf(statement, name))
		for _, shape := range []*pgcdc.Table{table, r.freshTable(name, table)} { // known before and after the change
			rows, sum := 0, 0
			err := r.Copy(t.Context(), snapshot, shape, func(tuple pgcdc.Tuple) error {
				rows++
				sum += int(tuple[1].Data[3])
				return nil
			})
			if i < len(rewritten) {
				if !errors.Is(err, pgcdc.ErrRewritten) || rows > 0 {
					t.Errorf("%s: %d rows, %v", statement, rows, err)
				}
			} else if err != nil || rows != 100 || sum != 5050 {
				t.Errorf("%s: %d rows that add up to %d, %v", statement, rows, sum, err)
			}
		}
	}
}

// freshTable is the table as it is looked at now, or the older look when it is gone.
func (r *rig) freshTable(name string, older *pgcdc.Table) *pgcdc.Table {
	r.t.Helper()
	catalog := r.look()
	for i := range catalog.Tables {
		if catalog.Tables[i].Name == name {
			return &catalog.Tables[i]
		}
	}
	return older
}

// Once the snapshot's connection is gone, a copy says so, and that beginning again is worth it.
func copySnapshotLost(t *testing.T, p *harness.Postgres) {
	r := newRig(t, p)
	r.exec("CREATE TABLE t(id int PRIMARY KEY)")
	r.publish("FOR TABLE t")
	snapshot := r.createSlot()
	table := r.table("t")
	none := func(pgcdc.Tuple) error { return nil }
	if err := r.Copy(t.Context(), snapshot, table, none); err != nil {
		t.Fatal(err)
	}
	r.CloseSnapshot()
	eventually(t, "the snapshot ends with its connection", func() bool {
		err := r.Copy(t.Context(), snapshot, table, none)
		if err != nil && !(errors.Is(err, pgcdc.ErrSnapshotLost) && pgcdc.IsRetryable(err)) {
			t.Fatal(err)
		}
		return err != nil
	})
}

// A copy that its receiver or its context stops leaves no session behind.
func copyStopped(t *testing.T, p *harness.Postgres) {
	r := newRig(t, p)
	r.exec("CREATE TABLE t(id int PRIMARY KEY, v text)", "INSERT INTO t SELECT i, repeat('x', 1000) FROM generate_series(1, 20000) i")
	r.publish("FOR TABLE t")
	snapshot := r.createSlot()
	table := r.table("t")
	stop := errors.New("stop")
	ctx, cancel := context.WithCancel(t.Context())
	for want, row := range map[error]func(pgcdc.Tuple) error{
		stop:             func(pgcdc.Tuple) error { return stop },
		context.Canceled: func(pgcdc.Tuple) error { cancel(); return nil },
	} {
		if err := r.Copy(ctx, snapshot, table, row); !errors.Is(err, want) {
			t.Errorf("%v: %v", want, err)
		}
		if want == context.Canceled {
			ctx, cancel = context.WithCancel(t.Context())
		}
	}
	cancel()
	eventually(t, "no copy runs on the server", func() bool {
		return p.QueryRow("SELECT count(*) FROM pg_stat_activity WHERE query LIKE 'COPY%' AND usename = '"+r.name+"'") == "0"
	})
}
