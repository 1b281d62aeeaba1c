package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"log"
	"math/rand/v2"
	"net"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"time"

	"golang.org/x/sync/errgroup"

	"pgmirror/test/harness"
)

// soakCommand makes this program the long soak: bench soak [flags].
//
//	both mixes, at a rate ─▶ PostgreSQL ─▶ pgmirror run ◀── clients: short read states, each with its rows counted
//	oldest rows deleted ──▶                     ▲  ▲ └───── three pins, from the beginning to the end
//	                                 samples ───┘  └─────── DuckDB, asked again and again
//
// What the mixes add to the tables is deleted at their other end, so that whatever grows all the same is the mirror's. TPC-C's history, which has no key,
// is truncated now and then.
//
// At the end the mirror compares itself with the source, a foreign Iceberg reader does, and each pin must still show the rows that
// it showed at first. The second half of the samples is held against the first, whose beginning (the first tenth of the run, ten minutes at
// most) is left out: there caches fill and the first snapshots have not expired.
const soakCommand = "soak"

// judgedFrom is the length from which on the halves of a run are held against each other; below it their difference is noise.
const judgedFrom = time.Hour

// hangLimit is what no request takes: one that does is a hang.
const hangLimit = time.Minute

// The schema of each mix, and the tables of it that have the same rows all the time: nothing but updates comes to them.
var soakMixes = []struct {
	workload
	schema string
	still  []string
}{
	{hybench, "hybench", []string{"customer", "company", "savingaccount", "checkingaccount"}},
	{chbench, "ch", []string{"warehouse", "district", "customer", "item", "stock"}},
}

// soakSettings are what differs from pgmirror's defaults, besides the checkpoint interval: everything that happens by time happens often.
var soakSettings = []string{"--snapshots", "keep=60,age=10m,grace=10s", "--read-state-limit", "1m", "--log-level", "warn"}

type soak struct {
	*bench
	length  time.Duration
	every   time.Duration // between two samples
	rate    int           // row changes a second, of both mixes together; what is deleted comes on top
	seed    uint64
	readers int           // clients
	states  int           // read states that they pin in the whole
	cuts    time.Duration // checkpoint_interval
	kills   time.Duration // between two kills, on average; 0: none
	samples string        // CSV file of the samples; empty: none

	pg      *harness.Postgres
	port    int // of the mirror's HTTP
	mirror  atomic.Pointer[mirrorProcess]
	still   map[string]int64 // rows, by schema.table
	started time.Time        // of the writing
	taken   []sample         // the sampler's, until it has ended
	pinned  atomic.Int64     // read states that were pinned
	killed  atomic.Int64

	mu     sync.Mutex
	delays map[string][]delay // by what was asked
}

// delay is how long something took.
type delay struct {
	at     time.Duration // since the writing began
	millis float64
}

func newSoak() *soak {
	return &soak{bench: &bench{}, cuts: time.Second, delays: map[string][]delay{}, still: map[string]int64{}}
}

func soakMain(args []string) {
	s := newSoak()
	var out, commit string
	flags := flag.NewFlagSet(soakCommand, flag.ExitOnError)
	flags.StringVar(&s.bin, "pgmirror", "bin/pgmirror", "the `program` to watch")
	flags.DurationVar(&s.length, "duration", 2*time.Hour, "`time` to write")
	flags.IntVar(&s.rate, "rate", 1000, "`row changes` a second, of both mixes together")
	flags.Uint64Var(&s.seed, "seed", 1, "`number` from which everything random follows")
	flags.Float64Var(&s.scale, "scale", 0.02, "`factor` on the numbers of rows; as small as it is, every table is written anew many times")
	flags.IntVar(&s.readers, "clients", 64, "`number` of clients that pin read states")
	flags.IntVar(&s.states, "states", 0, "read `states` in the whole; 0: 100,000 in two hours")
	flags.DurationVar(&s.every, "every", 10*time.Second, "`time` between two samples")
	flags.DurationVar(&s.cuts, "checkpoint-interval", time.Second, "the mirror's `setting`")
	flags.DurationVar(&s.kills, "kill-every", 0, "kill the mirror with SIGKILL and start it again, at random, this `time` apart on average; no pins are held then")
	flags.StringVar(&s.samples, "samples", "", "CSV `file` for the samples")
	flags.StringVar(&out, "out", "", "Markdown `file` whose part to write, soak.svg beside it; empty prints it")
	flags.StringVar(&commit, "commit", "unknown", "`revision` of what is watched")
	flags.StringVar(&s.report.note, "note", "", "`sentence` about the circumstances, for the document")
	flags.Parse(args)
	if s.states == 0 {
		s.states = max(s.readers, int(100_000*s.length/(2*time.Hour)))
	}
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	err := s.run(ctx, out, commit)
	stop()
	if err != nil {
		log.Fatalf("soak: %v", err)
	}
}

