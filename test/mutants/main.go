// Command mutants shows that the engine's tests bite: it breaks the engine in one named way after the other and runs the tests
// that must notice.
//
//	go run ./test/mutants              all of them
//	go run ./test/mutants -only fold   those whose name matches the expression "fold"
//
// A mutant is an exact replacement of text in package mirror; text that is not there exactly once is an error, so that a
// mutant never silently stops being one. Nothing is written to the tree: the broken file reaches the compiler by -overlay. Each
// mutant has 60 seconds to be noticed (-patience: more on a busy machine). The table names what noticed it, for the model test with the seed that runs it again:
//
//	go test ./mirror -run TestModel -model.seed N
//
// It exits 1 when one survives. It takes some minutes and is no part of the ordinary tests.
package main

import (
	"context"
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
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
	for _, m := range mutants {
		if _, err := m.overlay(root, work); err != nil { // before minutes are spent on the others
			return 0, fmt.Errorf("%s: %w", m.name, err)
		}
	}
	for _, m := range mutants {
		if !wanted.MatchString(m.name) {
			continue
		}
		began := time.Now()
		verdict, err := m.try(ctx, root, work, patience)
		if err != nil {
			return survivors, fmt.Errorf("%s: %w", m.name, err)
		}
		if verdict == "" {
			survivors++
			verdict = "SURVIVED"
		}
		fmt.Printf("%-44s %-60s %5.1fs\n", m.name, verdict, time.Since(began).Seconds())
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

// overlay writes the broken files to work, and the file that names them for the compiler.
func (m mutant) overlay(root, work string) (planFile string, err error) {
	overlay := struct{ Replace map[string]string }{map[string]string{}}
	for i, e := range m.edits {
		path := filepath.Join(root, "mirror", e.file)
		from := path
		if broken := overlay.Replace[path]; broken != "" {
			from = broken
		}
		text, err := os.ReadFile(from)
		if err != nil {
			return "", err
		}
		if n := strings.Count(string(text), e.old); n != 1 {
			return "", fmt.Errorf("the text to replace is %d times in %s:\n%s", n, e.file, e.old)
		}
		to := filepath.Join(work, fmt.Sprintf("%d-%s", i, e.file))
		if err := os.WriteFile(to, []byte(strings.Replace(string(text), e.old, e.new, 1)), 0o600); err != nil {
			return "", err
		}
		overlay.Replace[path] = to
	}
	plan, err := json.Marshal(overlay)
	if err != nil {
		return "", err
	}
	planFile = filepath.Join(work, "overlay.json")
	return planFile, os.WriteFile(planFile, plan, 0o600)
}

// try builds the broken engine's tests and runs them; it returns what noticed, or nothing.
func (m mutant) try(ctx context.Context, root, work string, patience time.Duration) (verdict string, err error) {
	planFile, err := m.overlay(root, work)
	if err != nil {
		return "", err
	}
	binary := filepath.Join(work, "mirror.test")
	build := exec.CommandContext(ctx, "go", "test", "-c", "-vet=off", "-ldflags=-s -w", "-overlay", planFile, "-o", binary, "./mirror")
	build.Dir = root
	if out, err := build.CombinedOutput(); err != nil {
		return "", fmt.Errorf("build: %w\n%s", err, out)
	}
	tests := m.tests
	if tests == "" {
		tests = "^TestModel$"
	}
	limited, cancel := context.WithTimeout(ctx, patience)
	defer cancel()
	test := exec.CommandContext(limited, binary, "-test.run", tests, "-test.failfast")
	test.Dir = filepath.Join(root, "mirror")
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
