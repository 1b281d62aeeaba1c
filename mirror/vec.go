package mirror

import "sync/atomic"

// vec is an append-only array with one writer and any number of readers that need no lock.
//
// The writer publishes how many elements are complete by some other atomic store (a batch's row count); a reader loads that
// count first and then calls read with it. Elements below a published count never change, and when the array outgrows
// its memory the whole content moves to a larger one before the next count is published, so whatever array a
// reader finds holds all it may look at.
type vec[T any] struct {
	own    []T // the writer's: len is what has been written
	shared atomic.Pointer[[]T]
}

func (v *vec[T]) reserve(n int) {
	if cap(v.own)-len(v.own) >= n {
		return
	}
	grown := make([]T, len(v.own), max(2*cap(v.own), len(v.own)+n, 16))
	copy(grown, v.own)
	v.own = grown
	whole := grown[:cap(grown)]
	v.shared.Store(&whole)
}

func (v *vec[T]) push(x T) {
	v.reserve(1)
	v.own = append(v.own, x)
}

func (v *vec[T]) pushAll(xs []T) {
	v.reserve(len(xs))
	v.own = append(v.own, xs...)
}

// extend appends n zero elements and returns them for the writer to fill.
func (v *vec[T]) extend(n int) []T {
	v.reserve(n)
	at := len(v.own)
	v.own = v.own[:at+n]
	clear(v.own[at:])
	return v.own[at:]
}

// adopt makes a filled array the vec's content. Readers see it from the moment it exists, so it must already hold what they
// may look at.
func (v *vec[T]) adopt(content []T) {
	v.own = content
	whole := content[:cap(content)]
	v.shared.Store(&whole)
}

// truncate takes back elements that were never published.
func (v *vec[T]) truncate(n int) { v.own = v.own[:n] }

func (v *vec[T]) len() int { return len(v.own) }

// read returns the first n elements; n is at most a published count.
func (v *vec[T]) read(n int) []T {
	if n == 0 {
		return nil
	}
	return (*v.shared.Load())[:n:n]
}

// present reports to a reader whether the array exists at all.
func (v *vec[T]) present() bool { return v.shared.Load() != nil }
