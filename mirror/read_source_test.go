package mirror

import (
	"errors"
	"strings"
	"testing"
	"time"

	"pgmirror/readstate"
)

// TestWaitForSource: a read that waits for the source waits for a lost connection too, as long as it was told to, and then says why.
func TestWaitForSource(t *testing.T) {
	b := newBank(1)
	b.live(t, func(m *Mirror) {
		m.setState("reconnecting", "the cable is cut")
		_, err := m.Pin(t.Context(), readstate.PinRequest{WaitSource: true, Timeout: 30 * time.Millisecond})
		if !errors.Is(err, ErrNotConnected) || !strings.Contains(err.Error(), "timed out after 30ms") || !strings.Contains(err.Error(), "the cable is cut") {
			t.Errorf("without a source: %v", err)
		}
		b.transfer()
		mended := time.AfterFunc(50*time.Millisecond, func() { m.setState("streaming", "") })
		defer mended.Stop()
		st, err := m.Pin(t.Context(), readstate.PinRequest{WaitSource: true})
		if err != nil {
			t.Fatal(err)
		}
		defer st.Release()
		if st.LSN < b.source.end() {
			t.Errorf("the read is at %s, the source at %s", st.LSN, b.source.end())
		}
		m.setState("refused", "another server")
		began := time.Now()
		if _, err := m.Pin(t.Context(), readstate.PinRequest{WaitSource: true}); !errors.Is(err, ErrNotConnected) || time.Since(began) > readstate.DefaultWait/2 {
			t.Errorf("of a source that is refused: %v after %s", err, time.Since(began))
		}
		m.setState("streaming", "")
	})
}
