package main

import (
	"context"
	"errors"
	"fmt"
	"sync"

	"pgmirror/readstate"
)

// liveSource is the read states of the mirror that runs on a data directory, also when it is started again: a connection that
// was lost is dialled again for the next statement. While none runs, statements over mirrored tables fail: states of an older
// checkpoint in their place would go back in time.
type liveSource struct {
	data   string
	notice func(string)

	mu     sync.Mutex // guards client
	client *readstate.Client
}

// connection is the one there is, or a new one after that was lost.
func (l *liveSource) connection(ctx context.Context) (*readstate.Client, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	select {
	case <-l.client.Done():
	default:
		return l.client, nil
	}
	client, err := readstate.Dial(ctx, l.data)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", readstate.ErrLost, err)
	}
	l.client.Close()
	l.client = client
	l.notice("The connection to the running pgmirror was lost and is there again.")
	return client, nil
}

// Pin dials again when the connection turns out to be lost, once: a new one that is lost at once is an error.
func (l *liveSource) Pin(ctx context.Context, request readstate.PinRequest) (*readstate.State, error) {
	for again := false; ; again = true {
		client, err := l.connection(ctx)
		if err != nil {
			return nil, err
		}
		state, err := client.Pin(ctx, request)
		if again || !errors.Is(err, readstate.ErrLost) {
			return state, err
		}
	}
}

func (l *liveSource) SearchPath() []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.client.SearchPath()
}

func (l *liveSource) Status(ctx context.Context) ([]byte, error) {
	client, err := l.connection(ctx)
	if err != nil {
		return nil, err
	}
	return client.Status(ctx)
}

func (l *liveSource) Close() error {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.client.Close()
}
