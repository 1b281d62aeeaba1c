package main

import (
	"context"
	"fmt"
	"os/exec"
	"strconv"
	"strings"
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
