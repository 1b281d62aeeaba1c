package pgcdc

import (
	"encoding/binary"
	"time"
)

// statusSize is a standby status update in its CopyData: 'd', length, 'r', three LSNs, a time, and whether to reply.
const statusSize = 1 + 4 + 1 + 3*8 + 8 + 1

// appendStatus appends a standby status update. All three positions are written as they are given (a zero one too):
// the server moves the slot to flushed. Applied is what we make visible, and for us that is what we have flushed.
// https://www.postgresql.org/docs/current/protocol-replication.html
func appendStatus(to []byte, written, flushed LSN, now time.Time, reply bool) []byte {
	to = append(to, 'd')
	to = binary.BigEndian.AppendUint32(to, statusSize-1)
	to = append(to, 'r')
	to = binary.BigEndian.AppendUint64(to, uint64(written))
	to = binary.BigEndian.AppendUint64(to, uint64(flushed))
	to = binary.BigEndian.AppendUint64(to, uint64(flushed))
	to = binary.BigEndian.AppendUint64(to, uint64(now.UnixMicro()-postgresEpoch*1e6))
	if reply {
		return append(to, 1)
	}
	return append(to, 0)
}

// Acknowledge tells the server, with the next status, that everything up to lsn is durable here. It never goes back.
func (s *Source) Acknowledge(lsn LSN) {
	if !raise(&s.acknowledged, lsn) {
		return
	}
	select {
	case s.wake <- struct{}{}:
	default: // one that waits already tells the newest
	}
}

// Received is the end of the WAL that has arrived: of commits, of the messages of an open transaction, and of keepalives.
func (s *Source) Received() LSN { return LSN(s.received.Load()) }
