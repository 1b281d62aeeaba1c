package main

import (
	"encoding/binary"
	"testing"
	"time"

	"pgmirror/pgcdc"
)

// syntheticTape is a stream of transactions of one inserted row each.
func syntheticTape(transactions int) *capture {
	c := &capture{rows: transactions, commits: transactions}
	be := binary.BigEndian
	add := func(message []byte) {
		c.data = append(binary.LittleEndian.AppendUint32(c.data, uint32(len(message))), message...)
	}
	relation := append(be.AppendUint32([]byte{'R'}, 1), "public\x00t\x00d\x00\x01\x01id\x00"...)
	add(be.AppendUint32(be.AppendUint32(relation, 23), 0xFFFFFFFF)) // one int4
	for i := range transactions {
		at, end := uint64(100*i+50), uint64(100*i+100)
		add(be.AppendUint32(be.AppendUint64(be.AppendUint64([]byte{'B'}, at), 0), uint32(i+1)))
		add(append(append(be.AppendUint32([]byte{'I'}, 1), "N\x00\x01b\x00\x00\x00\x04"...), 0, 0, 0, byte(i)))
		add(be.AppendUint64(be.AppendUint64(be.AppendUint64([]byte{'C', 0}, at), end), 0))
	}
	return c
}

// A tape that is paced gives every transaction, spends as long at each rate, and is never faster than it.
func TestPace(t *testing.T) {
	const transactions, length = 300, 100 * time.Millisecond // 1,000 a second and then 2,000
	taken := 0
	began := time.Now()
	parts, err := syntheticTape(transactions).pace([]float64{1, 2}, func(tx *pgcdc.Transaction) error {
		taken++
		tx.Release()
		return nil
	})
	if err != nil {
		t.Fatal(err)
	}
	if took := time.Since(began); taken != transactions || took < 2*length*9/10 {
		t.Errorf("%d transactions in %s, want %d in %s", taken, took, transactions, 2*length)
	}
	if len(parts) != 2 || parts[0].rate > 1.05 || parts[1].rate > 2.1 || parts[0].rate <= 0 || parts[1].rate <= 0 || parts[0].cpu < 0 {
		t.Errorf("the rates were %v, want at most 1 and 2 thousand a second", parts)
	}
}
