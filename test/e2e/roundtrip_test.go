package e2e

import (
	"encoding/hex"
	"encoding/json"
	"flag"
	"fmt"
	"math/rand/v2"
	"strconv"
	"strings"
	"testing"

	"pgmirror/pgcdc"
	"pgmirror/test/harness"
)

var (
	roundValues = flag.Int("round.values", 600, "values of each type in TestRoundTrip")
	roundSeed   = flag.Uint64("round.seed", 1, "seed of TestRoundTrip")
)

// Values of every type are the same in DuckDB as on the source: format('%s', value) there is what docs/types.md says of the type here. Half of them come in the copy and half
// in the stream, which is binary or text; they are compared in memory, in files, after a restart, and after updates that leave them alone. The database has settings
// that change what a server prints (S-T9, S-T11, S-T12, S-T14, S-T18).
func TestRoundTrip(t *testing.T) {
	t.Parallel()
	for _, binary := range []bool{true, false} {
		t.Run(fmt.Sprintf("binary=%t", binary), func(t *testing.T) {
			t.Parallel()
			newRoundTrip(t, binary).run()
		})
	}
}

type roundTrip struct {
	t       *testing.T
	r       *rand.Rand
	binary  bool
	columns []column
	pg      *harness.Postgres
	m       *Mirror
	rows    int
	want    map[string][]string // by id, as the source prints them
}

func newRoundTrip(t *testing.T, binary bool) *roundTrip {
	return &roundTrip{t: t, r: rand.New(rand.NewPCG(*roundSeed, 0x707)), binary: binary, columns: roundColumns(binary)}
}

func (rt *roundTrip) run() {
	var definitions []string
	for _, c := range rt.columns {
		definitions = append(definitions, c.name+" "+c.ddl)
	}
	rt.pg = server(rt.t, []string{typesSQL, roundTypesSQL, "create table t(id int primary key, touched int default 0, " + strings.Join(definitions, ", ") + ")",
		"alter database postgres set datestyle = 'German'", "alter database postgres set intervalstyle = 'sql_standard'", "alter database postgres set timezone = 'Asia/Kolkata'",
		"alter database postgres set bytea_output = 'escape'", "alter database postgres set extra_float_digits = 0"})
	rt.insert(*roundValues / 2)
	rt.m = StartMirror(rt.t, rt.pg, "p", "--checkpoint-interval", "1h", "--batch-rows", "500")
	if !strings.Contains(rt.m.Log(), fmt.Sprintf("binary=%t", rt.binary)) {
		rt.t.Fatalf("the stream is not as the types say")
	}
	rt.insert(*roundValues - *roundValues/2)
	rt.source()
	rt.compare("copied, and in memory")
	rt.m.Checkpoint()
	rt.compare("in files")
	restart(rt.m)
	rt.compare("after a restart")
	rt.pg.Exec("update t set touched = 1 where id % 3 = 0")
	rt.compare("updated, from files into memory")
	rt.m.Verify()
}

// insert adds rows of random values.
func (rt *roundTrip) insert(n int) {
	const atOnce = 200
	s := rt.pg.Open("postgres", "postgres")
	defer s.Close()
	must(rt.t, s.Exec("set timezone = 'UTC'", "set datestyle = 'ISO'", "set intervalstyle = 'postgres'"))
	for n > 0 {
		var rows []string
		for range min(n, atOnce) {
			rt.rows++
			values := []string{strconv.Itoa(rt.rows), "0"}
			for _, c := range rt.columns {
				value := orNull(rt.r, c.literal)
				if strings.HasPrefix(value, "array[") {
					value += "::" + c.ddl // which an empty one needs
				}
				values = append(values, value)
			}
			rows = append(rows, "("+strings.Join(values, ", ")+")")
		}
		// One at a time: in a list of VALUES a literal has the type of those above it.
		if err := s.Exec("insert into t values " + strings.Join(rows, "; insert into t values ")); err != nil {
			rt.t.Fatalf("%.2000s", err)
		}
		n -= len(rows)
	}
}

