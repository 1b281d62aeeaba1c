package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// What a bar says, at several widths: it never fills the last column, and where it is tight, the bar goes before the words.
func TestProgressBar(t *testing.T) {
	for _, c := range []struct {
		unit        string
		done, total int64
		elapsed     time.Duration
		width       int
		want        string
	}{
		{"rows", 0, 3000, 0, 80, "copy [" + strings.Repeat(" ", 30) + "]   0%, 0 of 3,000 rows, 0/s"},
		{"rows", 1500, 3000, 3 * time.Second, 100, "copy [" + strings.Repeat("=", 15) + strings.Repeat(" ", 15) + "]  50%, 1,500 of 3,000 rows, 500/s, 0:03 left"},
		{"rows", 3000, 3000, 3 * time.Second, 60, "copy [" + strings.Repeat("=", 17) + "] 100%, 3,000 of 3,000 rows, 1,000/s"},
		{"rows", 9000, 3000, 3 * time.Second, 44, "copy 100%, 9,000 of 3,000 rows, 3,000/s"},
		{"rows", 1500, 3000, 3 * time.Second, 30, "copy  50%, 1,500 of 3,000 row"},
		{"rows", 7, 0, 2 * time.Second, 80, "copy 7 rows, 3/s"},
		{"bytes", 1 << 30, 1 << 40, time.Second, 50, "copy   0%, 1 GiB of 1 TiB, 1 GiB/s, 17:03 left"},
		{"rows", 1, 100_000, time.Second, 80, "copy [" + strings.Repeat(" ", 28) + "]   0%, 1 of 100,000 rows, 1/s, 27:46:39 left"},
		{"rows", 1, 100_000, time.Second, 1, ""},
	} {
		got := progressBar("copy", c.unit, c.done, c.total, c.elapsed, c.width)
		if got != c.want {
			t.Errorf("%d of %d at %d columns:\n got %q\nwant %q", c.done, c.total, c.width, got, c.want)
		}
		if len(got) >= max(c.width, 1) {
			t.Errorf("%q would wrap at %d columns", got, c.width)
		}
	}
}

// ticking is a clock that a test moves.
type ticking struct{ at time.Time }

func (c *ticking) now() time.Time { return c.at }

// On a terminal the bar is redrawn in place, goes for what is written meanwhile, comes back below it, and is gone at the end.
func TestProgressTerminal(t *testing.T) {
	master, slave := openTerminal(t)
	clock := &ticking{time.Unix(1000, 0)}
	p := startProgress(slave, "copy", 1000, "rows", clock.now)
	p.set(1) // too early to show
	clock.at = clock.at.Add(time.Second)
	p.set(250)
	p.set(251) // too soon to show again
	fmt.Fprint(p, "a log line\n")
	p.end()
	p.end()
	p.set(1000)
	slave.Close()
	text := readAll(master)
	bar := func(rest string) string { return "\r\x1b[Kcopy [=======" + strings.Repeat(" ", 23) + "]  25%, " + rest }
	want := bar("250 of 1,000 rows, 250/s, 0:03 left") + "\r\x1b[K" + "a log line\r\n" + bar("251 of 1,000 rows, 251/s, 0:03 left") + "\r\x1b[K"
	if text != want {
		t.Errorf("the terminal got\n%q\nwant\n%q", text, want)
	}
}

// Elsewhere a line comes every ten seconds, and nothing moves the cursor.
func TestProgressLines(t *testing.T) {
	f, err := os.Create(filepath.Join(t.TempDir(), "out"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	clock := &ticking{time.Unix(1000, 0)}
	p := startProgress(f, "copy", 0, "rows", clock.now)
	for i := range int64(25) {
		clock.at = clock.at.Add(time.Second)
		p.set(100 * (i + 1))
		if i == 14 {
			p.setTotal(4000)
			fmt.Fprint(p, "a log line\n")
		}
	}
	p.end()
	text, err := os.ReadFile(f.Name())
	if err != nil {
		t.Fatal(err)
	}
	want := "copy 1,000 rows, 100/s\na log line\ncopy  50%, 2,000 of 4,000 rows, 100/s, 0:20 left\n"
	if string(text) != want {
		t.Errorf("the file got\n%q\nwant\n%q", text, want)
	}
}

// openTerminal makes a pseudo-terminal of 100 columns. The caller closes slave.
func openTerminal(t *testing.T) (master, slave *os.File) {
	t.Helper()
	master, err := os.OpenFile("/dev/ptmx", os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { master.Close() })
	number, err := unix.IoctlGetInt(int(master.Fd()), unix.TIOCGPTN)
	if err == nil {
		err = unix.IoctlSetPointerInt(int(master.Fd()), unix.TIOCSPTLCK, 0)
	}
	if err == nil {
		err = unix.IoctlSetWinsize(int(master.Fd()), unix.TIOCSWINSZ, &unix.Winsize{Row: 24, Col: 100})
	}
	if err != nil {
		t.Fatal(err)
	}
	slave, err = os.OpenFile(fmt.Sprintf("/dev/pts/%d", number), os.O_RDWR|syscall.O_NOCTTY, 0)
	if err != nil {
		t.Fatal(err)
	}
	return master, slave
}

// readAll reads what a terminal whose last user has left still holds.
func readAll(master *os.File) string {
	var text strings.Builder
	buffer := make([]byte, 4096)
	for {
		n, err := master.Read(buffer)
		text.Write(buffer[:n])
		if err != nil {
			return text.String() // EIO
		}
	}
}
