//go:build pgvector

package e2e

import (
	"fmt"
	"testing"
)

// pgvector's vectors are lists of floats, bit by bit, in the copy and in the stream, which is binary, in memory and in files. The server must have the extension:
// test/setup/pgvector.sh brings one.
func TestVectors(t *testing.T) {
	pg, m := scene(t, []string{"create extension vector", "create domain embedding as vector(3)", "create table t(id int primary key, v vector, w vector(3), e embedding, x int default 0)",
		"create function random_vector(n int) returns vector language sql volatile as $$ select array_agg((random() - 0.5) * 10 ^ (random() * 60 - 30))::real[]::vector from generate_series(1, n) $$",
		"insert into t select i, random_vector(1 + i % 50), random_vector(3), random_vector(3) from generate_series(1, 500) i", "insert into t values (1001, null, null, null), (1002, '[1e-45,-0,3.4028235e38]', '[1,2,3]', '[0.1,0.2,0.3]')"})
	pg.Exec("insert into t select i, random_vector(1 + i % 700), random_vector(3), random_vector(3) from generate_series(2001, 2500) i")
	check := func(when string) {
		t.Helper()
		caughtUp(pg, m)
		for _, c := range []string{"v", "w", "e"} {
			want, err := pg.Query(fmt.Sprintf("select id, coalesce((select string_agg(encode(float4send(f), 'hex'), ',' order by n) from unnest(%s::real[]) with ordinality u(f, n)), 'null') from t order by id", c))
			must(t, err)
			got := m.SQL(fmt.Sprintf("select id, coalesce(array_to_string(list_transform(%s, lambda e: lower(hex(cast(cast(e as bit) as blob)))), ','), 'null') from t order by id", c))
			if show(got) != show(want) {
				t.Fatalf("%s, %s:\n%.300s\nwant\n%.300s", when, c, show(got), show(want))
			}
		}
		m.Verify()
	}
	answers(t, m, "select typeof(v), typeof(w), typeof(e) from t limit 1", "FLOAT[]|FLOAT[]|FLOAT[]")
	check("in memory")
	m.Checkpoint()
	check("in files")
	restart(m)
	check("after a restart")
	pg.Exec("update t set x = 1")
	check("after updates that leave them alone")
}
