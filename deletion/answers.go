package deletion

import "sync/atomic"

// answer is what At found at some LSN, kept for the next calls. It never changes. Two are kept for each Visibility: queries
// ask for the newest state, checkpoints and readers of the past for another.
type answer struct {
	// at: no deletion in the vector is later.
	at LSN
	// certain: the vector holds every deletion up to here, and none can follow. It is at, or just below if more deletions
	// with the LSN at may come.
	certain LSN
	// complete: the vector holds all of the first `added` entries there ever were.
	complete bool
	added    uint64
	vector   *Vector // nil when nothing is deleted
}

func (a *answer) bytes() int64 {
	if a == nil {
		return 0
	}
	return answerBytes + a.vector.Bytes()
}

const answerBytes = 48

// holdsFor tells whether a is the answer at x, of a Visibility with that many entries, the newest of them at last.
func (a *answer) holdsFor(x, last LSN, added uint64) bool {
	switch {
	case a == nil:
		return false
	case a.complete:
		return a.added == added && x >= last
	}
	return a.at == x
}

// kept returns a kept answer that holds for x, or nil.
func (v *Visibility) kept(x, last LSN, added uint64) *answer {
	if a := v.newest.Load(); a.holdsFor(x, last, added) {
		return a
	}
	if a := v.other.Load(); a.holdsFor(x, last, added) {
		return a
	}
	return nil
}

// keptBelow returns the highest kept answer at or below x to which only entries must be added for x, or nil.
func (v *Visibility) keptBelow(x LSN) (best *answer) {
	for _, a := range []*answer{v.newest.Load(), v.other.Load()} {
		if a != nil && a.at <= x && a.certain >= v.Base() && (best == nil || a.at > best.at) {
			best = a
		}
	}
	return best
}

// keep stores an answer, unless another call has just stored the same one: then it returns that.
func (v *Visibility) keep(a *answer) *answer {
	for {
		newest := v.newest.Load()
		if newest != nil && a.at < newest.at {
			v.other.Store(a)
			return a
		}
		if newest.same(a) {
			return newest
		}
		if v.newest.CompareAndSwap(newest, a) {
			return a
		}
	}
}

// same tells whether a and b say the same for the same number of rows.
func (a *answer) same(b *answer) bool {
	return a != nil && a.at == b.at && a.certain == b.certain && a.complete == b.complete && a.added == b.added && a.vector.Rows() == b.vector.Rows()
}

// settleAnswers fits the kept answers to a new base. Nothing can be deleted at or below the base any more, so an answer that
// holds every deletion is certain up to there, and a fold costs no reader a full read. What lies below the base is let go.
func (v *Visibility) settleAnswers(base LSN) {
	newest := v.newest.Load()
	if newest != nil && newest.complete && newest.added == v.added.Load() && newest.certain < base {
		raised := *newest
		raised.at, raised.certain = max(raised.at, base), base
		v.newest.CompareAndSwap(newest, &raised) // a reader that was faster has a better one
	}
	for _, kept := range []*atomic.Pointer[answer]{&v.newest, &v.other} {
		if a := kept.Load(); a != nil && a.certain < base {
			kept.CompareAndSwap(a, nil)
		}
	}
}
