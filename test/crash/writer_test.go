package crash

import (
	"fmt"
	"math/rand/v2"
	"strings"

	"pgmirror/test/harness"
)

// schema has a table of every kind of identity, and values that are TOASTed out of line.
var schema = []string{
	`CREATE TABLE keyed (id int PRIMARY KEY, v text, n bigint)`,
	`CREATE TABLE composite (b text, a int, v numeric(12,3), PRIMARY KEY (a, b))`,
	`CREATE TABLE bag (a int, b text, j jsonb)`,
	`ALTER TABLE bag REPLICA IDENTITY FULL`,
	`CREATE TABLE fullkey (a bigint PRIMARY KEY, v text, w bytea)`,
	`ALTER TABLE fullkey REPLICA IDENTITY FULL`,
	`ALTER TABLE fullkey ALTER w SET STORAGE EXTERNAL`,
	`CREATE TABLE texts (id text PRIMARY KEY, body text, a int)`,
	`ALTER TABLE texts ALTER body SET STORAGE EXTERNAL`,
	`CREATE TABLE byindex (id int PRIMARY KEY, a int NOT NULL UNIQUE, u uuid, words text[])`,
	`ALTER TABLE byindex REPLICA IDENTITY USING INDEX byindex_a_key`,
	`CREATE TABLE journal (at timestamptz, a int, v text)`,
	`CREATE TABLE accounts (id int PRIMARY KEY, balance float8, day date)`,
	`CREATE PUBLICATION p FOR ALL TABLES`,
}

// statement is one kind of change. Each %d is a random number below the one given for it, except that the number of a
// "serial" (0) was never given before.
type statement struct {
	weight int
	sql    string
	below  []int
}

const serial = 0

var statements = []statement{
	{4, `INSERT INTO keyed SELECT g, md5(g::text), %d FROM generate_series(%d, %d + 90) g ON CONFLICT (id) DO UPDATE SET n = keyed.n + 1`, []int{1000, 90, 30}},
	{3, `UPDATE keyed SET n = n + %d WHERE id %% 7 = %d`, []int{9, 7}},
	{2, `UPDATE keyed SET id = 1000 + %d * 1000 + id, v = NULL WHERE id = (SELECT min(id) + %d FROM keyed) AND id < 1000`, []int{serial, 5}},
	{3, `DELETE FROM keyed WHERE id %% 11 IN (%d, %d)`, []int{11, 11}},
	{4, `INSERT INTO composite SELECT chr(97 + %d), g, g / 7.0 FROM generate_series(%d, 60) g ON CONFLICT DO NOTHING`, []int{5, 60}},
	{3, `UPDATE composite SET v = v + %d WHERE a %% 5 = %d`, []int{9, 5}},
	{1, `UPDATE composite SET b = b || '.' || %d WHERE a %% 13 = %d`, []int{serial, 13}},
	{3, `DELETE FROM composite WHERE a %% 6 = %d`, []int{6}},
	{4, `INSERT INTO bag SELECT g %% 9, CASE WHEN g %% 4 > 0 THEN 'b' END, jsonb_build_object('k', g %% 3) FROM generate_series(1, %d) g`, []int{40}},
	{3, `UPDATE bag SET b = 'x' || %d WHERE ctid IN (SELECT ctid FROM bag WHERE a = %d LIMIT 3)`, []int{20, 9}},
	{2, `DELETE FROM bag WHERE ctid IN (SELECT ctid FROM bag WHERE a = %d LIMIT 5)`, []int{9}},
	{1, `DELETE FROM bag WHERE a %% 3 = %d`, []int{3}},
	{4, `INSERT INTO fullkey SELECT g, 'v', convert_to(repeat(md5(g::text), 90), 'UTF8') FROM generate_series(%d, 40) g ON CONFLICT (a) DO UPDATE SET v = fullkey.v || 'w'`, []int{40}},
	{3, `UPDATE fullkey SET v = NULLIF('v' || %d, 'v0') WHERE a %% 4 = %d`, []int{5, 4}},
	{2, `DELETE FROM fullkey WHERE a %% 5 = %d`, []int{5}},
	{4, `INSERT INTO texts SELECT 'k' || g, repeat(md5(g::text), 100), g FROM generate_series(%d, 40) g ON CONFLICT DO NOTHING`, []int{40}},
	{4, `UPDATE texts SET a = a + 1 WHERE a %% 3 = %d`, []int{3}},
	{1, `UPDATE texts SET id = id || '-' || %d WHERE a %% 9 = %d`, []int{serial, 9}},
	{1, `UPDATE texts SET body = repeat(md5(id), %d) WHERE a %% 8 = %d`, []int{150, 8}},
	{2, `DELETE FROM texts WHERE a %% 6 = %d`, []int{6}},
	{4, `INSERT INTO byindex SELECT g, g, md5(g::text)::uuid, ARRAY['w' || g, NULL] FROM generate_series(%d, 80) g ON CONFLICT DO NOTHING`, []int{80}},
	{3, `UPDATE byindex SET words = words || 'x'::text WHERE a %% 7 = %d`, []int{7}},
	{1, `UPDATE byindex SET a = 1000 + %d * 1000 + a WHERE id = %d AND a < 1000`, []int{serial, 80}},
	{2, `DELETE FROM byindex WHERE id %% 9 = %d`, []int{9}},
	{4, `INSERT INTO journal SELECT now(), g, 'entry' FROM generate_series(1, %d) g`, []int{25}},
	{4, `INSERT INTO accounts SELECT g, g / 3.0, '2024-02-29' FROM generate_series(1, %d) g ON CONFLICT (id) DO UPDATE SET balance = accounts.balance + 1`, []int{50}},
	{2, `DELETE FROM accounts WHERE id %% 4 = %d`, []int{4}},
}

