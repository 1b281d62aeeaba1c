package pgcdc

import "time"

// SetSlotNotice shortens the time after which a slot that waits is worth a word in the log.
func (s *Source) SetSlotNotice(d time.Duration) { s.slotNotice = d }
