package mirror

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"strings"
	"time"

	"pgmirror/iceberg"
	"pgmirror/pgcdc"
	"pgmirror/readstate"
)

// verifyRounds is how often a snapshot is taken for a table that is rewritten or altered while it waits to be compared.
const verifyRounds = 3

// Verify compares tables with the source, exactly, while both go on: row counts and an order-free 128-bit hash over every
// column of every row.
//
//	hold HWM ─▶ snapshot with consistent point F ─▶ wait until HWM ≥ F ─▶ pin F, let the hold go ─▶ compare table by table
//
// The snapshot sees the commits that end at or below F (pgcdc.Source.Snapshot), and so does the mirror at F: what differs is a
// fault. F lies above HWM when it is made, and the hold keeps LWM below F until F is pinned.
//
// A table that differs is read again to name keys. A file that cannot be read is a finding about its table. An error means that
// nothing could be compared. progress gets lines that are each a VerifyProgress, from several goroutines but one at a time.
func (m *Mirror) Verify(ctx context.Context, req VerifyRequest, progress func(line string)) (*VerifyReport, error) {
	if err := req.validate(); err != nil {
		return nil, err
	}
	if st := m.shared.get(); st.state != "streaming" || !st.opened {
		return nil, fmt.Errorf("%w: %s", ErrNotConnected, standing(st))
	}
	wanted, err := m.verified(req.Tables)
	if err != nil {
		return nil, err
	}
	tell := &teller{send: progress}
	rep := &VerifyReport{Equal: true, Sample: req.Sample, Tables: make([]VerifyTable, len(wanted))}
	left := make([]int, len(wanted)) // indexes into wanted
	for i := range wanted {
		left[i] = i
	}
	for round := 1; len(left) > 0 && round <= verifyRounds; round++ {
		if err := m.awaitJoins(ctx, wanted, left, req.patience(), tell); err != nil {
			return nil, err
		}
		if left, err = m.verifyRound(ctx, wanted, left, rep, &req, tell); err != nil {
			return nil, err
		}
	}
	for _, t := range rep.Tables {
		rep.Equal = rep.Equal && (t.Outcome == VerifyEqual || t.Gone)
	}
	return rep, nil
}

func standing(st sharedState) string {
	if st.reason != "" {
		return st.state + " (" + st.reason + ")"
	}
	return st.state
}

// verified finds the tables to compare, each once; none named means all.
func (m *Mirror) verified(names []string) (wanted []*table, err error) {
	if len(names) == 0 {
		for _, v := range m.shared.views() {
			wanted = append(wanted, v.table)
		}
		return wanted, nil
	}
	var unknown []error
	for _, name := range names {
		t, err := m.findTable(name)
		if err != nil {
			unknown = append(unknown, err)
		} else if !slices.Contains(wanted, t) {
			wanted = append(wanted, t)
		}
	}
	return wanted, errors.Join(unknown...)
}

// verifyRound compares tables in one snapshot of the source, and returns those that need another one.
func (m *Mirror) verifyRound(ctx context.Context, wanted []*table, left []int, rep *VerifyReport, req *VerifyRequest, tell *teller) (again []int, err error) {
	hold, err := m.marks.register(0)
	if err != nil {
		return nil, err
	}
	defer m.marks.release(hold)
	tell.at("take a snapshot of the source", 0, 0, "")
	snapshot, release, err := m.source.Snapshot(ctx, req.patience(), func(whom string) {
		tell.notice("the source gives a snapshot when every transaction that has written before has ended: " + whom)
	})
	if err != nil {
		return nil, err
	}
	defer release()
	catalog, err := m.source.Look(ctx)
	if err != nil {
		return nil, err
	}
	if err := m.reach(ctx, snapshot.ConsistentPoint, tell); err != nil {
		return nil, err
	}
	state, err := m.Pin(ctx, readstate.PinRequest{At: snapshot.ConsistentPoint})
	if err != nil {
		return nil, err
	}
	defer state.Release()
	m.marks.release(hold)
	rep.LSN = state.LSN.String()
	failures := map[readstate.TableName]verifyFailure{} // another table may have come in a wanted one's place
	for _, v := range m.shared.views() {
		if v.failure != nil {
			failures[v.table.name] = verifyFailure{v.unreadable(v.failure.Good+1, chosen), v.failure.Absent, v.joins}
		}
	}
	for _, i := range left {
		t := wanted[i]
		r := &rep.Tables[i]
		*r = VerifyTable{Name: t.String(), LSN: state.LSN.String()}
		retry, err := m.verifyTable(ctx, t, catalog, snapshot, state, failures[t.name], req.Sample, tell, r)
		if err != nil {
			return nil, fmt.Errorf("compare %s: %w", t, err)
		}
		if retry {
			again = append(again, i)
		}
	}
	return again, nil
}

// reach waits until everything up to F, and a look at the catalogue made after F, is judged: a table that was altered without
// a row event has then failed.
func (m *Mirror) reach(ctx context.Context, f LSN, tell *teller) error {
	if _, err := m.look(ctx, true); err != nil {
		return err
	}
	point, err := m.source.WaitPoint(ctx)
	if err != nil {
		return err
	}
	from, to := m.marks.high(), max(f, point)
	for {
		pause, cancel := context.WithTimeout(ctx, time.Second)
		err := m.marks.wait(pause, to)
		cancel()
		if err == nil {
			return nil
		}
		if ctx.Err() != nil {
			return context.Cause(ctx)
		}
		if st := m.shared.get(); st.state != "streaming" {
			return fmt.Errorf("%w: %s", ErrNotConnected, standing(st))
		}
		tell.at("catch up with the source", int64(max(from, m.marks.high())-from), int64(to-from), "bytes")
	}
}

