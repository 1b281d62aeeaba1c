package crash

import (
	"context"
	"database/sql"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io/fs"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/jackc/pgx/v5/pgconn"

	"pgmirror/iceberg"
	"pgmirror/mirror"
	"pgmirror/readstate"
	"pgmirror/test/harness"
)

var (
	crashSeed   = flag.Uint64("crash.seed", 1, "first seed of the crash test; the n-th chain has the n-th from there")
	crashRounds = flag.Int("crash.rounds", 200, "crashes of the crash test")
)

// chain is a run of lives over one data directory and one slot.
type chain struct {
	*lab
	t         *testing.T
	seed      uint64
	random    *rand.Rand
	writer    *writer
	dir       string
	slot      string
	durable   iceberg.LSN // the newest cut found on the disk
	streaming bool        // the first copy was found complete
}

// lab is what all chains share.
type lab struct {
	server *harness.Postgres
	admin  *harness.Session // reads with the settings that interop.PostgresText wants
	deck   [2][]string      // effects to die at next: before and after the first copy is complete
	hits   map[string]int   // deaths by effect
	rounds int              // deaths so far
}

// fileEffects are FS's own.
var fileEffects = []string{"create", "write", "sync", "rename", "remove", "mkdir", "sync directory"}

// allEffects names every step at which a mirror dies in this test.
func allEffects() []string {
	return slices.Concat(fileEffects, iceberg.EffectNames, mirror.EffectNames, firstEffects, copyEffects, joinEffects)
}

// ofJoins says that an effect comes only when a table is copied again.
func ofJoins(name string) bool {
	return slices.Contains(joinEffects, name) || strings.Contains(name, "join")
}

// ofExpiry says that an effect comes only when snapshots expire of a table that does not change at that time.
func ofExpiry(name string) bool { return strings.HasPrefix(name, "expiry") }

// draw chooses where the next life ends: each effect, and none at all, comes as often as any other, those of the first copy only before
// that is complete, and those of joins only after; which of its occurrences it is, is left to chance.
func (c *chain) draw() *Effects {
	which := 0
	if c.streaming {
		which = 1
	}
	if len(c.deck[which]) == 0 {
		names := slices.DeleteFunc(append(allEffects(), Outright), func(name string) bool {
			return c.streaming && slices.Contains(firstEffects, name) || !c.streaming && (ofJoins(name) || ofExpiry(name))
		})
		c.random.Shuffle(len(names), func(i, j int) { names[i], names[j] = names[j], names[i] })
		c.deck[which] = names
	}
	name := c.deck[which][0]
	c.deck[which] = c.deck[which][1:]
	if name == Outright {
		return FailAt(0)
	}
	spread := 2.0 // mean number of occurrences that are survived
	switch {
	case strings.Contains(name, "slot"), ofJoins(name), ofExpiry(name):
		spread = 0
	case slices.Contains(fileEffects, name) && name != "mkdir":
		spread = 20
	}
	return FailAtNamed(name, 1+int(c.random.ExpFloat64()*spread))
}

// Wherever a mirror is killed, and whatever of its unsynced writes is lost, the lives after it lose and double nothing: at the
// end of each chain of crashes every table is PostgreSQL's, in memory, on disk and in every retained Iceberg snapshot. Nothing
// was acknowledged that was not durable, and no file is left over.
func TestMirrorSurvivesCrashes(t *testing.T) {
	t.Logf("seeds from %d, %d rounds", *crashSeed, *crashRounds)
	l := &lab{server: harness.StartPostgres(t, harness.Setting("max_connections", "60")), hits: map[string]int{}}
	l.admin = l.server.Open("postgres", "postgres")
	if err := l.admin.Exec(append(schema, "SET timezone = 'UTC'", "SET extra_float_digits = 1")...); err != nil {
		t.Fatal(err)
	}
	if err := l.server.CreateMirrorRole("mirror", "postgres"); err != nil {
		t.Fatal(err)
	}
	for seed := *crashSeed; l.rounds < *crashRounds; seed++ {
		ok := t.Run(fmt.Sprint(seed), func(t *testing.T) { l.chain(t, seed) })
		if !ok {
			t.Fatalf("run it again with -crash.seed=%d -crash.rounds=1", seed)
		}
	}
	for _, name := range append(allEffects(), Outright) {
		t.Logf("%4d deaths at %q", l.hits[name], name)
		enough := 200
		if ofJoins(name) || ofExpiry(name) { // a join may end in other ways before, and not every life has something to expire
			enough = 1000
		}
		if l.hits[name] == 0 && *crashRounds >= enough {
			t.Errorf("no life ended at %q", name)
		}
	}
}

