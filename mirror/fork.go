package mirror

import "fmt"

// forkGuard notices a source whose history is not the one we followed: restored from a disk copy it has the same identifier
// and timeline, and starting above its end would silently skip its new commits. The stream is therefore asked for from the
// slot's own confirmed LSN; the newest commit we hold must then come again unchanged when it lies above that, and no commit may
// come between it and our LSN.
type forkGuard struct {
	last commitMark // the newest commit we hold
	// due says that last must come again before anything new does.
	due bool
}

// begin starts a connection from the given LSN.
func (g *forkGuard) begin(last commitMark, from LSN) {
	*g = forkGuard{last: last, due: last.EndLSN > from}
}

// again judges a commit that ends at or below what is applied.
func (g *forkGuard) again(c commitMark, applied LSN) error {
	switch {
	case c.EndLSN == g.last.EndLSN:
		if !c.equal(g.last) {
			return g.forked(fmt.Sprintf("at %s it sends transaction %d of %s, we hold transaction %d of %s", c.EndLSN, c.XID, c.Time, g.last.XID, g.last.Time))
		}
		g.due = false
	case c.EndLSN > g.last.EndLSN:
		return g.forked(fmt.Sprintf("it sends a commit that ends at %s, between our last one at %s and %s", c.EndLSN, g.last.EndLSN, applied))
	}
	return nil
}

// passed is called before anything above what is applied.
func (g *forkGuard) passed() error {
	if g.due {
		return g.forked(fmt.Sprintf("it does not send the commit that ends at %s again", g.last.EndLSN))
	}
	return nil
}

func (g *forkGuard) forked(what string) error {
	return fmt.Errorf("%w: the source's history is not the one this mirror followed (was it restored from a copy?): %s; %s to copy it anew", ErrRefused, what, startAnew)
}
