package e2e

import (
	"testing"

	"pgmirror/test/interop"
)

// TestOtherEngines: Iceberg's Java library commits to one of the mirror's tables while it runs. Expiry, a tag and a property are kept, and the mirror goes on.
func TestOtherEngines(t *testing.T) {
	t.Parallel()
	pg, m := scene(t, []string{
		"create table a(id bigint primary key, v text, n numeric(12,2), at timestamptz, u uuid, xs int[], d date, f float8, b bool, raw bytea)",
		"create table b(id int primary key, v text)",
	}, "--checkpoint-interval", "1h", "--compact", "off")
	engine := func(table, what string) string {
		t.Helper()
		out, err := interop.Engine(m.Data(), "public", table, what)
		must(t, err)
		return out
	}
	fill := func(from, to string) {
		t.Helper()
		pg.Exec("insert into a select i, 'v' || i, i * 1.5, '2026-01-01'::timestamptz + i * interval '1 hour', md5(i::text)::uuid, array[i, null, -i], '2026-01-01'::date + i, sqrt(i), i % 2 = 0, decode(md5(i::text), 'hex') "+
			"from generate_series("+from+", "+to+") i", "insert into b select i, 'b' || i from generate_series("+from+", "+to+") i", "update a set v = null where id % 7 = 0", "delete from a where id % 11 = 3")
	}
	fill("1", "500")
	m.Checkpoint()
	fill("501", "900")
	m.Checkpoint()

	engine("a", "maintain")
	fill("901", "1000")
	m.Checkpoint()
	st, err := m.Status()
	must(t, err)
	for _, ts := range st.Tables {
		if ts.State != "streaming" {
			t.Errorf("%s is %s: %s", ts.Name, ts.State, ts.Error)
		}
	}
	if refs := engine("a", "refs"); refs != "[audit, main] somebody" {
		t.Errorf("after the checkpoint there are %q", refs)
	}
	m.Verify()
}
