package e2e

import (
	"flag"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"sync"
	"testing"
	"time"
)

var (
	rootSeed  = flag.Uint64("root.seed", 1, "first seed of TestRandomPartitions")
	rootSeeds = flag.Uint64("root.seeds", 2, "seeds of TestRandomPartitions")
	rootSteps = flag.Int("root.steps", 40, "changes of partitions of each seed of TestRandomPartitions")
)

// Whatever becomes of the partitions of tables that are published via their root, while clients write to them and pgmirror is killed and stopped, it comes to
// hold exactly the source's rows by itself. Meanwhile a query that waits for the source gets what the source had, or an error, and never what was there before.
func TestRandomPartitions(t *testing.T) {
	t.Parallel()
	for seed := *rootSeed; seed < *rootSeed+*rootSeeds; seed++ {
		t.Run(fmt.Sprintf("seed=%d", seed), func(t *testing.T) {
			t.Parallel()
			newPartitioner(t, seed).run()
		})
	}
}

// partitioner is an alterer of three partitioned tables: keyed; whole, whose rows have no key; and epoch, whose only row has a number that never goes back.
type partitioner struct{ *alterer }

// partitionSlots is how many partitions keyed and whole may have: of each ten values of d one.
const partitionSlots = 6

// shapes are the columns of the partitioned tables, and what each of their leaves needs beside.
var shapes = map[string]struct{ columns, key, leaf string }{
	"keyed": {"(id int not null, d int not null, v text)", "alter table NAME add primary key (id, d)", ""},
	"whole": {"(id int, d int, v text)", "alter table NAME replica identity full", "; alter table NAME replica identity full"},
}

func newPartitioner(t *testing.T, seed uint64) *partitioner {
	p := &partitioner{&alterer{t: t, r: rand.New(rand.NewPCG(seed, 0x9a7)), quit: make(chan struct{})}}
	s := &script{Version: 15, Settings: alteredSettings, Setup: []string{"alter default privileges grant select on tables to public", "create table epoch(id int primary key, e int) partition by list (id)",
		"create table epoch_leaf partition of epoch for values in (1)", "insert into epoch values (1, 0)"}}
	for root, shape := range shapes {
		s.Setup = append(s.Setup, "create table "+root+shape.columns+" partition by range (d)", strings.ReplaceAll(shape.key, "NAME", root))
		for slot := range partitionSlots - 2 {
			s.Setup = append(s.Setup, strings.Split(p.made(root, slot, fmt.Sprintf("%s_%d_0", root, slot)), "; ")...)
		}
		s.Setup = append(s.Setup, fmt.Sprintf("insert into %s select g, g %% %d, md5(g::text) from generate_series(1, 1000) g", root, 10*(partitionSlots-2)))
	}
	s.Setup = append(s.Setup, "create publication p for table keyed, whole, epoch with (publish_via_partition_root)")
	s.Args = []string{"--catalog-poll", oneOf("100ms", "400ms")(p.r), "--checkpoint-interval", oneOf("200ms", "1s", "30s")(p.r), "--batch-rows", oneOf("20", "500", "8192")(p.r),
		"--history", oneOf("0s", "3s")(p.r), "--memory", oneOf("1MiB", "25%")(p.r)}
	p.begin(seed, s)
	return p
}

func (p *partitioner) run() {
	for n := range uint64(2) {
		writer := p.connect()
		r := rand.New(rand.NewPCG(p.r.Uint64(), n))
		p.jobs.Go(func() {
			for p.waiting(r) {
				p.gate.RLock()
				p.done(writer, p.transaction(r))
				p.gate.RUnlock()
			}
		})
	}
	p.jobs.Go(p.readEpoch)
	stop := sync.OnceFunc(func() { close(p.quit); p.jobs.Wait() })
	defer stop()
	for step := 1; step <= *rootSteps && !p.t.Failed(); step++ {
		p.change()
		switch {
		case step%10 == 0:
			p.compare()
		case p.r.IntN(12) == 0:
			p.kill()
		case p.r.IntN(25) == 0:
			p.stop()
		}
		time.Sleep(time.Duration(p.r.IntN(250)) * time.Millisecond)
	}
	stop()
	p.compare()
	p.t.Logf("%d changes of partitions were refused", p.refused)
}

// waiting waits a moment; it says no when the run is over.
func (p *partitioner) waiting(r *rand.Rand) bool {
	select {
	case <-p.quit:
		return false
	case <-time.After(time.Duration(r.IntN(15)) * time.Millisecond):
		return true
	}
}

