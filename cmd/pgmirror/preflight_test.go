package main

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"pgmirror/pgcdc"
)

// What prevents a mirror ends a first start with its fix; the rest is a line of the log each, notes and what the mirror looks at
// itself left out. Once there is a copy, all is logged.
func TestPreflightFindings(t *testing.T) {
	finding := func(level pgcdc.Level, check string) pgcdc.Finding {
		return pgcdc.Finding{Level: level, Check: check, Object: "o-" + check, Problem: "p-" + check, Why: "w", Fix: pgcdc.Fix{SQL: []string{"FIX " + check + ";"}, Restart: true, Advice: "mind " + check}}
	}
	report := &pgcdc.CheckReport{Database: "shop", Findings: []pgcdc.Finding{
		finding(pgcdc.LevelError, "wal_level"), finding(pgcdc.LevelError, "publish"), finding(pgcdc.LevelWarning, "identity"), finding(pgcdc.LevelError, "type"),
		finding(pgcdc.LevelWarning, "publish"), finding(pgcdc.LevelNote, "numeric"), finding(pgcdc.LevelWarning, "slot_active"), finding(pgcdc.LevelWarning, "slot_unreserved"),
	}}
	err := prevented(report)
	if err == nil {
		t.Fatal("it was taken")
	}
	for _, want := range []string{"not ready: 2 errors\n", "\no-wal_level: p-wal_level [wal_level]\n", "in database shop):\n    FIX wal_level;\n  then restart the server\n", "    FIX publish;\n", "`pgmirror check`"} {
		if !strings.Contains(err.Error(), want) {
			t.Errorf("%q is not in\n%s", want, err)
		}
	}
	if strings.Contains(err.Error(), "type") || strings.Contains(err.Error(), "identity") {
		t.Errorf("%s", err)
	}
	report.Findings = report.Findings[2:]
	if err := prevented(report); err != nil {
		t.Error(err)
	}
	report.Findings = append(report.Findings, finding(pgcdc.LevelError, "wal_level"))
	for all, want := range map[bool][]string{false: {"identity", "type", "publish", "slot_unreserved"}, true: {"identity", "type", "publish", "slot_unreserved", "wal_level"}} {
		var out bytes.Buffer
		logFindings(report, all, slog.New(slog.NewTextHandler(&out, nil)))
		var got []string
		for line := range strings.Lines(out.String()) {
			_, rest, _ := strings.Cut(line, " check=")
			check, _, _ := strings.Cut(rest, " ")
			got = append(got, check)
			if !strings.Contains(line, "level=WARN") || !strings.Contains(line, "object=o-"+check) || !strings.Contains(line, "FIX "+check+"; restart the server mind "+check) {
				t.Errorf("%s", line)
			}
		}
		if !slices.Equal(got, want) {
			t.Errorf("all %v: %q, want %q", all, got, want)
		}
	}
}

// What is wrong with a source that does not answer at the start is logged when it does.
func TestCheckLater(t *testing.T) {
	var out strings.Builder
	asked := 0
	logged := make(chan struct{})
	wait := checkLater(t.Context(), func(context.Context) (*pgcdc.CheckReport, error) {
		if asked++; asked == 1 {
			return nil, errors.New("it does not answer")
		}
		defer close(logged)
		return &pgcdc.CheckReport{Findings: []pgcdc.Finding{{Level: pgcdc.LevelError, Check: "wal_level", Problem: "wal_level is replica"}}}, nil
	}, time.Millisecond, time.Millisecond, slog.New(slog.NewTextHandler(&out, nil)))
	<-logged
	wait()
	if asked != 2 || !strings.Contains(out.String(), "check: wal_level is replica") {
		t.Errorf("asked %d times: %s", asked, out.String())
	}
}
