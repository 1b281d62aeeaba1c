package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"pgmirror/deletion"
	"pgmirror/mirror"
	"pgmirror/readstate"
)

// visibilityBits is what visibility takes in memory, in bits for each live row.
func visibilityBits(st *mirror.Status) float64 {
	live := int64(0)
	for _, t := range st.Tables {
		live += t.Rows
	}
	return float64(st.Memory.Visibility) * 8 / float64(live)
}

// visibilityOf asks a mirror for them.
func visibilityOf(ctx context.Context, client *readstate.Client) (float64, error) {
	st, err := statusOf(ctx, client)
	if err != nil {
		return 0, err
	}
	return visibilityBits(st), nil
}

// foldedAfter is when a mirror has folded whatever was deleted: it does so every minute.
const foldedAfter = 65 * time.Second

func bitsPerRow(v float64) string { return fmt.Sprintf("%.3f bits/row", v) }

// storedVector is one of a read state's, in a file of its own.
type storedVector struct {
	path   string
	vector *deletion.Vector
}

// vectorsOf are the deletion vectors of a state's files, to be stored in dir, and the files' rows.
func vectorsOf(state *readstate.State, dir string) (vectors []storedVector, rows int64) {
	for _, t := range state.Tables {
		for _, f := range t.Files {
			rows += f.Rows
			if f.Deleted != nil {
				vectors = append(vectors, storedVector{filepath.Join(dir, fmt.Sprintf("%d.blob", len(vectors))), f.Deleted})
			}
		}
	}
	return vectors, rows
}

// write makes the file, durable but for its name, and returns its bytes.
func (s storedVector) write() (bytes int, err error) {
	blob, err := s.vector.MarshalBlob()
	if err != nil {
		return 0, err
	}
	f, err := os.Create(s.path)
	if err != nil {
		return 0, err
	}
	_, err = f.Write(blob)
	return len(blob), errors.Join(err, f.Sync(), f.Close())
}

func (s storedVector) read() error {
	blob, err := os.ReadFile(s.path)
	if err != nil {
		return err
	}
	again, err := deletion.UnmarshalBlob(blob, s.vector.Rows())
	if err == nil && !again.Equal(s.vector) {
		err = fmt.Errorf("%s: another vector was read than written", s.path)
	}
	return err
}

// vectorSize writes and reads the deletion vectors of a state, and reports their size, for which limit in bits a row is the goal.
func (b *bench) vectorSize(what string, state *readstate.State, limit float64) error {
	dir, err := b.dataDir("vectors")
	if err != nil {
		return err
	}
	defer os.RemoveAll(dir)
	vectors, rows := vectorsOf(state, dir)
	var writes, reads []float64
	bytes := 0
	for range repeats {
		began := time.Now()
		bytes = 0
		for _, v := range vectors {
			n, err := v.write()
			if err != nil {
				return err
			}
			bytes += n
		}
		writes = append(writes, inMillis(time.Since(began)))
		began = time.Now()
		for _, v := range vectors {
			if err := v.read(); err != nil {
				return err
			}
		}
		reads = append(reads, inMillis(time.Since(began)))
	}
	bits := float64(bytes) * 8 / float64(rows)
	b.report.add(line{"deletion vectors: " + what, bitsPerRow(bits), fmt.Sprintf("written in %s, read in %s", spread(writes, fineMillis), spread(reads, fineMillis)), "", goals{atMost(bits, limit, "%g bits/row")},
		fmt.Sprintf("%d blobs of Puffin files, together %.1f kB, of files of %s rows; each fsynced, read from the page cache; Retina's checkpoint of visibility: 0.952 bits/row", len(vectors), float64(bytes)/1e3, amount(int(rows)))})
	return nil
}