// chain lets a mirror die a few times and then live.
func (l *lab) chain(t *testing.T, seed uint64) {
	c := &chain{lab: l, t: t, seed: seed, random: rand.New(rand.NewPCG(seed, 0)), dir: t.TempDir(), slot: fmt.Sprintf("crash_%d", seed)}
	c.writer = newWriter(l.server.For(t).Open("postgres", "postgres"), seed)
	c.writer.serial = int(seed%2000) * 1000 // other chains' keys stay theirs
	c.check(l.admin.Exec("TRUNCATE journal"))
	for range 5 {
		c.check(c.writer.transaction())
	}
	for range 1 + c.random.IntN(9) {
		c.die()
	}
	want := c.catchUp()
	c.restart(want)
	c.dropSlot()
}

func (c *chain) check(err error) {
	c.t.Helper()
	if err != nil {
		c.t.Fatal(err)
	}
}

// die is a life up to its death and the look at what it left.
func (c *chain) die() {
	c.t.Helper()
	started := time.Now()
	effects := c.draw()
	l := c.begin(effects)
	c.work(l)
	effects.Kill()
	l.abandon(c.seed<<16 + uint64(c.rounds))
	name, _ := effects.Crashed()
	c.rounds++
	c.hits[name]++
	c.inspect()
	c.t.Logf("died at %q after %d effects, %s; durable up to %s", name, effects.Count(), time.Since(started).Round(time.Millisecond), c.durable)
}

// work changes the source while the mirror lives, a few times while it starts and more once it streams.
func (c *chain) work(l *life) {
	c.t.Helper()
	deadline := time.Now().Add(patience)
	for left := c.random.IntN(6); !l.over() && !l.streaming(); left-- {
		if left > 0 {
			c.check(c.writer.transaction())
		}
		l.wait(deadline)
	}
	joining, expiring := ofJoins(l.effects.name), ofExpiry(l.effects.name)
	if joining && !l.over() {
		c.resync(l)
	}
	for range 10 + c.random.IntN(30) {
		if l.over() {
			return
		}
		c.check(c.writer.transaction())
		switch c.random.IntN(50) {
		case 0, 1:
			c.resync(l)
		case 2:
			c.check(c.writer.alter())
		}
		if expiring {
			c.checkpoint(l, patience)
			c.expire(l)
		}
		switch c.random.IntN(12) {
		case 0, 1:
			c.checkpoint(l, patience)
		case 5:
			c.expire(l)
		case 2: // a client that gives up
			c.checkpoint(l, time.Duration(c.random.IntN(20))*time.Millisecond)
		case 3:
			l.read()
		case 4:
			c.waitSource(l)
		}
	}
	for limit := time.Now().Add(joinPatience); joining && !l.over() && time.Now().Before(limit); {
		l.wait(deadline)
	}
	if !l.over() {
		c.checkpoint(l, patience)
	}
}

// joinPatience is how long a life that is to end in a step of a join waits for it: an attempt may fail once, and is made again after a second.
const joinPatience = 3 * time.Second

// resync asks for a table to be copied again, and waits for it for a while or does not.
func (c *chain) resync(l *life) {
	ctx, cancel := context.WithTimeout(context.Background(), time.Duration(c.random.IntN(100))*time.Millisecond)
	defer cancel()
	args, err := json.Marshal(mirror.ResyncRequest{Tables: []string{altered[c.random.IntN(len(altered))]}})
	c.check(err)
	_, err = l.mirror.Call(ctx, "resync", args, nil)
	if err != nil && ctx.Err() == nil && !pgconn.Timeout(err) && !l.over() { // a busy machine may be late to connect
		l.fatal("resync", err)
	}
}

