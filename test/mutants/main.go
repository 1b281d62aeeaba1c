// Command mutants shows that the engine's tests bite: it breaks the engine in one named way after the other and runs the tests
// that must notice.
//
//	go run ./test/mutants              all of them
//	go run ./test/mutants -only fold   those whose name matches the expression "fold"
//
// A mutant is an exact replacement of text in package mirror; text that is not there exactly once is an error, so that a
// mutant never silently stops being one. Nothing is written to the tree: the broken functions reach the compiler by -overlay, those of all
// mutants beside the sound ones in one test binary (schemata). The tests must pass with none of them. Each mutant has 60 seconds to be noticed
// (-patience: more on a busy machine). The table names what noticed it, for the model test with the seed that runs it again:
//
//	go test ./mirror -run TestModel -model.seed N
//
// It exits 1 when one survives, 3 when it cannot tell. It takes some minutes and is no part of the ordinary tests.
package main

import (
	"context"
	"errors"
	"flag"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"
)

func main() {
	only := flag.String("only", "", "run the mutants whose name matches this regular expression")
	patience := flag.Duration("patience", 60*time.Second, "how long a mutant may go unnoticed")
	flag.Parse()
	survivors, err := run(context.Background(), *only, *patience)
	if err != nil {
		fmt.Fprintln(os.Stderr, "mutants:", err)
		os.Exit(3)
	}
	if survivors > 0 {
		os.Exit(1)
	}
}

func run(ctx context.Context, only string, patience time.Duration) (survivors int, err error) {
	wanted, err := regexp.Compile(only)
	if err != nil {
		return 0, err
	}
	root, err := moduleRoot()
	if err != nil {
		return 0, err
	}
	work, err := os.MkdirTemp("", "mutants-")
	if err != nil {
		return 0, err
	}
	defer os.RemoveAll(work)
	all, chosen := newSchemata(), newSchemata()
	for i, m := range mutants {
		if err := all.add(root, i+1, m); err != nil {
			return 0, fmt.Errorf("%s: %w", m.name, err)
		}
		if wanted.MatchString(m.name) {
			if err := chosen.add(root, i+1, m); err != nil {
				return 0, fmt.Errorf("%s: %w", m.name, err)
			}
		}
	}
	plan, err := chosen.write(root, work)
	if err != nil {
		return 0, err
	}
	r := runner{dir: filepath.Join(root, "mirror"), binary: filepath.Join(work, "mirror.test"), patience: patience}
	build := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", plan, "-o", r.binary, "./mirror")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return 0, fmt.Errorf("build: %w\n%s", err, out)
	}
	tests := map[string]bool{}
	for i, m := range mutants {
		if !wanted.MatchString(m.name) {
			continue
		}
		began := time.Now()
		verdict, err := r.try(ctx, i+1, m.expression())
		if err != nil {
			return survivors, fmt.Errorf("%s: %w", m.name, err)
		}
		if verdict == "" {
			survivors++
			verdict = "SURVIVED"
		}
		tests[m.expression()] = true
		fmt.Printf("%-52s %-60s %5.1fs\n", m.name, verdict, time.Since(began).Seconds())
	}
	sound := strings.Join(slices.Sorted(maps.Keys(tests)), "|")
	if verdict, err := r.try(ctx, 0, sound); err != nil || verdict != "" {
		return survivors, fmt.Errorf("with nothing broken: %s: %w", verdict, err)
	}
	return survivors, nil
}

func moduleRoot() (string, error) {
	out, err := exec.Command("go", "env", "GOMOD").Output()
	if err != nil {
		return "", fmt.Errorf("find the module: %w", err)
	}
	return filepath.Dir(strings.TrimSpace(string(out))), nil
}

// expression says which tests must notice the mutant.
func (m mutant) expression() string {
	if m.tests == "" {
		return "^TestModel$"
	}
	return m.tests
}

// runner runs tests of the built mutants.
type runner struct {
	dir, binary string
	patience    time.Duration
}

// try runs the tests of a mutant, or with 0 of the sound engine; it returns what noticed something, or nothing.
func (r runner) try(ctx context.Context, mutant int, tests string) (verdict string, err error) {
	limited, cancel := context.WithTimeout(ctx, r.patience)
	defer cancel()
	if mutant == 0 {
		limited = ctx
	}
	test := exec.CommandContext(limited, r.binary, "-test.run", tests, "-test.failfast")
	test.Dir, test.Env = r.dir, append(os.Environ(), fmt.Sprintf("%s=%d", selector, mutant))
	out, err := test.CombinedOutput()
	var exit *exec.ExitError
	switch {
	case err == nil || limited.Err() != nil:
		return "", nil // went unnoticed, or did not end: that is no verdict either
	case errors.As(err, &exit):
		return noticed(string(out)), nil
	}
	return "", err
}

var (
	failedTest = regexp.MustCompile(`(?m)^ *--- FAIL: (\S+)`)
	panicked   = regexp.MustCompile(`(?m)^panic: (.*)$`)
	reason     = regexp.MustCompile(`(?m)^ +\w+_test\.go:\d+: (.*)$`)
)

// noticed says which test failed, and how it began to say so.
func noticed(out string) string {
	name := "killed"
	if found := failedTest.FindAllStringSubmatch(out, -1); found != nil {
		name = "killed by " + found[len(found)-1][1]
	}
	said := reason.FindStringSubmatch(out)
	if p := panicked.FindStringSubmatch(out); said == nil {
		said = p
	}
	if said == nil {
		return name
	}
	return name + ": " + clip(said[1], 70)
}

func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	return s[:n] + "…"
}
