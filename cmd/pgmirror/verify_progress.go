package main

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"sync"

	"pgmirror/mirror"
)

// verifyProgress shows the lines that a comparison sends: a bar or a line now and then for a step, and notices above it. Its methods
// may be called by several goroutines.
type verifyProgress struct {
	out io.Writer

	mu   sync.Mutex
	step string
	bar  *progress // nil before the first step, and where out is no file
}

func newVerifyProgress(out io.Writer) *verifyProgress { return &verifyProgress{out: out} }

// line takes a line of progress. One that is not a mirror.VerifyProgress is for people as it is.
func (v *verifyProgress) line(text string) {
	var p mirror.VerifyProgress
	if json.Unmarshal([]byte(text), &p) != nil {
		p = mirror.VerifyProgress{Notice: text}
	}
	if p.Notice != "" {
		fmt.Fprintln(v, oneLine(p.Notice))
		return
	}
	v.mu.Lock()
	defer v.mu.Unlock()
	file, ok := v.out.(*os.File)
	if !ok {
		return
	}
	if p.Unit == "" { // there is nothing to count
		v.endLocked()
		return
	}
	if v.bar == nil || p.Step != v.step {
		v.endLocked()
		v.step, v.bar = p.Step, newProgress(file, p.Step, p.Total, p.Unit)
	}
	v.bar.set(p.Done)
}

// Write writes above the bar: notices and the log.
func (v *verifyProgress) Write(text []byte) (int, error) {
	v.mu.Lock()
	defer v.mu.Unlock()
	if v.bar != nil {
		return v.bar.Write(text)
	}
	return v.out.Write(text)
}

// end takes the bar away; calling it again does nothing.
func (v *verifyProgress) end() {
	v.mu.Lock()
	defer v.mu.Unlock()
	v.endLocked()
}

func (v *verifyProgress) endLocked() {
	if v.bar != nil {
		v.bar.end()
		v.bar = nil
	}
}
