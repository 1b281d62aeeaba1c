package main

import (
	"encoding/json"
	"fmt"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"

	"pgmirror/mirror"
)

// statusScreen renders the document of `status --json` for people: what the mirror does, how far it is, its tables.
func statusScreen(document []byte) (string, error) {
	var s mirror.Status
	if err := json.Unmarshal(document, &s); err != nil {
		return "", fmt.Errorf("read status: %w", err)
	}
	var b strings.Builder
	fmt.Fprintf(&b, "pgmirror %s: %s", s.Version, s.State)
	if s.Reason != "" {
		fmt.Fprintf(&b, " (%s)", oneLine(s.Reason))
	}
	fmt.Fprintf(&b, "\nslot %s, publication %s, system %s, timeline %d\n\n", s.Slot, strings.Join(s.Publications, ", "), s.SystemID, s.Timeline)

	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintf(w, "received\t%s\tfreshness\t%s\n", s.ReceivedLSN, freshness(&s))
	fmt.Fprintf(w, "applied\t%s\tWAL kept by the slot\t%s\n", s.AppliedLSN, size(s.SlotRetainedBytes))
	fmt.Fprintf(w, "visible\t%s\tlast checkpoint\t%s\n", s.VisibleLSN, checkpoint(&s))
	fmt.Fprintf(w, "durable\t%s\tmemory\t%s of %s\n", s.DurableLSN, size(s.Memory.Batches+s.Memory.MemIndex+s.Memory.Visibility), size(s.Memory.Limit))
	fmt.Fprintf(w, "acknowledged\t%s\topen read states\t%d\n", s.AcknowledgedLSN, s.Readers)
	fmt.Fprintf(w, "catalogue\t%s\twindow from\t%s\n\n", s.CatalogLSN, s.WindowFloorLSN)
	if err := w.Flush(); err != nil {
		return "", err
	}
	if err := tableOfTables(&s).writeTo(&b); err != nil {
		return "", err
	}
	writeFaults(&b, &s)
	return b.String(), nil
}

func tableOfTables(s *mirror.Status) *textTable {
	t := &textTable{}
	t.column("table", false)
	t.column("state", false)
	for _, name := range []string{"rows", "files", "size", "rows in memory", "dead rows"} {
		t.column(name, true)
	}
	for _, table := range s.Tables {
		state := table.State
		if table.InsertOnly {
			state += ", insert only"
		}
		if table.State == "copying" {
			state += fmt.Sprintf(" (%s rows)", count(table.CopiedRows))
		}
		t.row(table.Name, state, count(table.Rows), strconv.Itoa(table.Files), size(table.Bytes), count(table.MemoryRows), count(table.DeletedRows))
	}
	return t
}

// writeFaults lists what stopped a table and what to do, and values that were stored as NULL.
func writeFaults(b *strings.Builder, s *mirror.Status) {
	for _, t := range s.Tables {
		if t.Unrepresentable > 0 {
			fmt.Fprintf(b, "\n%s: %s values could not be represented and are NULL\n", oneLine(t.Name), count(t.Unrepresentable))
		}
		if t.Error == "" {
			continue
		}
		fmt.Fprintf(b, "\n%s: %s\n", oneLine(t.Name), oneLine(t.Error))
		for _, part := range [][2]string{{"at", t.ErrorLSN}, {"key", t.ErrorKey}, {"column", t.ErrorCol}, {"remedy", t.Remedy}} {
			if part[1] != "" {
				fmt.Fprintf(b, "  %s: %s\n", part[0], oneLine(part[1]))
			}
		}
	}
}

func freshness(s *mirror.Status) string {
	if s.LastCommitTime == "" {
		return "no commit yet"
	}
	return fmt.Sprintf("%s (newest commit %s)", seconds(s.FreshnessSeconds), s.LastCommitTime)
}

func checkpoint(s *mirror.Status) string {
	if s.LastCheckpoint == "" {
		return "none yet"
	}
	return fmt.Sprintf("%s, took %s", s.LastCheckpoint, seconds(s.CheckpointSeconds))
}

func seconds(s float64) string {
	d := time.Duration(s * float64(time.Second))
	switch {
	case d < time.Second:
		return d.Round(100 * time.Microsecond).String()
	case d < time.Minute:
		return d.Round(10 * time.Millisecond).String()
	}
	return d.Round(time.Second).String()
}

// size prints bytes with three digits, in units of 1024.
func size(bytes int64) string {
	if bytes < 1024 {
		return fmt.Sprintf("%d B", bytes)
	}
	f, unit := float64(bytes), -1
	for f >= 1024 && unit < 4 {
		f, unit = f/1024, unit+1
	}
	return fmt.Sprintf("%.3g %ciB", f, "KMGTP"[unit])
}

// count groups digits by three: 12,345,678.
func count(n int64) string {
	text := fmt.Sprint(n)
	sign := ""
	if n < 0 {
		sign, text = "-", text[1:]
	}
	for i := len(text) - 3; i > 0; i -= 3 {
		text = text[:i] + "," + text[i:]
	}
	return sign + text
}

// oneLine keeps names and reasons, which others chose, from moving the cursor or forging lines on a terminal.
func oneLine(text string) string {
	return strings.Map(func(r rune) rune {
		if r < ' ' || r == 0x7f || (r >= 0x80 && r < 0xa0) {
			return ' '
		}
		return r
	}, text)
}