// transaction changes rows of the partitioned tables. The source refuses rows that no partition takes.
func (p *partitioner) transaction(r *rand.Rand) string {
	sql := []string{"begin"}
	for range 1 + r.IntN(3) {
		root, id, slot := oneOf("keyed", "whole")(r), r.IntN(2000), r.IntN(partitionSlots)
		switch r.IntN(5) {
		case 0, 1:
			sql = append(sql, fmt.Sprintf("insert into %s(id, d, v) select g, %d + g %% 10, md5(g::text) from generate_series(%d, %d) g on conflict do nothing", root, 10*slot, id, id+r.IntN(100)))
		case 2:
			sql = append(sql, fmt.Sprintf("update %s set v = left(v, 20) || '%d' where id %% 17 = %d", root, id, r.IntN(17)))
		case 3: // rows move
			sql = append(sql, fmt.Sprintf("update %s set d = %d + d %% 10, id = id + 5000 * (1 + id / 5000) where id %% 23 = %d and id < 50000", root, 10*slot, r.IntN(23)))
		case 4:
			sql = append(sql, fmt.Sprintf("savepoint s; delete from %s; rollback to s; delete from %s where id %% 11 = %d", root, root, r.IntN(11)))
		}
	}
	return strings.Join(append(sql, "commit"), "; ")
}

// bounds are those of a slot's partition.
func bounds(slot int) string { return fmt.Sprintf("for values from (%d) to (%d)", 10*slot, 10*slot+10) }

// made makes a partition for a slot.
func (p *partitioner) made(root string, slot int, name string) string {
	return "create table " + name + " partition of " + root + " " + bounds(slot) + strings.ReplaceAll(shapes[root].leaf, "NAME", name)
}

// change makes one change of partitions.
func (p *partitioner) change() {
	p.serial++
	root := oneOf("keyed", "whole")(p.r)
	var leaves, loose []string
	used := map[int]bool{}
	rows, err := p.session.Query("select c.relname, i.inhparent is not null from pg_class c left join pg_inherits i on i.inhrelid = c.oid where c.relname ~ '^" + root + "_[0-9]+_[0-9]+$' and relkind in ('r', 'p') order by 1")
	must(p.t, err)
	for _, row := range rows {
		if row[1] == "t" {
			leaves = append(leaves, row[0])
			used[slotOf(row[0])] = true
		} else {
			loose = append(loose, row[0])
		}
	}
	free := slices.DeleteFunc([]int{0, 1, 2, 3, 4, 5}, func(slot int) bool { return used[slot] })
	column, err := p.session.Query("select attname from pg_attribute where attrelid = '" + root + "'::regclass and attnum > 3 and not attisdropped limit 1")
	must(p.t, err)
	forms := []string{
		"truncate ROOT", "begin; truncate ROOT; insert into ROOT select g, d, 'anew' from ROOT, generate_series(1, 2) g; commit", "alter table ROOT add column xSERIAL int default 7", "alter table ROOT add column xSERIAL text",
		"alter table ROOT alter v type text using 'y' || left(v, 30)",
	}
	name := fmt.Sprintf("%s_%%d_%d", root, p.serial)
	if len(column) > 0 {
		forms = append(forms, "alter table ROOT drop column "+column[0][0])
	}
	if len(leaves) > 0 {
		leaf := leaves[p.r.IntN(len(leaves))]
		slot := slotOf(leaf)
		anew := fmt.Sprintf(name, slot)
		forms = append(forms, "truncate "+leaf, "begin; insert into ROOT select id + 1, d, 'moved' from "+leaf+" on conflict do nothing; truncate "+leaf+"; commit", "vacuum full "+leaf,
			"alter table ROOT detach partition "+leaf, "alter table ROOT detach partition "+leaf+" concurrently", "drop table "+leaf, "begin; savepoint s; alter table ROOT detach partition "+leaf+"; rollback to s; delete from ROOT where id % 7 = 1; commit",
			"begin; drop table "+leaf+"; "+p.made(root, slot, anew)+"; insert into ROOT(id, d, v) values (1, "+itoa(10*slot)+", 'first'); commit",
			"begin; create table "+anew+" (like "+leaf+" including all); insert into "+anew+" select * from "+leaf+" where id % 2 = 0; drop table "+leaf+"; alter table "+anew+" replica identity full; alter table ROOT attach partition "+anew+" "+bounds(slot)+"; commit",
			"alter table ROOT detach partition "+leaf+"; insert into "+leaf+"(id, d, v) values (100000, "+itoa(10*slot)+", 'unseen'); alter table ROOT attach partition "+leaf+" "+bounds(slot))
		if root == "keyed" {
			forms = append(forms, "alter table "+leaf+" replica identity full", "alter table "+leaf+" replica identity default")
		}
	}
	if len(free) > 0 {
		slot := free[p.r.IntN(len(free))]
		anew := fmt.Sprintf(name, slot)
		like := "create table " + anew + " (like ROOT including all); alter table " + anew + " replica identity full; "
		forms = append(forms, p.made(root, slot, anew), "begin; "+p.made(root, slot, anew)+"; insert into ROOT(id, d, v) select g, "+itoa(10*slot)+", 'new' from generate_series(1, 50) g; commit",
			like+"alter table ROOT attach partition "+anew+" "+bounds(slot),
			like+"insert into "+anew+"(id, d, v) select g, "+itoa(10*slot)+", 'attached' from generate_series(1, 200) g; alter table ROOT attach partition "+anew+" "+bounds(slot),
			"begin; "+like+"insert into "+anew+"(id, d, v) values (7, "+itoa(10*slot)+", 'attached'); alter table ROOT attach partition "+anew+" "+bounds(slot)+"; update ROOT set v = 'known' where id = 7; commit",
			fmt.Sprintf("begin; create table %[1]s (like ROOT including all) partition by range (d); create table %[1]s_a partition of %[1]s for values from (%[2]d) to (%[3]d); create table %[1]s_b partition of %[1]s default; "+
				"alter table %[1]s_a replica identity full; alter table %[1]s_b replica identity full; insert into %[1]s(id, d, v) select g, %[2]d + g %% 10, 'deep' from generate_series(1, 100) g; alter table ROOT attach partition %[1]s %[4]s; commit",
				anew, 10*slot, 10*slot+5, bounds(slot)))
	}
	for _, table := range loose {
		forms = append(forms, "insert into "+table+"(id, d, v) values ("+itoa(200000+p.serial)+", "+itoa(10*slotOf(table))+", 'loose'); alter table ROOT attach partition "+table+" "+bounds(slotOf(table)), "drop table "+table)
	}
	if n := p.r.IntN(len(forms) + 5); n < len(forms) {
		sql := strings.NewReplacer("ROOT", root, "SERIAL", itoa(p.serial)).Replace(forms[n])
		p.t.Logf("%d: %s", p.serial, sql)
		for _, s := range apart(sql) {
			if !p.exec(s) {
				return
			}
		}
		return
	}
	p.nextEpoch()
}

