package mirror

import (
	"context"
	"fmt"
	"time"
)

// Copied says whether the first copy was finished, so that there is something to compare with the source.
func (s *Stored) Copied() bool { return s.doc.Phase == phaseStreaming }

// WaitStreaming waits until a mirror that Run has just started follows its source and answers reads. It does not wait for a
// source that cannot be reached: that is an error.
func (m *Mirror) WaitStreaming(ctx context.Context) error {
	for {
		switch st := m.shared.get(); {
		case st.state == "streaming" && st.opened:
			return nil
		case st.state == "refused" || st.state == "reconnecting":
			return fmt.Errorf("%w: %s", ErrNotConnected, standing(st))
		}
		select {
		case <-ctx.Done():
			return context.Cause(ctx)
		case <-time.After(streamingPause):
		}
	}
}

// streamingPause is the time between two looks at whether the stream has begun.
const streamingPause = 20 * time.Millisecond
