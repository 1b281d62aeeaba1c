package mirror

import (
	"context"
	"errors"
	"fmt"
	"time"

	"pgmirror/deletion"
)

// A rewrite leaves out the rows that were deleted at or before its floor. Every other deletion of its inputs is carried over to the output, with
// its LSN, at the row's new place:
//
//	begin (turn)     the log of deletions begins
//	leaveOut         what is dead at floor, and what was deleted after it until the log began ─▶ the output's visibility
//	write            meanwhile the applier goes on deleting rows of the inputs: the log
//	carryOver        takes what the log has (turn) ─▶ the visibility; again, until no more than a slice is left
//	install (turn)   the rest of the log ─▶ the visibility, which readers may see from now on
//
// So the applier stands still for one slice at the most, however many rows were deleted while the file was written.

// carrySlice is the number of deletions that are carried over in one turn, together with the install: about 2 ms of the applier's time.
const carrySlice = 8192

// moving says of a segment that a rewrite moves its rows; the applier's.
type moving struct {
	to    *rewrite
	input int
}

// moved is a deletion in an input of a rewrite.
type moved struct {
	input int
	row   uint32
	at    LSN
}

// follow begins the log. The applier's turn.
func (rw *rewrite) follow() {
	rw.followed = true
	for i, s := range rw.inputs {
		s.moving = moving{rw, i}
		rw.began = max(rw.began, s.vis.Last())
	}
}

// unfollow ends the log. The applier's turn.
func (rw *rewrite) unfollow() {
	for _, s := range rw.inputs {
		if s.moving.to == rw {
			s.moving = moving{}
		}
	}
	rw.log, rw.followed = nil, false
}

// delete deletes a row at lsn, in the rewrite that moves it, too. The applier's turn.
func (s *segment) delete(row uint32, lsn LSN) error {
	if err := s.vis.Delete(row, lsn); err != nil {
		return err
	}
	if rw := s.moving.to; rw != nil {
		rw.log = append(rw.log, moved{s.moving.input, row, lsn})
	}
	return nil
}

// startRewrite begins a rewrite with begin, in the applier's turn, and works out what it leaves out. It is nil when there is nothing to do. The caller
// calls end.
func (m *Mirror) startRewrite(ctx context.Context, begin func() *rewrite) (*rewrite, error) {
	var rw *rewrite
	var stall time.Duration
	err := m.inTimedTurn(ctx, &stall, func() error {
		if rw = begin(); rw != nil {
			rw.follow()
		}
		return nil
	})
	if err != nil || rw == nil {
		return nil, err
	}
	rw.stall = stall
	if err := rw.leaveOut(); err != nil {
		rw.end(ctx, m)
		return nil, fmt.Errorf("rewrite %s at %s: %w", rw.table, rw.floor, err)
	}
	return rw, nil
}

// end gives the inputs back, if the rewrite was not installed. The goroutine that rewrites.
func (rw *rewrite) end(ctx context.Context, m *Mirror) {
	if !rw.followed { // written in turns that this goroutine has waited for
		return
	}
	m.inAnyTurn(context.WithoutCancel(ctx), func() error { rw.unfollow(); return nil })
}

// leaveOut works out which rows of the inputs are dead at floor and where the others go, and carries over what was deleted until the log began.
// A background goroutine.
func (rw *rewrite) leaveOut() error {
	var before []deletion.Deletion
	base := 0
	for i, s := range rw.inputs {
		dead, later, err := s.deletions(rw.floor, rw.began, rw.rows[i])
		if err != nil {
			return err
		}
		rw.dead, rw.base = append(rw.dead, dead), append(rw.base, base)
		base += rw.rows[i] - int(dead.Cardinality())
		for _, d := range later {
			if int(d.Row) < rw.rows[i] {
				before = append(before, deletion.Deletion{Row: rw.place(i, d.Row), At: d.At})
			}
		}
	}
	var err error
	rw.vis, err = deletion.Carry(rw.floor, before)
	return err
}

// deletions are the rows that were deleted at or before floor, and what was deleted after it up to to. What a fold has taken together meanwhile no
// reader tells apart any more: it counts to the former. Any goroutine.
func (s *segment) deletions(floor, to LSN, rows int) (dead *deletion.Vector, later []deletion.Deletion, err error) {
	for {
		from := max(floor, s.vis.Base())
		if dead, err = s.vis.At(from, uint32(rows)); err == nil {
			later, err = s.vis.Between(from, to)
		}
		if !errors.Is(err, deletion.ErrFolded) { // a fold that comes between is followed by none for a while
			return dead, later, err
		}
	}
}

// place is where a row of an input that is not dead goes.
func (rw *rewrite) place(input int, row uint32) uint32 {
	return uint32(rw.base[input]) + row - rw.dead[input].Rank(row)
}

// carry puts deletions of the log into the output's visibility.
func (rw *rewrite) carry(log []moved) error {
	for _, d := range log {
		if int(d.row) >= rw.rows[d.input] || rw.dead[d.input].Contains(d.row) {
			continue
		}
		row := rw.place(d.input, d.row)
		if d.at <= rw.began && rw.vis.Deleted(row) { // of the transaction in which the log began: leaveOut has seen it
			continue
		}
		if err := rw.vis.Delete(row, d.at); err != nil {
			return fmt.Errorf("carry a deletion over: %w", err)
		}
	}
	return nil
}

// carryOver carries the log over while rows go on being deleted, and installs the rewrite in the turn that takes the last of it.
func (rw *rewrite) carryOver(ctx context.Context, m *Mirror, install func() error) error {
	for {
		var slice []moved
		installed := false
		err := m.inTimedTurn(ctx, &rw.stall, func() error {
			if len(rw.log) > m.carrySlice {
				slice, rw.log = rw.log, nil
				return nil
			}
			installed, rw.rest = true, len(rw.log)
			if err := rw.carry(rw.log); err != nil {
				return err
			}
			rw.unfollow()
			return install()
		})
		if err != nil || installed {
			return err
		}
		if err := rw.carry(slice); err != nil {
			return err
		}
	}
}