// apart takes statements apart that are no one transaction: what stands between BEGIN and COMMIT stays together.
func apart(sql string) []string {
	if strings.HasPrefix(sql, "begin") {
		return []string{sql}
	}
	return splitSQL(sql)
}

// slotOf reads a slot from the name of its partition.
func slotOf(name string) (slot int) {
	_, err := fmt.Sscanf(strings.SplitN(name, "_", 3)[1], "%d", &slot)
	if err != nil {
		return -1
	}
	return slot
}

// nextEpoch gives the table epoch's only row another value, mostly by what sends no event of its old row.
func (p *partitioner) nextEpoch() {
	next := p.epoch.Load() + 1
	forms := []string{
		"begin; drop table epoch_leaf; create table epoch_leaf partition of epoch for values in (1); insert into epoch values (1, %d); commit",
		"begin; create table epochs(id int primary key, e int); insert into epochs values (1, %d); drop table epoch_leaf; alter table epochs rename to epoch_leaf; alter table epoch attach partition epoch_leaf for values in (1); commit",
		"begin; truncate epoch_leaf; insert into epoch values (1, %d); commit", "begin; truncate epoch; insert into epoch values (1, %d); commit",
		"alter table epoch alter e type int using %d", "update epoch set e = %d",
	}
	if p.exec(fmt.Sprintf(forms[p.r.IntN(len(forms))], next)) {
		p.epoch.Store(next)
	}
}

// compare waits until all tables are streaming and holds them against the source's while nobody writes.
func (p *partitioner) compare() {
	p.t.Helper()
	p.gate.Lock()
	defer p.gate.Unlock()
	queries := []string{"select * from keyed order by id, d", "select id, d, v, count(*) from whole group by id, d, v order by id, d, v", "select * from epoch"}
	p.rec.add(act{Do: "compare", SQL: queries})
	compareAll(p.t, p.pg, p.m, queries)
}