// checkpoint asks for a checkpoint. It may fail: in a dead process, or when the client does not wait for it.
func (c *chain) checkpoint(l *life, limit time.Duration) {
	ctx, cancel := context.WithTimeout(context.Background(), limit)
	defer cancel()
	_, err := l.mirror.Call(ctx, "checkpoint", nil, nil)
	if err != nil && limit == patience && !l.over() {
		l.fatal("checkpoint", err)
	}
}

// expire asks for the housekeeping that a life is too short to do by itself. It may fail in a dead process.
func (c *chain) expire(l *life) {
	args, err := json.Marshal(mirror.ExpireRequest{Orphans: c.random.IntN(2) == 0})
	c.check(err)
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	if _, err := l.mirror.Call(ctx, "expire", args, nil); err != nil && !l.over() {
		l.fatal("expire", err)
	}
}

// waitSource waits until everything that was committed is visible, or the process dead.
func (c *chain) waitSource(l *life) {
	ctx, cancel := context.WithCancel(context.Background())
	defer cancel()
	go func() {
		select {
		case <-l.effects.Died():
			cancel()
		case <-ctx.Done():
		}
	}()
	state, err := l.mirror.Pin(ctx, readstate.PinRequest{WaitSource: true, Timeout: patience})
	if err == nil {
		state.Release()
	} else if !l.over() {
		l.fatal("read what was committed", err)
	}
}

// dropSlot drops the slot once the last life's connection has let it go.
func (c *chain) dropSlot() {
	c.t.Helper()
	for deadline := time.Now().Add(patience); ; time.Sleep(2 * time.Millisecond) {
		rows, err := c.admin.Query(fmt.Sprintf("SELECT active FROM pg_replication_slots WHERE slot_name = '%s'", c.slot))
		c.check(err)
		if rows[0][0] == "f" {
			c.check(c.admin.Exec(fmt.Sprintf("SELECT pg_drop_replication_slot('%s')", c.slot)))
			return
		}
		if time.Now().After(deadline) {
			c.t.Fatalf("slot %s stays in use", c.slot)
		}
	}
}

// document is what the test reads of the stored state.
type document struct {
	Phase  string `json:"phase"`
	Tables []struct {
		Name    readstate.TableName `json:"name"`
		State   string              `json:"state"`
		Failure json.RawMessage     `json:"failure"`
		Resync  string              `json:"resync"`
	} `json:"tables"`
}

// inspect compares what a dead process stored with what it told PostgreSQL.
func (c *chain) inspect() {
	c.t.Helper()
	doc, durable := c.stored()
	rows, err := c.admin.Query(fmt.Sprintf("SELECT confirmed_flush_lsn - '0/0' FROM pg_replication_slots WHERE slot_name = '%s'", c.slot))
	c.check(err)
	switch {
	case c.streaming && durable < c.durable:
		c.t.Fatalf("the stored cut went back from %s to %s", c.durable, durable)
	case c.streaming && doc.Phase != "streaming":
		c.t.Fatalf("a complete copy became %q", doc.Phase)
	case doc.Phase == "" && len(rows) > 0:
		c.t.Fatal("there is a slot, but no word of it is stored")
	case (doc.Phase == "streaming" || doc.Phase == "copying") && len(rows) == 0:
		c.t.Fatalf("the slot is gone in phase %q", doc.Phase)
	}
	if doc.Phase == "streaming" || doc.Phase == "copying" {
		var confirmed iceberg.LSN
		if _, err := fmt.Sscan(rows[0][0], (*uint64)(&confirmed)); err != nil {
			c.t.Fatal(err)
		}
		if confirmed > durable {
			c.t.Fatalf("%s was acknowledged, but only %s is durable", confirmed, durable)
		}
	}
	c.durable, c.streaming = durable, doc.Phase == "streaming"
	for _, t := range doc.Tables {
		if t.State != "streaming" && t.Resync == "" {
			c.t.Fatalf("table %s is stored as %s: %s", t.Name.Name, t.State, t.Failure)
		}
	}
}

