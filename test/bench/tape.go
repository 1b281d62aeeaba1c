package main

import (
	"bufio"
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"strings"

	"github.com/jackc/pglogrepl"
	"golang.org/x/sys/unix"

	"pgmirror/pgcdc"
	"pgmirror/test/harness"
)

// capture is a recorded stream: pgoutput messages, each after its length in four bytes, little endian. The file is mapped, so
// that it does not count as Go's memory and the collector runs as often as it would without it.
type capture struct {
	data    []byte
	rows    int           // row changes in it
	created int           // row versions that they create: all but the deletions
	commits int           // transactions in it
	end     pglogrepl.LSN // of the last one
}

// recordTape writes what a slot sends up to the first commit that ends at or after an LSN.
func recordTape(ctx context.Context, pg *harness.Postgres, slot, path string, until pglogrepl.LSN) (c *capture, err error) {
	f, err := os.Create(path)
	if err != nil {
		return nil, err
	}
	defer func() { err = errors.Join(err, f.Close()) }()
	w := bufio.NewWriterSize(f, 1<<20)
	c = &capture{}
	var length [4]byte
	err = receive(ctx, pg, slot, func(message []byte) bool {
		binary.LittleEndian.PutUint32(length[:], uint32(len(message)))
		w.Write(length[:]) // its error stays with w
		w.Write(message)
		end, _, ok := commitOf(message)
		if ok {
			c.end = end
			c.commits++
		} else if len(message) > 0 && strings.IndexByte("IUD", message[0]) >= 0 {
			c.rows++
			if message[0] != 'D' {
				c.created++
			}
		}
		return !ok || end < until
	})
	if err := errors.Join(err, w.Flush()); err != nil {
		return nil, fmt.Errorf("record slot %s: %w", slot, err)
	}
	info, err := f.Stat()
	if err != nil {
		return nil, err
	}
	c.data, err = unix.Mmap(int(f.Fd()), 0, int(info.Size()), unix.PROT_READ, unix.MAP_SHARED)
	return c, err
}

func (c *capture) close() error { return unix.Munmap(c.data) }

// decode assembles the transactions and hands each to take, whose it is.
func (c *capture) decode(take func(*pgcdc.Transaction) error) error {
	replay := pgcdc.NewReplay("", 0)
	for rest := c.data; len(rest) > 0; {
		n := binary.LittleEndian.Uint32(rest)
		tx, err := replay.Message(rest[4 : 4+n])
		if err != nil {
			return err
		}
		if tx != nil {
			if err := take(tx); err != nil {
				return err
			}
		}
		rest = rest[4+n:]
	}
	return nil
}
