package mirror

import (
	"math/rand/v2"

	"pgmirror/pgcdc"
)

// streamed is the commit as a server sends one that it streams while it runs: in blocks, by the transaction or subtransactions that
// were released, with changes of others that are rolled back after their block. Relations are stated in it, and again
// after each rollback; stated says whether the session knows them from then on.
func (c *commit) streamed(tables []pgcdc.Table, rng *rand.Rand) (msgs []message, stated bool) {
	by := func(xid uint32, m message) { msgs = append(msgs, append(message{m[0]}.u32(xid), m[1:]...)) }
	sub := c.xid + 1<<20
	rest := c.changes
	for first := byte(1); first == 1 || len(rest) > 0; first = 0 {
		msgs = append(msgs, message{'S'}.u32(c.xid).u8(first))
		if !stated {
			stated = true
			for _, m := range relationMessages(tables) {
				by(c.xid, m)
			}
		}
		writer := c.xid
		if rng.IntN(2) == 0 {
			sub++
			writer = sub
		}
		n := rng.IntN(len(rest) + 1)
		for _, m := range rest[:n] {
			by(writer, m)
		}
		rest = rest[n:]
		gone := 0
		if len(c.changes) > 0 {
			gone = rng.IntN(3)
		}
		sub++
		for range gone {
			by(sub, c.changes[rng.IntN(len(c.changes))])
		}
		msgs = append(msgs, message{'E'})
		if gone > 0 {
			stated = false
			msgs = append(msgs, message{'A'}.u32(c.xid).u32(sub))
		}
	}
	micros := uint64(c.at.Sub(pgEpoch).Microseconds())
	return append(msgs, message{'c'}.u32(c.xid).u8(0).u64(uint64(c.commitLSN)).u64(uint64(c.end)).u64(micros)), stated
}
