// Command shrink makes the script of a failed random run smaller. A random test of test/e2e that fails leaves one and names it:
//
//	go run ./test/shrink /tmp/pgmirror-run-1234.json
//
// It plays the script, each time with other acts left out, for as long as the rest still fails, and writes what is left beside the script. Laid into
// test/e2e/testdata/replays that is a test from then on. A script has what several connections did in one order, and its pauses: a run that only fails now
// and then is played several times (-tries).
package main

import (
	"bytes"
	"encoding/json"
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"time"
)

func main() {
	tries := flag.Int("tries", 2, "how often a script is played before it counts as one that does not fail")
	limit := flag.Duration("limit", 30*time.Minute, "when to stop with what has been reached")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "shrink: name the script")
		os.Exit(2)
	}
	if err := run(flag.Arg(0), *tries, time.Now().Add(*limit)); err != nil {
		fmt.Fprintln(os.Stderr, "shrink:", err)
		os.Exit(1)
	}
}

func run(name string, tries int, deadline time.Time) error {
	text, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	var script map[string]json.RawMessage
	var acts []json.RawMessage
	if err := json.Unmarshal(text, &script); err != nil {
		return fmt.Errorf("%s: %w", name, err)
	}
	if err := json.Unmarshal(script["acts"], &acts); err != nil {
		return fmt.Errorf("%s: acts: %w", name, err)
	}
	work, err := os.MkdirTemp("", "shrink-")
	if err != nil {
		return err
	}
	defer os.RemoveAll(work)
	p := &player{script: script, binary: filepath.Join(work, "e2e.test"), file: filepath.Join(work, "replay.json"), tries: tries}
	if out, err := exec.Command("go", "test", "-c", "-o", p.binary, "./test/e2e").CombinedOutput(); err != nil {
		return fmt.Errorf("build the test: %w\n%s", err, out)
	}
	if !p.fails(acts) {
		return fmt.Errorf("the script does not fail, played %d times; what is left out of it must not matter: it has no two statements at the same time", tries)
	}
	small := shrink(acts, func(some []json.RawMessage) bool { return time.Now().Before(deadline) && p.fails(some) })
	out := strings.TrimSuffix(name, ".json") + "-small.json"
	if text, err = p.with(small); err == nil {
		err = os.WriteFile(out, text, 0o644)
	}
	if err != nil {
		return err
	}
	fmt.Printf("%d of %d acts are left, in %s after %d plays:\n", len(small), len(acts), out, p.plays)
	for _, a := range small {
		fmt.Println(" ", string(a))
	}
	fmt.Print(p.why)
	return nil
}

// playing is what a replay says when its acts begin: one that fails before does so for another reason.
const playing = "the acts begin"

// player plays scripts.
type player struct {
	script       map[string]json.RawMessage
	binary, file string
	tries, plays int
	why          string // of the last one that failed
}

// with is the script with other acts.
func (p *player) with(acts []json.RawMessage) ([]byte, error) {
	text, err := json.Marshal(acts)
	if err != nil {
		return nil, err
	}
	p.script["acts"] = text
	return json.MarshalIndent(p.script, "", "\t")
}

// fails says whether the script fails with some of its acts.
func (p *player) fails(acts []json.RawMessage) bool {
	text, err := p.with(acts)
	if err == nil {
		err = os.WriteFile(p.file, text, 0o600)
	}
	if err != nil {
		return false
	}
	for range p.tries {
		p.plays++
		cmd := exec.Command(p.binary, "-test.run", "^TestReplays$", "-replay.file", p.file)
		cmd.Dir = filepath.Join("test", "e2e")
		if out, err := cmd.CombinedOutput(); err != nil && bytes.Contains(out, []byte(playing)) {
			p.why = string(bytes.TrimSpace(out)) + "\n"
			fmt.Fprintf(os.Stderr, "%d acts fail\n", len(acts))
			return true
		}
	}
	fmt.Fprintf(os.Stderr, "%d acts pass\n", len(acts))
	return false
}

// shrink leaves out of a list that fails what need not be there: large parts first, then smaller ones, until nothing single can be left out (delta
// debugging, Zeller and Hildebrandt, "Simplifying and Isolating Failure-Inducing Input", 2002, of which it takes the complements).
func shrink[T any](list []T, fails func([]T) bool) []T {
	for size := max(1, len(list)/2); ; {
		before := len(list)
		for from := len(list) - 1; from >= 0; from -= size { // from the end: what comes after the fault goes at once
			first := max(0, from-size+1)
			rest := append(append([]T(nil), list[:first]...), list[min(from+1, len(list)):]...)
			if len(rest) < len(list) && len(rest) > 0 && fails(rest) {
				list = rest
			}
		}
		if size > 1 {
			size = size / 2
		} else if len(list) == before {
			return list
		}
	}
}
