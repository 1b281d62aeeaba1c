package mirror

import (
	"errors"
	"testing"

	"pgmirror/pgcdc"
)

// TestSlotMadeLate: a life that died while its request for the slot was on the way leaves a slot that the server makes only after
// the next life has dropped it. That life makes its own all the same; one that stored no intent before leaves the slot alone.
func TestSlotMadeLate(t *testing.T) {
	w := filled(t)
	late := func() func(string) error {
		first := true
		return func(call string) error {
			if call == "create slot" && first {
				first = false
				return pgcdc.ErrSlotExists
			}
			return nil
		}
	}
	w.source.fault = late()
	if err := w.firstLife(); !errors.Is(err, pgcdc.ErrSlotExists) {
		t.Fatalf("a slot that is somebody else's: %v", err)
	}
	w.source.fault = late()
	w.check(w.firstLife())
	w.source.fault = nil
	w.start()
	w.end()
}
