package main

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
	"unicode/utf8"

	"pgmirror/mirror"
)

// screenSize is what a status screen must fit into, in characters and lines; 0 is without bound.
type screenSize struct{ width, height int }

// statusScreen renders the document of `status --json` without bounds.
func statusScreen(document []byte) (string, error) {
	return fittedScreen(document, time.Now(), screenSize{})
}

// fittedScreen renders the document of `status --json` for people: what the mirror does, how far it is, its tables, and what
// is wrong with them. When the tables do not fit, those that do not stream come first, and a line says how many are left out.
func fittedScreen(document []byte, now time.Time, size screenSize) (string, error) {
	var s mirror.Status
	if err := json.Unmarshal(document, &s); err != nil {
		return "", fmt.Errorf("read status: %w", err)
	}
	head, faults := headLines(&s, now, size.width > 0 && size.width < twoColumns), faultLines(&s)
	tables, left := slices.DeleteFunc(slices.Clone(s.Tables), isGone), 0
	if room := size.height - len(head) - len(faults) - 4; size.height > 0 && len(tables) > max(room, 1) { // an empty line, the table's head, the line below it
		slices.SortStableFunc(tables, func(a, b mirror.TableStatus) int { return streamsLast(a) - streamsLast(b) })
		tables, left = tables[:max(room, 1)], len(tables)-max(room, 1)
	}
	var table bytes.Buffer
	if err := tableOfTables(tables).fit(size.width).writeTo(&table); err != nil {
		return "", err
	}
	lines := append(head, "")
	lines = append(lines, strings.Split(strings.TrimRight(table.String(), "\n"), "\n")...)
	if left > 0 {
		lines = append(lines, fmt.Sprintf("… and %s", plural(left, "more table")))
	}
	var fitted []string
	for _, line := range append(lines, faults...) {
		fitted = append(fitted, wrap(line, size.width)...)
	}
	if size.height > 0 && len(fitted) > size.height {
		fitted = append(fitted[:size.height-1], "…")
	}
	return strings.Join(fitted, "\n") + "\n", nil
}

func isGone(t mirror.TableStatus) bool { return t.State == "gone" }

func streamsLast(t mirror.TableStatus) int {
	if t.State == "streaming" {
		return 1
	}
	return 0
}

// twoColumns is the width from which the figures of the whole mirror stand in two columns.
const twoColumns = 76

// headLines are what holds for the whole mirror.
func headLines(s *mirror.Status, now time.Time, narrow bool) []string {
	title := fmt.Sprintf("pgmirror %s: %s", s.Version, s.State)
	switch {
	case s.State == "stopped" && s.Reason != "":
		title = "pgmirror is not running; " + oneLine(s.Reason)
	case s.State == "stopped":
		title = "pgmirror is not running; this is what its last checkpoint left"
	case s.Reason != "":
		title += " (" + oneLine(s.Reason) + ")"
	}
	names := make([]string, len(s.Publications))
	for i, name := range s.Publications {
		names[i] = oneLine(name)
	}
	whose := fmt.Sprintf("slot %s, publication %s", s.Slot, strings.Join(names, ", "))
	if s.VisibleLSN == "" { // nothing can be read yet, so there is nothing to measure
		return []string{title, whose}
	}
	lines := []string{title, fmt.Sprintf("%s, system %s, timeline %d", whose, s.SystemID, s.Timeline)}
	if s.OnUnrepresentable == "null" {
		lines = append(lines, "values that cannot be represented become NULL (on_unrepresentable)")
	}
	lines = append(lines, "")

	files, bytes, vectors := 0, int64(0), 0
	for _, t := range s.Tables {
		files, bytes, vectors = files+t.Files, bytes+t.Bytes, vectors+t.Vectors
	}
	var b strings.Builder
	w := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	between := "\t"
	if narrow {
		between = "\n"
	}
	for _, row := range [][4]string{
		{"received", s.ReceivedLSN, "lag", lag(s)},
		{"applied", s.AppliedLSN, "freshness", freshness(s, now)},
		{"visible", s.VisibleLSN, "WAL kept by the slot", keptWAL(s)},
		{"durable", s.DurableLSN, "last checkpoint", checkpoint(s, now)},
		{"acknowledged", s.AcknowledgedLSN, "memory", memoryUse(s)},
		{"catalogue", s.CatalogLSN, "files", fmt.Sprintf("%s, %s, %s", count(int64(files)), size(bytes), plural(vectors, "deletion vector"))},
		{"window from", strings.TrimSpace(s.WindowFloorLSN + " " + s.WindowFloorTime), "open read states", openReads(s)},
	} {
		fmt.Fprintf(w, "%s\t%s%s%s\t%s\n", row[0], row[1], between, row[2], row[3])
	}
	w.Flush() // to a strings.Builder, which takes everything
	return append(lines, strings.Split(strings.TrimRight(b.String(), "\n"), "\n")...)
}

func tableOfTables(tables []mirror.TableStatus) *textTable {
	t := &textTable{}
	t.column("table", false)
	t.column("state", false)
	for _, name := range []string{"rows", "files", "size", "vectors", "rows in memory", "dead rows"} {
		t.column(name, true)
	}
	for _, table := range tables {
		state := table.State
		if table.InsertOnly {
			state += ", insert only"
		}
		if table.State == "copying" || table.State == "resyncing" {
			state += fmt.Sprintf(" (%s rows)", count(table.CopiedRows))
		}
		t.row(table.Name, state, count(table.Rows), strconv.Itoa(table.Files), size(table.Bytes), strconv.Itoa(table.Vectors), count(table.MemoryRows), count(table.DeletedRows))
	}
	return t
}