func (s *soak) run(ctx context.Context, out, commit string) (err error) {
	if err := s.begin(ctx, commit); err != nil {
		return err
	}
	defer os.RemoveAll(s.dir)
	defer s.killMirrors()
	if err := s.prepare(); err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopServer(s.pg)) }()
	if err := s.start(ctx); err != nil {
		return err
	}
	if err := s.live(ctx); err != nil {
		return errors.Join(err, s.mirror.Load().showLog())
	}
	if err := s.settle(ctx); err != nil {
		return err
	}
	if err := s.end(ctx); err != nil {
		return err
	}
	s.report.loadAfter, s.report.took = loadAverage(), time.Since(s.began)
	return s.publish(out)
}

// prepare starts the source with both mixes' tables. Autovacuum runs, as it does in hours of ordinary life.
func (s *soak) prepare() (err error) {
	s.pg, err = s.startServer("soak", harness.Setting("autovacuum", "on"), harness.Setting("max_wal_size", "1GB"), harness.Setting("checkpoint_timeout", "5min"),
		harness.Setting("shared_buffers", "256MB"))
	if err != nil {
		return err
	}
	for _, m := range soakMixes {
		err := s.pg.Exec("CREATE SCHEMA "+m.schema, "GRANT USAGE ON SCHEMA "+m.schema+" TO "+mirrorRole,
			"ALTER DEFAULT PRIVILEGES IN SCHEMA "+m.schema+" GRANT SELECT ON TABLES TO "+mirrorRole)
		if err != nil {
			return err
		}
		rows, err := m.load(s.pg, m.schema, s.scale)
		if err != nil {
			return err
		}
		for _, table := range m.still {
			var n int64
			if _, err := fmt.Sscan(s.pg.QueryRow("SELECT count(*) FROM "+m.schema+"."+table), &n); err != nil {
				return fmt.Errorf("count %s.%s: %w", m.schema, table, err)
			}
			s.still[m.schema+"."+table] = n
		}
		s.say("%s: %d rows", m.name, rows)
	}
	return publishAll(s.pg)
}

// settings are the mirror's.
func (s *soak) settings() []string {
	return append([]string{"--checkpoint-interval", s.cuts.String()}, soakSettings...)
}

// start starts the mirror, anew or on what it has left, and waits until it follows.
func (s *soak) start(ctx context.Context) error {
	if s.port == 0 {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return err
		}
		s.port = l.Addr().(*net.TCPAddr).Port
		l.Close()
	}
	p, err := s.startMirror(s.pg, "soak", append(s.settings(), "--listen", fmt.Sprintf("127.0.0.1:%d", s.port))...)
	if err != nil {
		return err
	}
	s.mirror.Store(p)
	if err := p.ready(ctx); err != nil {
		return err
	}
	s.say("streaming, %.1f s after the start", time.Since(p.began).Seconds())
	return nil
}

