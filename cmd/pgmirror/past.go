package main

import (
	"context"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"

	"pgmirror/readstate"
)

// pastForms are the layouts of a time that is no LSN. One without a zone is UTC, as everything that sql prints.
var pastForms = []string{"2006-01-02 15:04:05.999999999Z07", "2006-01-02 15:04:05.999999999Z07:00", time.RFC3339Nano,
	"2006-01-02 15:04:05.999999999", "2006-01-02T15:04:05.999999999", "2006-01-02"}

// parsePast reads what --at and .pin take: an LSN, a time, or how long ago, as -5m.
func parsePast(text string, now time.Time) (at readstate.LSN, t time.Time, err error) {
	if strings.Contains(text, "/") {
		if at, err = pglogrepl.ParseLSN(text); err == nil && at > 0 {
			return at, t, nil
		}
	} else if ago, ok := strings.CutPrefix(text, "-"); ok {
		if d, err := time.ParseDuration(ago); err == nil && d >= 0 && ago[0] != '-' && ago[0] != '+' {
			return 0, now.Add(-d), nil
		}
	} else {
		for _, form := range pastForms {
			if t, err := time.Parse(form, text); err == nil {
				return 0, t, nil
			}
		}
	}
	return 0, time.Time{}, fmt.Errorf("%q is not an LSN such as 16/B374D848, a time such as '2026-11-30 10:00:00+00', or how long ago, such as -5m", text)
}

// pastStates reads a running mirror, and what has left its window from the retained checkpoints: there each table shows its last snapshot before one
// common cut. While such a state is read nothing holds its files but that the snapshots are retained; one that is gone meanwhile is an error that names the file.
type pastStates struct {
	readStates
	data string
}

func (p *pastStates) Pin(ctx context.Context, request readstate.PinRequest) (*readstate.State, error) {
	state, err := p.readStates.Pin(ctx, request)
	if !errors.Is(err, readstate.ErrOutsideWindow) || request.Changes != nil || request.At == 0 && request.AtTime.IsZero() {
		return state, err
	}
	committed, openErr := openCommitted(ctx, p.data)
	if openErr != nil {
		return nil, fmt.Errorf("%w; %w", err, openErr)
	}
	defer committed.Close() // its states stay valid
	state, older := committed.Pin(ctx, request)
	if older != nil {
		return nil, fmt.Errorf("%w; of what lies before: %w", err, older)
	}
	return state, nil
}
