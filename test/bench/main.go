package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"os/exec"
	"os/signal"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"time"
)

// bench is one run of the program.
type bench struct {
	bin     string // pgmirror
	pgbin   string // PostgreSQL's programs
	dir     string // removed at the end
	scale   float64
	rounds  int
	profile string // where to write a CPU profile of the replay; empty: nowhere
	began   time.Time
	report  report
	mirrors []*mirrorProcess // started by the section that runs
}

// section is a group of lines of the table.
type section struct {
	name string
	run  func(*bench, context.Context) error
}

// part is what is written at once: a table of its own in the document.
type part struct {
	name         string
	introduction string // above the table
	sections     []section
}

var documentParts = []part{
	{"bench", introduction, []section{
		{"live", (*bench).live}, // drain, freshness and restart share one mirror of 10M rows
		{"copy", (*bench).copies},
		{"union", (*bench).unions},
		{"replay", (*bench).replays},
		{"components", (*bench).components},
	}},
	{"paper", paperIntroduction, []section{
		{"dead", (*bench).deadRows},
		{"queries", (*bench).queries},
		{"combine", (*bench).combine},
		{"stale", (*bench).staleStorage},
		{"sweeps", (*bench).sweeps},
	}},
	{"size", sizeIntroduction, []section{{"size", (*bench).size}}},
}

// helpers are what this program does in processes apart from the one that measures.
var helpers = map[string]func(ctx context.Context, args []string) error{probeCommand: probe, ablateCommand: ablate, loadCommand: load}

// runAgain starts this program as one of them and reads its answer.
func runAgain(ctx context.Context, answer any, command ...string) error {
	cmd := exec.CommandContext(ctx, os.Args[0], command...)
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		return fmt.Errorf("%s: %w", command[0], err)
	}
	return json.Unmarshal(out, answer)
}

func main() {
	log.SetFlags(0)
	if len(os.Args) > 1 && os.Args[1] == soakCommand {
		soakMain(os.Args[2:])
		return
	}
	if len(os.Args) > 1 {
		if helper, ok := helpers[os.Args[1]]; ok {
			if err := helper(context.Background(), os.Args[2:]); err != nil {
				log.Fatalf("%s: %v", os.Args[1], err)
			}
			return
		}
	}
	var b bench
	var name, only, out, commit string
	flag.StringVar(&b.bin, "pgmirror", "bin/pgmirror", "the `program` to measure")
	flag.Float64Var(&b.scale, "scale", 1, "`factor` on the numbers of rows")
	flag.IntVar(&b.rounds, "rounds", 3, "`times` that the two sides of a ratio alternate")
	flag.StringVar(&name, "part", documentParts[0].name, "`part` of the document to measure: bench, paper or size")
	flag.StringVar(&only, "only", "", "`sections` to run, separated by commas; of bench live, copy, union, replay, components; of paper dead, queries, combine, stale, sweeps")
	flag.StringVar(&out, "out", "", "Markdown `file` to write; empty prints it")
	flag.StringVar(&b.profile, "cpuprofile", "", "`file` for a CPU profile of the engine in the last replay")
	flag.StringVar(&commit, "commit", "unknown", "`revision` of what is measured")
	flag.StringVar(&b.report.note, "note", "", "`sentence` about the circumstances, for the document")
	flag.Parse()
	ctx, stop := signal.NotifyContext(context.Background(), os.Interrupt, syscall.SIGTERM)
	defer stop()
	if err := b.run(ctx, name, only, out, commit); err != nil {
		stop()
		log.Fatalf("bench: %v", err)
	}
}

func (b *bench) run(ctx context.Context, name, only, out, commit string) (err error) {
	p, err := choose(name, only)
	if err != nil {
		return err
	}
	if err := b.begin(ctx, commit); err != nil {
		return err
	}
	defer os.RemoveAll(b.dir)
	for _, s := range p.sections {
		b.say("%s", s.name)
		failed := s.run(b, ctx)
		b.killMirrors()
		if failed != nil {
			b.say("%s failed: %v", s.name, failed)
			err = errors.Join(err, fmt.Errorf("%s: %w", s.name, failed))
		}
	}
	b.report.loadAfter = loadAverage()
	b.report.took = time.Since(b.began)
	text := b.report.markdown(p.introduction, time.Now())
	if out == "" || err != nil { // what was measured is worth seeing, but not worth publishing
		fmt.Print("\n" + text)
		return err
	}
	return writePart(out, p.name, text)
}

// begin finds the programs, makes a directory, which its caller removes, and notes the circumstances.
func (b *bench) begin(ctx context.Context, commit string) (err error) {
	if b.bin, err = filepath.Abs(b.bin); err != nil {
		return err
	}
	if b.pgbin, err = postgresPrograms(); err != nil {
		return err
	}
	b.began = time.Now()
	if b.dir, err = os.MkdirTemp("", "pgmb"); err != nil { // short: sockets go below it
		return err
	}
	if err := os.Chmod(b.dir, 0o755); err != nil { // the server runs as another user
		return errors.Join(err, os.RemoveAll(b.dir))
	}
	b.report.machine, b.report.commit, b.report.scale, b.report.loadBefore = describeMachine(ctx, b.pgbin), commit, b.scale, loadAverage()
	return nil
}

// choose finds a part, with the sections named, all if none is.
func choose(name, only string) (part, error) {
	i := slices.IndexFunc(documentParts, func(p part) bool { return p.name == name })
	if i < 0 {
		return part{}, fmt.Errorf("there is no part %q", name)
	}
	whole := documentParts[i]
	if only == "" {
		return whole, nil
	}
	wanted := part{name: whole.name, introduction: whole.introduction}
	for name := range strings.SplitSeq(only, ",") {
		i := slices.IndexFunc(whole.sections, func(s section) bool { return s.name == name })
		if i < 0 {
			return part{}, fmt.Errorf("there is no section %q in %s", name, whole.name)
		}
		wanted.sections = append(wanted.sections, whole.sections[i])
	}
	return wanted, nil
}

// say tells what is happening, with the time since the start.
func (b *bench) say(format string, args ...any) {
	fmt.Fprintf(os.Stderr, "%6.1fs  %s\n", time.Since(b.began).Seconds(), fmt.Sprintf(format, args...))
}

// scaled is a number of rows at this run's scale.
func (b *bench) scaled(rows int) int { return scaled(rows, b.scale) }

func scaled(rows int, scale float64) int { return max(1, int(float64(rows)*scale)) }