var truncates = []string{
	`TRUNCATE keyed`, `TRUNCATE bag, composite`, `TRUNCATE journal, accounts`, `TRUNCATE texts`, `TRUNCATE fullkey, byindex, journal`,
}

// altered are tables whose definition changes, without a row event.
var altered = []string{"keyed", "bag", "texts", "journal"}

// alter gives one of them a column, or takes it away.
func (w *writer) alter() error {
	how := []string{"ADD COLUMN IF NOT EXISTS extra int DEFAULT 7", "DROP COLUMN IF EXISTS extra", "ADD COLUMN IF NOT EXISTS more text", "DROP COLUMN IF EXISTS more"}
	return w.Exec("ALTER TABLE " + altered[w.random.IntN(len(altered))] + " " + how[w.random.IntN(len(how))])
}

// writer changes the source in one session, in transactions that its seed chooses.
type writer struct {
	*harness.Session
	random *rand.Rand
	serial int
	weight int // of all statements
}

func newWriter(session *harness.Session, seed uint64) *writer {
	w := &writer{Session: session, random: rand.New(rand.NewPCG(seed, 2))}
	for _, c := range statements {
		w.weight += c.weight
	}
	return w
}

func (w *writer) next() string {
	at := w.random.IntN(w.weight)
	i := 0
	for at >= statements[i].weight {
		at -= statements[i].weight
		i++
	}
	args := make([]any, len(statements[i].below))
	for j, below := range statements[i].below {
		if below == serial {
			w.serial++
			args[j] = w.serial
		} else {
			args[j] = w.random.IntN(below)
		}
	}
	return fmt.Sprintf(statements[i].sql, args...)
}

// transaction commits one to five statements on any tables, some of them taken back by a savepoint, now and then with a
// TRUNCATE among them; one transaction in twelve is rolled back.
func (w *writer) transaction() error {
	sql := []string{"BEGIN"}
	for range 1 + w.random.IntN(5) {
		switch n := w.random.IntN(100); {
		case n < 2:
			sql = append(sql, truncates[w.random.IntN(len(truncates))])
		case n < 10:
			sql = append(sql, "SAVEPOINT s", w.next(), "ROLLBACK TO s", w.next())
		default:
			sql = append(sql, w.next())
		}
	}
	end := "COMMIT"
	if w.random.IntN(12) == 0 {
		end = "ROLLBACK"
	}
	return w.Exec(strings.Join(append(sql, end), ";\n"))
}
