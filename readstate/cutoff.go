package readstate

import (
	"log/slog"
	"sync"
	"time"
)

// cutOffPause is the least time between two lines about clients that were cut off: a program that opens connections and says
// nothing would otherwise fill the log, a line for each.
const cutOffPause = time.Minute

// cutOffs reports clients that were cut off: the first at once, those that follow as a number with the next line or at the end.
type cutOffs struct {
	log *slog.Logger

	mu     sync.Mutex
	last   time.Time // of a line; zero before the first
	silent int       // since then, without a line
}

func (c *cutOffs) report(err error) {
	c.mu.Lock()
	defer c.mu.Unlock()
	now := time.Now()
	if !c.last.IsZero() && now.Sub(c.last) < cutOffPause {
		c.silent++
		return
	}
	c.log.Warn("a read-state client was cut off", "err", err, "since_last_line", c.silent)
	c.last, c.silent = now, 0
}

// end reports those that no line has counted.
func (c *cutOffs) end() {
	c.mu.Lock()
	defer c.mu.Unlock()
	if c.silent > 0 {
		c.log.Warn("more read-state clients were cut off", "since_last_line", c.silent)
		c.silent = 0
	}
}
