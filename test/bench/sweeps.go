package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"pgmirror/mirror"
	"pgmirror/test/harness"
)

const (
	sweepScale = 0.1 // of HyBench
	sweepRows  = 1_000_000
)

// setting is one of those that a sweep tries.
type setting struct {
	name   string
	config mirror.Config
}

// sweeps measures what a batch's rows, the folding interval and a tile's rows change.
func (b *bench) sweeps(ctx context.Context) (err error) {
	pg, err := b.startServer("sweeps")
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, stopServer(pg)) }()
	if _, err := hybench.publish(pg, b.scale*sweepScale); err != nil {
		return err
	}
	batches := []setting{{"batches of 8192 rows", mirror.Config{}}}
	for _, rows := range []int{64, 256, 1024, 4096, 16384} {
		batches = append(batches, setting{fmt.Sprintf("batches of %d rows", rows), mirror.Config{BatchRows: rows}})
	}
	if err := b.sweepReplay(ctx, pg, batches, "Retina's replay (figure 13) does not gain above 4,096 rows", func(s setting, ratio float64) goals {
		if s.config.BatchRows != 4096 {
			return nil
		}
		return goals{atLeast(ratio, 0.95, "%g")}
	}); err != nil {
		return err
	}
	folds := []setting{{"folding every minute", mirror.Config{}}}
	for _, interval := range []time.Duration{10 * time.Millisecond, 100 * time.Millisecond, time.Second} {
		folds = append(folds, setting{fmt.Sprintf("folding every %s", interval), mirror.Config{FoldInterval: interval}})
	}
	if err := b.sweepReplay(ctx, pg, folds, "at full speed 100 ms bring about as many changes as 10 s at 10k rows/s; Retina's query latency (figure 14) is the same from 10 s to 240 s",
		func(_ setting, ratio float64) goals { return goals{atLeast(ratio, 0.95, "%g")} }); err != nil {
		return err
	}
	return b.sweepTiles(ctx)
}

// sweepReplay plays one captured stream a round to a mirror of each setting, to and fro. The first setting is the default, which the others
// stand beside.
func (b *bench) sweepReplay(ctx context.Context, pg *harness.Postgres, settings []setting, note string, bound func(s setting, ratio float64) goals) error {
	speed, cpu, bits := make([][]float64, len(settings)), make([][]float64, len(settings)), make([][]float64, len(settings))
	play := func(i int, p *player, tape *capture) error {
		took, err := p.playAll(ctx, tape)
		if err != nil {
			return err
		}
		st, err := p.status(ctx)
		if err != nil {
			return err
		}
		speed[i] = append(speed[i], float64(tape.rows)/took.visible.Seconds())
		cpu[i] = append(cpu[i], took.cpu/float64(tape.rows)*1e6)
		bits[i] = append(bits[i], visibilityBits(&st))
		return p.verify(ctx)
	}
	for round := range b.rounds {
		if err := b.sweepRound(ctx, pg, settings, round%2 == 1, play); err != nil {
			return err
		}
	}
	about := func(i int) string {
		return fmt.Sprintf("%.2f s CPU for 1M row changes, visibility %.3f bits/row", median(cpu[i]), median(bits[i]))
	}
	for i, s := range settings {
		b.say("%s: %s; %s", s.name, spread(speed[i], rate), about(i))
		if i > 0 {
			r := ratios(speed[i], speed[0])
			b.report.add(line{"replay with " + s.name, spread(speed[i], rate), fmt.Sprintf("%s, the default: %s", settings[0].name, spread(speed[0], rate)), spread(r, times), bound(s, median(r)),
				fmt.Sprintf("HyBench, captured, %s row changes, to visible; %s; by default %s; %s", amount(b.scaled(sweepRows)), about(i), about(0), note)})
		}
	}
	return nil
}

// sweepRound starts a mirror of each setting, captures a stream that begins there, and hands both to play.
func (b *bench) sweepRound(ctx context.Context, pg *harness.Postgres, settings []setting, backward bool, play func(i int, p *player, tape *capture) error) (err error) {
	players := make([]*player, len(settings))
	defer func() {
		for _, p := range players {
			if p != nil {
				err = errors.Join(err, p.stop(), dropSlot(context.WithoutCancel(ctx), pg, p.slot))
			}
		}
	}()
	order := make([]int, len(settings))
	for i, s := range settings {
		s.config.CheckpointInterval = replayCheckpoints
		if players[i], err = b.startPlayer(ctx, pg, fmt.Sprintf("sweep_%d", i), s.config); err != nil {
			return err
		}
		order[i] = i
	}
	tape, err := b.record(ctx, pg, players[0].slot, func() (int, error) { return writeBacklog(ctx, pg, b.scaled(sweepRows)) })
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, tape.close()) }()
	if backward {
		slices.Reverse(order)
	}
	for _, i := range order {
		if err := play(i, players[i], tape); err != nil {
			return fmt.Errorf("%s: %w", settings[i].name, err)
		}
		if err := players[i].stop(); err != nil {
			return err
		}
	}
	return nil
}

