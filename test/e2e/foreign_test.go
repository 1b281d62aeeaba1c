package e2e

import (
	"encoding/json"
	"strings"
	"testing"

	"pgmirror/mirror"
	"pgmirror/test/interop"
)

// TestOtherEngines (S-I9): Iceberg's Java library commits to the mirror's tables while it runs, and while it is down. Expiry, a tag and a property are
// kept; a rewrite of all files is taken over, with the rows that change meanwhile; an append fails its table alone, and a resync brings that back.
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
	stands := func(name, state string) *mirror.TableStatus {
		t.Helper()
		st, err := m.Status()
		must(t, err)
		for i := range st.Tables {
			if ts := &st.Tables[i]; ts.Name == name {
				if ts.State != state {
					t.Fatalf("%s is %s: %s", name, ts.State, ts.Error)
				}
				return ts
			}
		}
		t.Fatalf("no table %s", name)
		return nil
	}
	fill("1", "500")
	m.Checkpoint()
	fill("501", "900")
	m.Checkpoint()

	engine("a", "maintain")
	fill("901", "1000")
	m.Checkpoint()
	stands("public.a", "streaming")
	if refs := engine("a", "refs"); refs != "[audit, main] somebody" {
		t.Errorf("after the checkpoint there are %q", refs)
	}
	m.Verify()

	for _, down := range []bool{false, true} {
		pg.Exec("update a set n = n + 1 where id % 5 = 0", "delete from a where id % 13 = 1") // not committed in Iceberg when the files are rewritten
		if down {
			m.Kill()
		}
		file := strings.TrimPrefix(engine("a", "rewrite"), "file://")
		if down {
			m.Start()
			m.WaitReady()
		}
		pg.Exec("update a set v = v || '!' where id between 100 and 200")
		m.Checkpoint()
		stands("public.a", "streaming")
		m.Verify()
		out, stderr, code := m.Command("inspect", "--json", "public.a")
		var rep mirror.InspectReport
		if code != 0 || json.Unmarshal([]byte(out), &rep) != nil {
			t.Fatalf("inspect: %s%s", out, stderr)
		}
		found := false
		for _, f := range rep.Files {
			found = found || f.Path == file && f.Published
		}
		if !found {
			t.Errorf("the rewritten file %s is not among %+v", file, rep.Files)
		}
	}
	restart(m)
	m.Verify()

	engine("b", "append")
	fill("2001", "2100")
	m.Checkpoint()
	stands("public.a", "streaming")
	if ts := stands("public.b", "failed"); !strings.Contains(ts.Error, "append") || !strings.Contains(ts.Remedy, "pgmirror resync") {
		t.Errorf("the table is %+v", ts)
	}
	m.Verify("public.a")
	if out, stderr, code := m.Command("resync", "public.b"); code != 0 {
		t.Fatalf("resync: %s%s", out, stderr)
	}
	m.Checkpoint()
	stands("public.b", "streaming")
	restart(m)
	m.Verify()
}
