package readstate

import (
	"bytes"
	"errors"
	"fmt"
	"log/slog"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// However many clients are cut off, the log gets a line a minute, and every one of them is counted in some line.
func TestCutOffsAreCounted(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var out bytes.Buffer
		c := &cutOffs{log: slog.New(slog.NewTextHandler(&out, nil))}
		const clients = 256
		for range clients { // 10 s apart
			c.report(errors.New("i/o timeout"))
			time.Sleep(10 * time.Second)
		}
		c.end()
		c.end()
		lines := strings.Split(strings.TrimSpace(out.String()), "\n")
		if want := (clients+5)/6 + 1; len(lines) != want {
			t.Fatalf("%d lines, want %d", len(lines), want)
		}
		counted := 0
		for i, line := range lines {
			var n int
			if _, err := fmt.Sscanf(line[strings.Index(line, "since_last_line="):], "since_last_line=%d", &n); err != nil {
				t.Fatalf("%s: %v", line, err)
			}
			counted += n
			if i < len(lines)-1 {
				counted++ // the client of the line itself
			}
		}
		if counted != clients {
			t.Errorf("%d clients counted, want %d", counted, clients)
		}
	})
}
