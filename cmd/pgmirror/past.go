package main

import (
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/jackc/pglogrepl"

	"pgmirror/mirror"
	"pgmirror/readstate"
)

// pastForms are the layouts of a time that is no LSN. One without a zone is UTC, as everything that sql prints.
var pastForms = []string{"2006-01-02 15:04:05.999999999Z07", "2006-01-02 15:04:05.999999999Z07:00", time.RFC3339Nano,
	"2006-01-02 15:04:05.999999999", "2006-01-02T15:04:05.999999999", "2006-01-02 15:04", "2006-01-02T15:04", "2006-01-02"}

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
// common cut, which does not expire while it is read. When the mirror that runs ends, it does no longer hold it.
type pastStates struct {
	readStates
	data string
}

func (p *pastStates) Pin(ctx context.Context, request readstate.PinRequest) (*readstate.State, error) {
	state, err := p.readStates.Pin(ctx, request)
	if !errors.Is(err, readstate.ErrOutsideWindow) || request.Changes != nil || request.At == 0 && request.AtTime.IsZero() {
		return state, err
	}
	if request.At == 0 { // its LSN must be known before it can be held
		found, older := p.committed(ctx, request)
		if older != nil {
			return nil, fmt.Errorf("%w; %w", err, older)
		}
		request.At, request.AtTime = found.LSN, time.Time{}
	}
	release, holdErr := p.hold(ctx, request.At)
	if holdErr != nil {
		return nil, fmt.Errorf("keep the checkpoint at %s while it is read: %w", request.At, holdErr)
	}
	state, older := p.committed(ctx, request)
	if older != nil {
		release()
		return nil, fmt.Errorf("%w; %w", err, older)
	}
	state.Release = release
	return state, nil
}

// committed reads the catalog as it is now.
func (p *pastStates) committed(ctx context.Context, request readstate.PinRequest) (*readstate.State, error) {
	committed, err := openCommitted(ctx, p.data)
	if err != nil {
		return nil, err
	}
	defer committed.Close() // its states stay valid
	state, err := committed.Pin(ctx, request)
	if err != nil {
		return nil, fmt.Errorf("of what lies before: %w", err)
	}
	return state, nil
}

// hold lets the running mirror keep what shows an LSN until release, over a connection of its own.
func (p *pastStates) hold(ctx context.Context, at readstate.LSN) (release func(), err error) {
	args, err := json.Marshal(mirror.HoldRequest{LSN: at.String()})
	if err != nil {
		return nil, err
	}
	client, err := readstate.Dial(ctx, p.data)
	if err != nil {
		return nil, err
	}
	held := make(chan error, 2)
	go func() {
		_, err := client.Call(context.WithoutCancel(ctx), "hold", args, func(string) { held <- nil })
		held <- err
	}()
	select {
	case err = <-held:
	case <-ctx.Done():
		err = ctx.Err()
	}
	if err != nil {
		client.Close()
		return nil, err
	}
	return func() { client.Close() }, nil
}