// tileSizes are in rows; the last is the default, and the most that an entry's 12 bits of offset can tell apart.
var tileSizes = []int{256, 512, 1024, 2048, 4096}

// sweepTiles runs visibility's benchmarks with tiles of other sizes, to and fro.
func (b *bench) sweepTiles(ctx context.Context) error {
	programs := make([]string, len(tileSizes))
	for i, rows := range tileSizes {
		var err error
		if programs[i], err = b.buildTiles(ctx, rows); err != nil {
			return err
		}
	}
	deletes, reads, bits := make([][]float64, len(tileSizes)), make([][]float64, len(tileSizes)), make([]float64, len(tileSizes))
	for round := range b.rounds {
		for i := range tileSizes {
			if round%2 == 1 {
				i = len(tileSizes) - 1 - i
			}
			found, err := benchOf(exec.CommandContext(ctx, programs[i], "-test.run", "^$", "-test.bench", "^(BenchmarkDelete|BenchmarkAtFile)$"))
			if err != nil {
				return err
			}
			speed, read, size := found.value("Delete", "Mdeletes/s"), found.value("AtFile/anew", "ns/op"), found.value("AtFile/anew", "bits/row")
			if err := errors.Join(speed.err, read.err, size.err); err != nil {
				return err
			}
			deletes[i], reads[i], bits[i] = append(deletes[i], speed.v*1e6), append(reads[i], read.v/1e6), size.v
		}
	}
	usual := len(tileSizes) - 1
	show := func(i int) string {
		return fmt.Sprintf("deletes %s, %.3f bits/row", spread(deletes[i], perMillion), bits[i])
	}
	for i, rows := range tileSizes[:usual] {
		b.say("tiles of %d rows: %s, reads %s", rows, show(i), spread(reads[i], millis))
		b.report.add(line{fmt.Sprintf("visibility with tiles of %d rows", rows), show(i), fmt.Sprintf("of %d, the default: %s", tileSizes[usual], show(usual)), spread(ratios(deletes[i], deletes[usual]), times), nil,
			fmt.Sprintf("1 writer; a file of 10M rows, 1 %% deleted, folded, read anew in %s, by default in %s; built with another constant, and above 4,096 an entry has no bits for the offset; Retina (figure 15): changes and queries do not depend on it, small tiles take memory",
				spread(reads[i], millis), spread(reads[usual], millis))})
	}
	return nil
}

var tileRowsConstant = regexp.MustCompile(`(?m)^\ttileRows +=( \d+)`)

// buildTiles builds the package's tests with tiles of so many rows: the constant is changed in a copy, which the compiler gets by -overlay.
func (b *bench) buildTiles(ctx context.Context, rows int) (program string, err error) {
	dir, err := exec.CommandContext(ctx, "go", "list", "-f", "{{.Dir}}", "pgmirror/deletion").Output()
	if err != nil {
		return "", fmt.Errorf("find the package deletion: %w", err)
	}
	path := filepath.Join(strings.TrimSpace(string(dir)), "tile.go")
	text, err := os.ReadFile(path)
	if err != nil {
		return "", err
	}
	at := tileRowsConstant.FindSubmatchIndex(text)
	if at == nil {
		return "", fmt.Errorf("%s does not say how many rows a tile has", path)
	}
	text = slices.Concat(text[:at[2]], fmt.Appendf(nil, " %d", rows), text[at[3]:])
	other := filepath.Join(b.dir, fmt.Sprintf("tile%d.go", rows))
	if err := os.WriteFile(other, text, 0o644); err != nil {
		return "", err
	}
	overlay, err := json.Marshal(map[string]map[string]string{"Replace": {path: other}})
	if err != nil {
		return "", err
	}
	plan := filepath.Join(b.dir, fmt.Sprintf("tile%d.json", rows))
	if err := os.WriteFile(plan, overlay, 0o644); err != nil {
		return "", err
	}
	return b.testProgram(ctx, "deletion", fmt.Sprintf("tile%d.test", rows), "-overlay", plan)
}
