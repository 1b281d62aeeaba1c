package pgcdc

import "time"

// SetSlotNotice shortens the time after which a slot that waits is worth a word in the log.
func (s *Source) SetSlotNotice(d time.Duration) { s.slotNotice = d }

// SampleHash is sampleHash.
func SampleHash(text []byte) uint64 { return sampleHash(text) }
