package main

import (
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"time"
)

// measured are the results of Go benchmarks, by name without Benchmark and the number of processors, then by unit.
type measured map[string]map[string]float64

// figure is one of them.
type figure struct {
	v   float64
	err error
}

func (m measured) value(name, unit string) figure {
	v, ok := m[name][unit]
	if !ok {
		return figure{err: fmt.Errorf("no benchmark %s with %s was run", name, unit)}
	}
	return figure{v: v}
}

// goBench runs benchmarks of one of our packages, in the module's directory.
func goBench(ctx context.Context, pkg, pattern string) (measured, error) {
	return benchOf(exec.CommandContext(ctx, "go", "test", "-run", "^$", "-bench", pattern, "pgmirror/"+pkg))
}

// testProgram builds the tests of one of our packages, for benchmarks that run many times.
func (b *bench) testProgram(ctx context.Context, pkg, name string, flags ...string) (path string, err error) {
	path = filepath.Join(b.dir, name)
	cmd := exec.CommandContext(ctx, "go", slices.Concat([]string{"test", "-c", "-vet=off", "-o", path}, flags, []string{"pgmirror/" + pkg})...)
	if out, err := cmd.CombinedOutput(); err != nil {
		return "", fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	return path, nil
}

// runBenchmark runs one benchmark of such a program, of a name as measured has it, for about a time.
func runBenchmark(ctx context.Context, program, name string, length time.Duration) (measured, error) {
	return benchOf(exec.CommandContext(ctx, program, "-test.run", "^$", "-test.bench", exactly(name), "-test.benchtime", length.String()))
}

// exactly is the pattern for one benchmark alone.
func exactly(name string) string {
	return "^Benchmark" + strings.ReplaceAll(regexp.QuoteMeta(name), "/", "$/^") + "$"
}

// benchOf runs a command that runs benchmarks.
func benchOf(cmd *exec.Cmd) (measured, error) {
	out, err := cmd.CombinedOutput()
	if err != nil {
		return nil, fmt.Errorf("%s: %w\n%s", cmd, err, out)
	}
	return parseBench(string(out))
}

// parseBench reads what go test -bench prints, in the form of https://go.dev/design/14313-benchmark-format.
func parseBench(text string) (measured, error) {
	m := measured{}
	for line := range strings.Lines(text) {
		fields := strings.Fields(line)
		if len(fields) < 4 || !strings.HasPrefix(fields[0], "Benchmark") {
			continue
		}
		name := strings.TrimPrefix(fields[0], "Benchmark")
		if at := strings.LastIndexByte(name, '-'); at >= 0 {
			name = name[:at]
		}
		units := map[string]float64{}
		for i := 2; i+1 < len(fields); i += 2 {
			v, err := strconv.ParseFloat(fields[i], 64)
			if err != nil {
				return nil, fmt.Errorf("benchmark %s: %w", name, err)
			}
			units[fields[i+1]] = v
		}
		m[name] = units
	}
	return m, nil
}