// source asks PostgreSQL how it prints every value, in UTF-8 and hexadecimal, under the settings that the mirror pins.
func (rt *roundTrip) source() {
	s := rt.pg.Open("postgres", "postgres")
	defer s.Close()
	must(rt.t, s.Exec("set timezone = 'UTC'", "set datestyle = 'ISO'", "set intervalstyle = 'postgres'", "set bytea_output = 'hex'", "set extra_float_digits = 1"))
	parts := []string{"id"}
	for _, c := range rt.columns {
		printed := "format('%s', " + c.name + ")"
		if c.typ.Kind == pgcdc.KindList {
			printed = fmt.Sprintf("(select coalesce(json_agg(case when %[1]s[i] is distinct from null then format('%%s', %[1]s[i]) end order by i), '[]') from generate_subscripts(%[1]s, 1) i)::text", c.name)
		}
		parts = append(parts, fmt.Sprintf("case when %s is distinct from null then encode(convert_to(%s, 'UTF8'), 'hex') else 'null' end", c.name, printed))
	}
	rows, err := s.Query("select " + strings.Join(parts, ", ") + " from t order by id")
	must(rt.t, err)
	rt.want = map[string][]string{}
	for _, row := range rows {
		rt.want[row[0]] = row[1:]
	}
}

// compare holds every value of the mirror against the source's.
func (rt *roundTrip) compare(when string) {
	rt.t.Helper()
	caughtUp(rt.pg, rt.m)
	parts := []string{"id"}
	for _, c := range rt.columns {
		parts = append(parts, fmt.Sprintf("coalesce(lower(hex(%s)), 'null')", printedAsSource(c.name, c.typ)))
	}
	rows := rt.m.SQL("set timezone = 'UTC'; select " + strings.Join(parts, ", ") + " from t order by id")
	if len(rows) != rt.rows {
		rt.t.Fatalf("%s: %d rows, want %d", when, len(rows), rt.rows)
	}
	faults := 0
	for _, row := range rows {
		for i, c := range rt.columns {
			got, want := row[i+1], rt.want[row[0]][i]
			if got == want {
				continue
			}
			if g, w := plain(got, c.typ), plain(want, c.typ); g != w {
				rt.t.Errorf("%s: seed %d, row %s: %s is %q, want %q", when, *roundSeed, row[0], c.ddl, g, w)
				if faults++; faults == 20 {
					rt.t.FailNow()
				}
			}
		}
	}
}

// printedAsSource is SQL of DuckDB for the text that PostgreSQL prints of a value; numbers with a binary point are left as DuckDB prints them, for plain. docs/types.md has the same expressions.
func printedAsSource(v string, t *pgcdc.Type) string {
	switch t.Kind {
	case pgcdc.KindBool:
		return "left(" + v + "::varchar, 1)"
	case pgcdc.KindDecimal:
		return "regexp_replace(" + v + `::varchar, '^(-?)\.', '\10.')`
	case pgcdc.KindBytea:
		return `'\x' || lower(hex(` + v + "))"
	case pgcdc.KindDate, pgcdc.KindTimestamp:
		return "replace(" + v + "::varchar, ' (BC)', '') || if(contains(" + v + "::varchar, '(BC)'), ' BC', '')"
	case pgcdc.KindTimestampTZ: // DuckDB prints those of the year 280,000 and later a thousandth of a second off; make_timestamp has the same microseconds without a zone
		at := "make_timestamp(epoch_us(" + v + "))::varchar"
		return "if(isfinite(" + v + "), replace(" + at + ", ' (BC)', '') || '+00' || if(contains(" + at + ", '(BC)'), ' BC', ''), " + v + "::varchar)"
	case pgcdc.KindList:
		return "to_json(list_transform(" + v + ", lambda e: " + printedAsSource("e", t.Elem) + "))::varchar"
	}
	return v + "::varchar"
}

// plain makes what a side printed comparable: floats by their bits, lists by their elements.
func plain(printed string, t *pgcdc.Type) string {
	text, err := hex.DecodeString(printed)
	if err != nil { // null
		return printed
	}
	if t.Kind != pgcdc.KindList {
		return plainText(string(text), t)
	}
	var elements []*string
	if err := json.Unmarshal(text, &elements); err != nil {
		return string(text)
	}
	parts := make([]string, len(elements))
	for i, e := range elements {
		if parts[i] = "NULL"; e != nil {
			parts[i] = strconv.Quote(plainText(*e, t.Elem))
		}
	}
	return "{" + strings.Join(parts, ",") + "}"
}

func plainText(text string, t *pgcdc.Type) string {
	size := map[pgcdc.Kind]int{pgcdc.KindFloat4: 32, pgcdc.KindFloat8: 64}[t.Kind]
	if size == 0 {
		return text
	}
	v, err := strconv.ParseFloat(text, size)
	if err != nil {
		return text
	}
	return strconv.FormatFloat(v, 'x', -1, size)
}
