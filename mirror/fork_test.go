package mirror

import (
	"errors"
	"testing"
	"time"
)

// TestForkGuard: a source is taken for ours if, and only if, our newest commit comes again unchanged when it lies above the slot's
// confirmed LSN, and no unknown commit lies at or below what is applied.
func TestForkGuard(t *testing.T) {
	at := time.Date(2026, 1, 1, 0, 0, 0, 0, time.UTC)
	c := func(end LSN, xid uint32) commitMark { return commitMark{end, xid, at} }
	last := c(200, 7)
	for name, tc := range map[string]struct {
		last      commitMark
		confirmed LSN
		applied   LSN
		again     []commitMark // at or below applied
		more      bool         // then something above applied
		forked    bool
	}{
		"nothing above the slot":               {last: last, confirmed: 200, applied: 200, more: true},
		"a keepalive came after our commit":    {last: last, confirmed: 200, applied: 250, more: true},
		"comes again":                          {last: last, confirmed: 100, applied: 200, again: []commitMark{c(150, 6), last}, more: true},
		"comes again, applied by a keepalive":  {last: last, confirmed: 100, applied: 250, again: []commitMark{last}, more: true},
		"never copied a commit yet":            {confirmed: 100, applied: 100, more: true},
		"does not come again":                  {last: last, confirmed: 100, applied: 200, again: []commitMark{c(150, 6)}, more: true, forked: true},
		"nothing comes again":                  {last: last, confirmed: 199, applied: 200, more: true, forked: true},
		"nothing has come yet":                 {last: last, confirmed: 100, applied: 200},
		"another transaction at its place":     {last: last, confirmed: 100, applied: 200, again: []commitMark{c(200, 8)}, forked: true},
		"another time at its place":            {last: last, confirmed: 100, applied: 200, again: []commitMark{{200, 7, at.Add(1)}}, forked: true},
		"the same time in another zone":        {last: last, confirmed: 100, applied: 200, again: []commitMark{{200, 7, at.In(time.FixedZone("x", 3600))}}, more: true},
		"a commit that we never saw":           {last: last, confirmed: 200, applied: 250, again: []commitMark{c(230, 8)}, forked: true},
		"a commit that we never saw, after it": {last: last, confirmed: 100, applied: 250, again: []commitMark{last, c(230, 8)}, forked: true},
		"a commit although none was known":     {confirmed: 100, applied: 150, again: []commitMark{c(130, 8)}, forked: true},
	} {
		t.Run(name, func(t *testing.T) {
			var g forkGuard
			g.begin(tc.last, tc.confirmed)
			var err error
			for _, c := range tc.again {
				err = errors.Join(err, g.again(c, tc.applied))
			}
			if tc.more {
				err = errors.Join(err, g.passed())
			}
			if errors.Is(err, ErrRefused) != tc.forked || tc.forked == (err == nil) {
				t.Errorf("forked: %v, want %v", err, tc.forked)
			}
		})
	}
}