// stored reads the catalog as the disk has it.
func (c *chain) stored() (doc document, durable iceberg.LSN) {
	c.t.Helper()
	path := filepath.Join(c.dir, "catalog.db")
	if _, err := os.Stat(path); errors.Is(err, fs.ErrNotExist) {
		return document{}, 0
	}
	db, err := sql.Open("sqlite", "file:"+path+"?mode=ro")
	c.check(err)
	defer db.Close()
	var text []byte
	err = db.QueryRow("SELECT lsn, mirror FROM pgmirror_state").Scan((*uint64)(&durable), &text)
	if errors.Is(err, sql.ErrNoRows) {
		return document{}, 0
	}
	c.check(err)
	if text != nil {
		c.check(json.Unmarshal(text, &doc))
	}
	return doc, durable
}

// catchUp is a life that nothing kills: it must come to PostgreSQL's content, which catchUp returns.
func (c *chain) catchUp() contents {
	c.t.Helper()
	l := c.begin(FailAt(0))
	for deadline := time.Now().Add(patience); !l.streaming(); {
		l.wait(deadline)
		l.over()
	}
	for range 3 {
		c.check(c.writer.transaction())
	}
	catalog, err := l.source.Look(context.Background())
	c.check(err)
	want, err := sourceContents(c.admin, catalog)
	c.check(err)
	c.compare(l, want)

	report, err := l.mirror.Verify(context.Background(), mirror.VerifyRequest{}, func(string) {})
	c.check(err)
	if !report.Equal {
		c.t.Errorf("verify: %+v", report.Tables)
	}
	l.shutDown()
	c.inspect()
	return want
}

// compare reads everything that was committed on the source, once what is to be copied again has been, as has a table that changed during the first copy
// and joins after it.
func (c *chain) compare(l *life, want contents) {
	c.t.Helper()
	var state *readstate.State
	for deadline := time.Now().Add(patience); ; l.wait(deadline) {
		var err error
		if state, err = l.mirror.Pin(context.Background(), readstate.PinRequest{WaitSource: true, Timeout: patience}); err != nil {
			l.fatal("read what was committed", err)
		}
		if !slices.ContainsFunc(state.Tables, func(t *readstate.Table) bool { return strings.Contains(t.Err, "is being copied") }) {
			break
		}
		state.Release()
	}
	defer state.Release()
	got, err := stateContents(state)
	c.check(err)
	if d := want.diff(got); d != "" {
		c.t.Fatalf("the mirror at %s differs from PostgreSQL:\n%s", state.LSN, d)
	}
	if err := l.mirror.Check(context.Background()); err != nil {
		c.t.Fatalf("check: %v", err)
	}
}

// restart opens what catchUp left: the same content, from files alone.
func (c *chain) restart(want contents) {
	c.t.Helper()
	l := c.begin(FailAt(0))
	for deadline := time.Now().Add(patience); !l.streaming(); {
		l.wait(deadline)
		l.over()
	}
	c.compare(l, want)
	l.shutDown()
	c.inspect()
	got, err := warehouseContents(c.dir)
	c.check(err)
	if d := want.diff(got); d != "" {
		c.t.Fatalf("the current Iceberg snapshots differ from PostgreSQL:\n%s", d)
	}
	c.tidy()
}

// tidy looks for files too many. A life that stops may leave some, which the next start removes, and list others in the catalog that the next one
// deletes once it streams. It may replace some itself, but as nothing changes any more, it does so only a few times.
func (c *chain) tidy() {
	c.t.Helper()
	for lives := 1; ; lives++ {
		l := c.begin(FailAtNamed(recovered, 1))
		for deadline := time.Now().Add(patience); !l.over(); {
			l.wait(deadline)
		}
		l.close()
		err := checkFiles(c.dir)
		if err == nil {
			return
		}
		if lives == 3 {
			c.t.Fatalf("files after a restart: %v", err)
		}
		c.t.Logf("files after restart %d: %v", lives, err)
		l = c.begin(FailAt(0))
		for deadline := time.Now().Add(patience); !l.streaming(); {
			l.wait(deadline)
			l.over()
		}
		c.expire(l)
		l.shutDown()
	}
}