// live runs everything at once until the time is over, or until something goes wrong.
func (s *soak) live(ctx context.Context) error {
	s.started = time.Now()
	ctx, stop := context.WithTimeout(ctx, s.length)
	defer stop()
	group, ctx := errgroup.WithContext(ctx)
	for i, m := range soakMixes {
		load := startPaced(ctx, s.pg.URL("postgres", "postgres"), s.rate/len(soakMixes), func(c int) string {
			return fmt.Sprintf("%s; SELECT setseed(%f)", searchPath(m.schema), s.random(i*writers+c).Float64())
		})
		group.Go(load.group.Wait)
		group.Go(func() error { return s.prune(ctx, m.schema) })
	}
	for i := range s.readers {
		group.Go(func() error { return s.readStates(ctx, s.random(100+i)) })
	}
	group.Go(func() error { return s.ask(ctx) })
	group.Go(func() error { return s.sampleAll(ctx) })
	if s.kills > 0 {
		group.Go(func() error { return s.kill(ctx, s.random(50)) })
	} else {
		group.Go(func() error { return s.watch(ctx) })
		for i := range heldPins {
			group.Go(func() error { return s.hold(ctx, i) })
		}
	}
	if err := group.Wait(); err != nil {
		return err
	}
	if err := ctx.Err(); !errors.Is(err, context.DeadlineExceeded) {
		return err
	}
	return nil
}

// random is the source of one goroutine's random numbers.
func (s *soak) random(n int) *rand.Rand { return rand.New(rand.NewPCG(s.seed, uint64(n))) }

// pause waits, and says whether there is more to do.
func pause(ctx context.Context, d time.Duration) bool {
	select {
	case <-ctx.Done():
		return false
	case <-time.After(d):
		return true
	}
}

// prune deletes what the tables have got too much, every second.
func (s *soak) prune(ctx context.Context, schema string) error {
	session, err := s.pg.Connect("postgres", "postgres")
	if err != nil {
		return err
	}
	defer session.Close()
	if err := session.Exec(searchPath(schema)); err != nil {
		return err
	}
	for pause(ctx, time.Second) {
		if err := session.Exec("SELECT prune()"); err != nil && !deadlocked(err) {
			return err
		}
	}
	return nil
}

// watch ends everything when the mirror ends.
func (s *soak) watch(ctx context.Context) error {
	p := s.mirror.Load()
	select {
	case <-ctx.Done():
		return nil
	case <-p.ended:
		return fmt.Errorf("pgmirror ended: %w", p.err)
	}
}

// kill ends the mirror without warning, at random, and starts it again.
func (s *soak) kill(ctx context.Context, random *rand.Rand) error {
	for pause(ctx, time.Duration(random.ExpFloat64()*float64(s.kills))) {
		p := s.mirror.Load()
		p.cmd.Process.Kill()
		<-p.ended
		s.killed.Add(1)
		restart, cancel := context.WithTimeout(context.WithoutCancel(ctx), 5*time.Minute)
		err := s.start(restart)
		cancel()
		if err != nil {
			return err
		}
	}
	return nil
}

// settle waits until everything written is durable and no client has a read state, and lets both sides be compared.
func (s *soak) settle(ctx context.Context) error {
	m := s.mirror.Load()
	s.say("%d read states pinned; pgmirror verify", s.pinned.Load())
	if err := s.verify(ctx, m); err != nil {
		return err
	}
	if out, err := exec.CommandContext(ctx, s.bin, "checkpoint", "--data", m.data).CombinedOutput(); err != nil {
		return fmt.Errorf("pgmirror checkpoint: %w\n%s", err, out)
	}
	return s.compareIceberg(ctx)
}

// end stops the mirror and looks at what it leaves.
func (s *soak) end(ctx context.Context) error {
	m := s.mirror.Load()
	st, err := m.status(ctx)
	if err != nil {
		return err
	}
	if st.Readers != 0 {
		return fmt.Errorf("%d read states are open, and nobody has any", st.Readers)
	}
	if _, err := m.stop(); err != nil {
		return err
	}
	settled, err := os.ReadDir(filepath.Join(m.data, "reads"))
	if err != nil && !errors.Is(err, os.ErrNotExist) {
		return err
	}
	if len(settled) > 0 {
		return fmt.Errorf("%d files of settled read states are left", len(settled))
	}
	if text, err := os.ReadFile(m.log); err != nil {
		return err
	} else if s.kills == 0 && len(text) > 0 {
		s.say("its log, warnings and errors only:\n%s", strings.TrimRight(string(text[max(0, len(text)-4000):]), "\n"))
	}
	return nil
}

// note remembers how long something took.
func (s *soak) note(what string, sent time.Time) {
	d := delay{sent.Sub(s.started), inMillis(time.Since(sent))}
	s.mu.Lock()
	s.delays[what] = append(s.delays[what], d)
	s.mu.Unlock()
}
