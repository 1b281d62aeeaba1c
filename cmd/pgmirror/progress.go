package main

import (
	"cmp"
	"fmt"
	"os"
	"strings"
	"sync"
	"time"
)

const (
	// barPause is the time between two drawings of a bar: often enough to look alive.
	barPause = 200 * time.Millisecond
	// linePause is the time between two lines where there is no terminal.
	linePause = 10 * time.Second
	// barWidth is the longest bar, in characters.
	barWidth = 30
)

// progress shows how far a long piece of work is: a bar with rate and time left on a terminal, elsewhere a plain line every
// ten seconds. Work that ends before that leaves no line. Its methods may be called by several goroutines at once.
type progress struct {
	out      *os.File
	what     string
	unit     string
	terminal bool
	now      func() time.Time

	mu    sync.Mutex
	total int64
	done  int64
	began time.Time
	shown time.Time // when the last bar or line was written
	drawn bool      // the cursor stands behind a bar
	ended bool
}

// newProgress begins to show work on w. what names it; total is how much there is to do, 0 if nobody knows; unit is what is
// counted, where "bytes" are printed with a prefix. The caller calls end, also when the work is given up.
func newProgress(w *os.File, what string, total int64, unit string) *progress {
	return startProgress(w, what, total, unit, time.Now)
}

func startProgress(w *os.File, what string, total int64, unit string, now func() time.Time) *progress {
	p := &progress{out: w, what: oneLine(what), total: total, unit: unit, terminal: isTerminal(w), now: now, began: now()}
	p.shown = p.began
	return p
}

// set says that done of the total is done by now.
func (p *progress) set(done int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.done = done
	pause := linePause
	if p.terminal {
		pause = barPause
	}
	if p.ended || p.now().Sub(p.shown) < pause {
		return
	}
	p.show()
}

// setTotal corrects the total.
func (p *progress) setTotal(total int64) {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.total = total
}

// Write writes other output above the bar: logs and answers. Nothing of it is kept.
func (p *progress) Write(text []byte) (int, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	again := p.drawn
	p.erase()
	n, err := p.out.Write(text)
	if again {
		p.show()
	}
	return n, err
}

// end takes the bar away. Calling it again does nothing.
func (p *progress) end() {
	p.mu.Lock()
	defer p.mu.Unlock()
	p.ended = true
	p.erase()
}

// show draws the bar or writes a line. What cannot be shown is no reason to stop the work.
func (p *progress) show() {
	p.shown = p.now()
	elapsed := p.shown.Sub(p.began)
	if p.terminal {
		p.drawn = true
		fmt.Fprint(p.out, "\r\x1b[K"+progressBar(p.what, p.unit, p.done, p.total, elapsed, cmp.Or(terminalWidth(p.out), 80)))
		return
	}
	fmt.Fprintln(p.out, progressLine(p.what, p.unit, p.done, p.total, elapsed))
}

func (p *progress) erase() {
	if p.drawn {
		fmt.Fprint(p.out, "\r\x1b[K")
		p.drawn = false
	}
}

// progressBar is a line shorter than width, so that it never wraps. Where there is no room, the bar goes first.
func progressBar(what, unit string, done, total int64, elapsed time.Duration, width int) string {
	line := progressLine(what, unit, done, total, elapsed)
	length := len([]rune(line))
	if length > width-1 {
		return string([]rune(line)[:max(0, width-1)])
	}
	room := min(barWidth, width-1-length-len(" []"))
	if total <= 0 || room < 5 {
		return line
	}
	full := int(fraction(done, total) * float64(room))
	return line[:len(what)] + " [" + strings.Repeat("=", full) + strings.Repeat(" ", room-full) + "]" + line[len(what):]
}

// progressLine says in words how far the work is.
func progressLine(what, unit string, done, total int64, elapsed time.Duration) string {
	quantity := func(n int64) string {
		if unit == "bytes" {
			return size(n)
		}
		return count(n)
	}
	name := " " + unit
	if unit == "bytes" {
		name = ""
	}
	rate := 0.0
	if elapsed > 0 {
		rate = float64(done) / elapsed.Seconds()
	}
	speed := fmt.Sprintf("%s/s", quantity(int64(rate)))
	if total <= 0 {
		return fmt.Sprintf("%s %s%s, %s", what, quantity(done), name, speed)
	}
	line := fmt.Sprintf("%s %3d%%, %s of %s%s, %s", what, int(100*fraction(done, total)), quantity(done), quantity(total), name, speed)
	if rate > 0 && done < total {
		line += ", " + timeLeft(done, total, elapsed) + " left"
	}
	return line
}

// fraction is done of total, between 0 and 1: a total may have been a guess.
func fraction(done, total int64) float64 {
	return max(0, min(1, float64(done)/float64(total)))
}

// clock prints a duration as m:ss or h:mm:ss.
func clock(d time.Duration) string {
	s := int64(min(d, 1000*time.Hour).Round(time.Second).Seconds())
	if s < 3600 {
		return fmt.Sprintf("%d:%02d", s/60, s%60)
	}
	return fmt.Sprintf("%d:%02d:%02d", s/3600, s/60%60, s%60)
}
