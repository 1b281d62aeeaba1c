package crash

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"sync"
)

// ErrCrashed is the error of the effect that failed and of every later one.
var ErrCrashed = errors.New("process is dead")

// Effects counts the effects of one life of a process and ends that life at a chosen one. Its methods may be called by
// several goroutines; with more than one, which effect is the n-th depends on their turns.
type Effects struct {
	mu     sync.Mutex
	failAt int
	seen   int
	at     string // the effect that failed, once it has
}

// FailAt makes Effects that fail at the n-th effect, counted from 1. With 0 none fails.
func FailAt(n int) *Effects { return &Effects{failAt: n} }

// FailAtRandom makes Effects that fail at one of the first n effects, chosen by the seed.
func FailAtRandom(seed uint64, n int) *Effects {
	return FailAt(1 + rand.New(rand.NewPCG(seed, 0)).IntN(n))
}

// Hook is called before an effect. Its error means that the effect must not happen, nor anything after it.
func (e *Effects) Hook(name string) error {
	_, err := e.hook(name)
	return err
}

// hook is Hook; now says that it is this effect in which the process dies.
func (e *Effects) hook(name string) (now bool, err error) {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.at == "" {
		if e.seen++; e.seen != e.failAt {
			return false, nil
		}
		e.at, now = name, true
	}
	return now, fmt.Errorf("effect %d (%s): %w", e.seen, e.at, ErrCrashed)
}

// Count is how many effects were asked for up to the one that failed, itself included.
func (e *Effects) Count() int {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.seen
}

// Crashed names the effect that failed.
func (e *Effects) Crashed() (name string, ok bool) {
	e.mu.Lock()
	defer e.mu.Unlock()
	return e.at, e.at != ""
}
