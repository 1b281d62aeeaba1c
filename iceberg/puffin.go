package iceberg

import (
	"bytes"
	"fmt"
	"io"
	"math"
	"path/filepath"
	"strconv"

	icelib "github.com/apache/iceberg-go"
	"github.com/apache/iceberg-go/puffin"

	"pgmirror/deletion"
)

// positionFieldID is the reserved field id of a row's position in its file: the field that a deletion vector is about
// (https://iceberg.apache.org/spec/#reserved-field-ids, https://iceberg.apache.org/puffin-spec/#deletion-vector-v1-blob-type).
const positionFieldID = 2147483645

// writeVector writes a Puffin file with one deletion vector and returns its manifest entry. One blob a file, because DuckDB
// before mid-2026 reads only the first of several.
func (w *Warehouse) writeVector(dir, dataFile string, vector *deletion.Vector) (*liveVector, error) {
	blob, err := vector.MarshalBlob()
	if err != nil {
		return nil, err
	}
	var buf bytes.Buffer
	out, err := puffin.NewWriter(&buf)
	if err != nil {
		return nil, err
	}
	if err := out.SetCreatedBy("pgmirror"); err != nil {
		return nil, err
	}
	cardinality := int64(vector.Cardinality())
	meta, err := out.AddBlob(puffin.BlobMetadataInput{
		Type: puffin.BlobTypeDeletionVector, SnapshotID: -1, SequenceNumber: -1, Fields: []int32{positionFieldID},
		Properties: map[string]string{"referenced-data-file": toURI(dataFile), "cardinality": strconv.FormatInt(cardinality, 10)},
	}, blob)
	if err != nil {
		return nil, err
	}
	if err := out.Finish(); err != nil {
		return nil, err
	}
	if err := w.effect("puffin written"); err != nil {
		return nil, err
	}
	path := filepath.Join(dir, newID()+".puffin")
	if err := w.writeFile(path, buf.Bytes()); err != nil {
		return nil, err
	}
	builder, err := icelib.NewDataFileBuilder(*icelib.UnpartitionedSpec, icelib.EntryContentPosDeletes, toURI(path), icelib.PuffinFile,
		nil, nil, nil, cardinality, int64(buf.Len()))
	if err != nil {
		return nil, err
	}
	entry := builder.ReferencedDataFile(toURI(dataFile)).ContentOffset(meta.Offset).ContentSizeInBytes(meta.Length).Build()
	return &liveVector{path: path, entry: entry}, nil
}

// maxVectorBytes bounds what is read for one vector: 2^32 positions of one bit, with roaring's headers.
const maxVectorBytes = 1 << 30

// readVector reads the one blob that a manifest entry points at.
func readVector(files FileSystem, entry icelib.DataFile, path string, rows int64) (*deletion.Vector, error) {
	offset, size := entry.ContentOffset(), entry.ContentSizeInBytes()
	if offset == nil || size == nil || *offset < puffin.MagicSize || *size < 0 || *size > maxVectorBytes {
		return nil, fmt.Errorf("%w: %s: its manifest entry has no usable offset and size", ErrCorrupt, path)
	}
	if rows > math.MaxUint32 {
		return nil, fmt.Errorf("%w: %s: a vector for %d rows", ErrCorrupt, path, rows)
	}
	f, err := files.Open(path)
	if err != nil {
		return nil, fmt.Errorf("deletion vector: %w", damage(err))
	}
	defer f.Close()
	if f.Size() != entry.FileSizeBytes() || *offset > f.Size()-*size {
		return nil, fmt.Errorf("%w: %s: %d bytes where the manifest says %d", ErrCorrupt, path, f.Size(), entry.FileSizeBytes())
	}
	blob := make([]byte, *size)
	if _, err := io.ReadFull(io.NewSectionReader(f, *offset, *size), blob); err != nil {
		return nil, fmt.Errorf("read deletion vector %s: %w", path, damage(err))
	}
	vector, err := deletion.UnmarshalBlob(blob, uint32(rows))
	if err != nil {
		return nil, fmt.Errorf("%w: %s: %w", ErrCorrupt, path, err)
	}
	if int64(vector.Cardinality()) != entry.Count() {
		return nil, fmt.Errorf("%w: %s: %d positions where the manifest says %d", ErrCorrupt, path, vector.Cardinality(), entry.Count())
	}
	return vector, nil
}