// awaitJoins waits for tables that are being copied, for as long as patience says, and puts those that have joined meanwhile in the place of
// what they replaced. A healthy table that is copied again is compared as it is.
func (m *Mirror) awaitJoins(ctx context.Context, wanted []*table, left []int, patience time.Duration, tell *teller) error {
	deadline := time.Now().Add(patience)
	for told := false; ; told = true {
		var names []string
		views := map[readstate.TableName]*tableView{}
		for _, v := range m.shared.views() {
			views[v.table.name] = v
		}
		for _, i := range left {
			v := views[wanted[i].name]
			if v == nil {
				continue
			}
			if wanted[i] = v.table; v.joins && v.state != stateStreaming {
				names = append(names, v.table.String())
			}
		}
		if len(names) == 0 || time.Now().After(deadline) {
			return nil
		}
		if !told {
			tell.notice("waits until they are copied: " + strings.Join(names, ", "))
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(streamingPause):
		}
	}
}

// verifyFailure is why a table that has failed is not compared; absent says that there is nothing to compare it with.
type verifyFailure struct {
	reason string
	absent bool
	joins  bool // it is being copied again
}

// verifyTable compares one table; retry says that the snapshot can no longer be read, so that it takes a newer one.
func (m *Mirror) verifyTable(ctx context.Context, t *table, catalog *pgcdc.Catalog, snapshot pgcdc.ExportedSnapshot, state *readstate.State,
	failed verifyFailure, percent float64, tell *teller, r *VerifyTable) (retry bool, err error) {
	ours, _ := state.Table(t.name)
	at := slices.IndexFunc(catalog.Tables, func(s pgcdc.Table) bool { return s.OID == t.oid })
	switch {
	case failed.absent:
		r.Outcome, r.Reason, r.Gone = VerifySkipped, failed.reason, true
	case failed.joins:
		r.Outcome, r.Reason, retry = VerifySkipped, "it is being copied and not there yet: "+failed.reason, true
	case failed.reason != "":
		r.Outcome, r.Reason = VerifyFailed, failed.reason
	case ours == nil:
		r.Outcome, r.Reason = VerifySkipped, "it is not mirrored any more"
	case ours.Err != "": // another content has come in its place since
		r.Outcome, r.Reason, retry = VerifySkipped, ours.Err, true
	case at < 0:
		r.Outcome, r.Reason, r.Gone = VerifySkipped, reasonGone+" while it waited to be compared", true
	}
	if r.Outcome != "" {
		return retry, nil
	}
	c, unlike, err := m.newComparison(snapshot, &catalog.Tables[at], ours, percent, tell)
	if err == nil && unlike == "" {
		err = c.run(ctx, r)
	}
	var value *unreadableValue
	switch {
	case unlike != "":
		r.Outcome, r.Reason, retry = VerifySkipped, unlike, true
	case errors.Is(err, pgcdc.ErrRewritten):
		r.Outcome, r.Reason, retry = VerifySkipped, "the source rewrote or altered it again and again before it was read", true
	case errors.Is(err, pgcdc.ErrSnapshotLost):
		r.Outcome, r.Reason, retry = VerifySkipped, "the connection that held the source's snapshot was lost again and again", true
	case errors.Is(err, iceberg.ErrCorrupt):
		r.Outcome, r.Reason = VerifyDamaged, err.Error()
	case errors.As(err, &value):
		r.Outcome, r.Reason = VerifyDifferent, value.Error()
	default:
		return false, err
	}
	return retry, nil
}

// run compares, and says what it found.
func (c *comparison) run(ctx context.Context, r *VerifyTable) error {
	theirs, mine, err := c.sums(ctx)
	if err != nil {
		return err
	}
	r.SourceRows, r.MirrorRows, r.Nulled = theirs.total.rows, mine.total.rows, c.nulled
	r.Outcome = VerifyEqual
	if theirs.total == mine.total {
		return nil
	}
	r.Outcome, r.Reason = VerifyDifferent, "the values differ"
	if r.SourceRows != r.MirrorRows {
		r.Reason = "the row counts differ"
	}
	if len(c.key) == 0 {
		r.Reason += "; it has no key to name rows by"
		return nil
	}
	wanted, all := theirs.differing(mine)
	found, more, err := c.name(ctx, wanted, len(theirs.buckets))
	switch {
	case errors.Is(err, errTooMany):
		r.Reason += "; too many rows differ to name their keys"
		return nil
	case errors.Is(err, pgcdc.ErrRewritten) || errors.Is(err, pgcdc.ErrSnapshotLost):
		r.Reason += "; their keys are not known, because the source has rewritten or altered it since"
		return nil
	case err != nil:
		return err
	}
	if len(found) == 0 {
		r.Reason += " when it was read first, but not when it was read again: is the memory or a disk of this machine at fault?"
	}
	r.Differences, r.More = found, more || !all
	return nil
}
