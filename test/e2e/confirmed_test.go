package e2e

import (
	"regexp"
	"testing"

	"pgmirror/mirror"
)

// A checkpoint made between a change of the rows that sends no row event and the look that finds it does not hold what the source never had: before it and
// after a crash, the table is what the checkpoint before had of it, and says so.
func TestCheckpointAmongSilentChanges(t *testing.T) {
	t.Parallel()
	pg, m := publishing(t, "p", []string{
		"create table parted(id int primary key, gen int) partition by range (id)", "create table p0 partition of parted for values from (0) to (100)", "create table p1 partition of parted for values from (100) to (200)",
		"create table plain(id int primary key, gen int)", "create table quiet(id int primary key)", "insert into parted select i, 0 from generate_series(1, 150) i", "insert into plain select i, 0 from generate_series(1, 50) i",
		"create publication p for table parted, plain, quiet with (publish_via_partition_root)"}, "--catalog-poll", "1h", "--checkpoint-interval", "1h", "--snapshots", "off")
	pg.Needs(15, "notice of tables that become partitions")
	streams(t, m, "parted", "plain", "quiet")
	m.Checkpoint()
	older := pg.Open("postgres", "postgres") // nothing is copied again before it ends
	older.Exec("begin", "select pg_current_xact_id()")
	pg.Exec("begin; alter table parted detach partition p0; drop table p0; create table p0 partition of parted for values from (0) to (100); insert into parted select i, 1 from generate_series(1, 20) i; commit",
		"alter table plain alter gen type int using gen + 1", "insert into plain values (51, 1)", "insert into quiet values (1)")
	within(t, "all of it is applied", func() bool { // without a look at the catalogue
		rows, err := m.TrySQL("from quiet")
		return err == nil && len(rows) == 1
	})
	m.Checkpoint()
	named := regexp.MustCompile(`can be read with --at ([0-9A-F]+/[0-9A-F]+)`)
	check := func(when string) {
		t.Helper()
		for table, rows := range map[string]string{"parted": "150", "plain": "50"} {
			_, err := m.TrySQL("from " + table)
			if err == nil || named.FindStringSubmatch(err.Error()) == nil {
				t.Errorf("%s: a read of %s: %v", when, table, err)
				continue
			}
			at := named.FindStringSubmatch(err.Error())[1]
			expect(t, when+": "+table+" at "+at, m.SQLWith("select gen, count(*) from "+table+" group by gen", "--at", at), "0|"+rows)
			if _, err := m.TrySQL("from "+table, "--at", m.WaitReady().DurableLSN); err == nil {
				t.Errorf("%s: the last checkpoint shows %s, which was not known then", when, table)
			}
		}
		expect(t, when+": quiet", m.SQL("from quiet"), "1")
	}
	check("before the copy")
	restart(m)
	check("after a crash")
	m.Stop()
	older.Exec("commit")
	m.Start()
	m.WaitStatus("all is copied again", func(s *mirror.Status) bool {
		for _, ts := range s.Tables {
			if ts.State != "streaming" {
				return false
			}
		}
		return len(s.Tables) == 3
	})
	m.Verify()
	m.Checkpoint()
	m.Stop()
	expect(t, "with no mirror", m.SQLWith("select gen, count(*) from parted group by gen order by gen"), "0|51", "1|20")
	expect(t, "with no mirror", m.SQLWith("select gen, count(*) from plain group by gen order by gen"), "1|51")
}
