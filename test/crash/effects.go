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
	mu      sync.Mutex
	name    string // only effects of this name count towards left; all if empty
	left    int    // how many of them until the process dies; never if 0
	seen    int
	at      string // the effect that failed, once it has
	died    chan struct{}
	atDeath func()
}

// FailAt makes Effects that fail at the n-th effect, counted from 1. With 0 none fails.
func FailAt(n int) *Effects { return FailAtNamed("", n) }

// FailAtNamed makes Effects that fail at the n-th effect of a name, counted from 1.
func FailAtNamed(name string, n int) *Effects {
	return &Effects{name: name, left: n, died: make(chan struct{}), atDeath: func() {}}
}

// FailAtRandom makes Effects that fail at one of the first n effects, chosen by the seed.
func FailAtRandom(seed uint64, n int) *Effects {
	return FailAt(1 + rand.New(rand.NewPCG(seed, 0)).IntN(n))
}

// AtDeath lets do run in the moment of death, before Hook returns: what else the process can reach ends there too. It is
// set before the first effect.
func (e *Effects) AtDeath(do func()) { e.atDeath = do }

// Died is closed when the process is dead.
func (e *Effects) Died() <-chan struct{} { return e.died }

// Outright is the name under which Crashed gives a death that no effect chose.
const Outright = "outright"

// Kill ends the life now, between two effects.
func (e *Effects) Kill() {
	e.mu.Lock()
	defer e.mu.Unlock()
	if e.at == "" {
		e.dieLocked(Outright)
	}
}

func (e *Effects) dieLocked(at string) {
	e.at = at
	e.atDeath()
	close(e.died)
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
		e.seen++
		if e.name != "" && e.name != name {
			return false, nil
		}
		if e.left--; e.left != 0 {
			return false, nil
		}
		e.dieLocked(name)
		now = true
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
