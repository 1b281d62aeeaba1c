package interop

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"sync"
)

// process is a reader in another language. It answers a line of JSON (answer) for each line (request), in order. Its calls
// may come from several goroutines.
type process struct {
	name string
	cmd  *exec.Cmd
	in   io.WriteCloser
	log  bytes.Buffer // what it wrote to standard error; read after Wait only

	mu  sync.Mutex
	out *json.Decoder
}

type request struct {
	Reader      string `json:"reader"`
	CatalogDB   string `json:"catalog"`
	CatalogName string `json:"catalog_name"`
	Warehouse   string `json:"warehouse"`
	Namespace   string `json:"namespace"`
	Name        string `json:"name"`
	Metadata    string `json:"metadata"`
	Snapshot    int64  `json:"snapshot"`
	Above       *int64 `json:"above,omitempty"`
	Match       *Match `json:"match,omitempty"`

	// Digests, if not empty, asks for the digest of each of these snapshots instead of rows; Row is DuckDB's expression for a row.
	Digests []int64 `json:"digests,omitempty"`
	Row     string  `json:"row,omitempty"`
}

type answer struct {
	Error   string   `json:"error"`
	Columns []string `json:"columns"`
	Rows    []Row    `json:"rows"`
	Files   int      `json:"files"`
	Digests []string `json:"digests"`
}

func startProcess(name string, command ...string) (*process, error) {
	p := &process{name: name, cmd: exec.Command(command[0], command[1:]...)}
	p.cmd.Stderr = &p.log
	in, err := p.cmd.StdinPipe()
	if err != nil {
		return nil, err
	}
	out, err := p.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	p.in, p.out = in, json.NewDecoder(out)
	if err := p.cmd.Start(); err != nil {
		return nil, fmt.Errorf("start %s: %w", name, err)
	}
	return p, nil
}

// call sends one request and waits for its answer. After an error of the pipe itself the process is of no more use.
func (p *process) call(r request) (answer, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	line, err := json.Marshal(r)
	if err != nil {
		return answer{}, err
	}
	if _, err := p.in.Write(append(line, '\n')); err != nil {
		return answer{}, fmt.Errorf("ask %s: %w", p.name, err)
	}
	var a answer
	if err := p.out.Decode(&a); err != nil {
		return answer{}, fmt.Errorf("hear from %s: %w", p.name, err)
	}
	if a.Error != "" {
		return answer{}, errors.New(a.Error)
	}
	return a, nil
}

// close ends the process: it stops at the end of its input. The error holds what it had complained about, if it failed.
func (p *process) close() error {
	p.in.Close()
	if err := p.cmd.Wait(); err != nil {
		return fmt.Errorf("%s: %w\n%s", p.name, err, p.log.String())
	}
	return nil
}

// setup runs one script of test/setup and returns the last line it prints.
func setup(script string) (string, error) {
	cmd := exec.Command(filepath.Join(packageDir(), "..", "setup", script))
	var log bytes.Buffer
	cmd.Stderr = &log
	out, err := cmd.Output()
	if err != nil {
		return "", fmt.Errorf("%s: %w\n%s", script, err, log.String())
	}
	lines := strings.Split(strings.TrimSpace(string(out)), "\n")
	return lines[len(lines)-1], nil
}

// packageDir is the source directory of this package.
func packageDir() string {
	_, file, _, _ := runtime.Caller(0)
	return filepath.Dir(file)
}