// faultLines list what the slot keeps too much, what stopped a table and what to do, values that were stored as NULL, what the configuration makes of columns, and last, a line
// each, the tables that are gone.
func faultLines(s *mirror.Status) (lines []string) {
	if s.SlotWarning != "" {
		lines = append(lines, "", oneLine(s.SlotWarning))
	}
	var gone []string
	for _, t := range s.Tables {
		if isGone(t) {
			line := fmt.Sprintf("%s is gone from the source since %s", oneLine(t.Name), t.ErrorLSN)
			if t.DurableLSN != "0/0" {
				line += ": read it with --at " + t.DurableLSN + ", or"
			} else {
				line += ":"
			}
			gone = append(gone, line+" remove it with pgmirror forget")
			continue
		}
		if t.Unrepresentable > 0 {
			lines = append(lines, "", fmt.Sprintf("%s: %s values could not be represented and are NULL", oneLine(t.Name), count(t.Unrepresentable)))
		}
		if t.Resync != "" {
			lines = append(lines, "", oneLine(t.Name)+" is copied: "+oneLine(t.Resync))
		}
		if t.ResyncWaits != "" {
			lines = append(lines, "  waits: "+oneLine(t.ResyncWaits))
		}
		if t.Error == "" {
			continue
		}
		lines = append(lines, "", oneLine(t.Name)+": "+oneLine(t.Error))
		for _, part := range [][2]string{{"at", t.ErrorLSN}, {"key", t.ErrorKey}, {"column", t.ErrorCol}, {"remedy", t.Remedy}} {
			if part[1] != "" {
				lines = append(lines, "  "+part[0]+": "+oneLine(part[1]))
			}
		}
	}
	for _, t := range s.Tables {
		if len(t.Types) > 0 {
			var types []string
			for _, column := range slices.Sorted(maps.Keys(t.Types)) {
				types = append(types, oneLine(column)+" "+oneLine(t.Types[column]))
			}
			lines = append(lines, "", oneLine(t.Name)+": by the setting types: "+strings.Join(types, ", "))
		}
	}
	if len(gone) > 0 {
		lines = append(append(lines, ""), gone...)
	}
	return lines
}

func lag(s *mirror.Status) string {
	text := size(s.LagBytes) + ", " + seconds(s.LagSeconds)
	switch {
	case s.State == "stopped":
		return "nothing follows the source"
	case s.State != "streaming":
		return "at least " + text
	case s.LagBytes == 0:
		return "none"
	}
	return text
}

func freshness(s *mirror.Status, now time.Time) string {
	if s.LastCommitTime == "" {
		return "no commit yet"
	}
	newest := "newest commit " + ago(s.LastCommitTime, now)
	if s.State == "stopped" {
		return newest
	}
	return seconds(s.FreshnessSeconds) + ", " + newest
}

func keptWAL(s *mirror.Status) string {
	text := size(s.SlotRetainedBytes)
	switch s.SlotWALStatus {
	case "":
		return "not known now"
	case "unreserved":
		text += ", about to be LOST: max_slot_wal_keep_size"
	case "lost":
		text += ", LOST"
	}
	return text
}

func checkpoint(s *mirror.Status, now time.Time) string {
	if s.LastCheckpoint == "" {
		return "none yet"
	}
	if s.State == "stopped" || s.CheckpointSeconds == 0 { // the first copy ends with one that is not timed
		return ago(s.LastCheckpoint, now)
	}
	return ago(s.LastCheckpoint, now) + ", took " + seconds(s.CheckpointSeconds)
}

func memoryUse(s *mirror.Status) string {
	if s.State == "stopped" {
		return "none"
	}
	text := size(s.Memory.Batches+s.Memory.MemIndex+s.Memory.Visibility) + " of " + size(s.Memory.Limit)
	if s.Memory.FileIndex > 0 {
		text += ", mapped indexes " + size(s.Memory.FileIndex)
	}
	return text
}

func openReads(s *mirror.Status) string {
	text := strconv.Itoa(s.Readers)
	if s.SettledReaders > 0 {
		text += fmt.Sprintf(", %d settled (%s)", s.SettledReaders, size(s.SettledBytes))
	}
	return text
}

// ago is how long ago a time of the document was, and the time itself when it cannot be read.
func ago(moment string, now time.Time) string {
	at, err := time.Parse(time.RFC3339, moment)
	if err != nil {
		return oneLine(moment)
	}
	return max(0, now.Sub(at)).Round(time.Second).String() + " ago"
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
	for f >= 999.5 { // from there on %.3g would write an exponent
		f, unit = f/1024, unit+1
	}
	return fmt.Sprintf("%.3g %ciB", f, "KMGTPE"[unit])
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

// wrap breaks a line at spaces so that each part has at most width characters; what is longer by itself is cut off. Parts
// after the first are indented.
func wrap(line string, width int) []string {
	if width <= 0 || utf8.RuneCountInString(line) <= width {
		return []string{line}
	}
	const indent = "    "
	var parts []string
	current := ""
	for i, word := range strings.SplitAfter(line, " ") {
		if i > 0 && utf8.RuneCountInString(current)+utf8.RuneCountInString(strings.TrimRight(word, " ")) > width && strings.TrimSpace(current) != "" {
			parts = append(parts, cut(strings.TrimRight(current, " "), width))
			current = indent
		}
		current += word
	}
	return append(parts, cut(strings.TrimRight(current, " "), width))
}

// cut shortens text to a number of characters, the last of which then says so; 0 leaves it.
func cut(text string, width int) string {
	if width <= 0 || utf8.RuneCountInString(text) <= width {
		return text
	}
	return string([]rune(text)[:width-1]) + "…"
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
