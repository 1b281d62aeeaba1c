package pgcdc

import "time"

// SetSlotNotice shortens the time after which a slot that waits is worth a word in the log.
func (s *Source) SetSlotNotice(d time.Duration) { s.slotNotice = d }

// SetPatience shortens how long a kept connection has to answer, and how long a look may take.
func (s *Source) SetPatience(ping, look time.Duration) { s.idle.patience, s.lookTime = ping, look }

// SampleHash is sampleHash.
func SampleHash(text []byte) uint64 { return sampleHash(text) }
