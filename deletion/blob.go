package deletion

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"hash/crc32"
	"math"

	"github.com/RoaringBitmap/roaring/v2"
)

// The blob of https://iceberg.apache.org/puffin-spec/#deletion-vector-v1-blob-type:
//
//	length of magic and bitmap   4 bytes, big endian
//	magic                        4 bytes, D1 D3 39 64
//	bitmap                       portable 64-bit roaring: bucket count (8 bytes, little endian), then for each bucket,
//	                             ascending, its key (the high 32 bits of its positions, little endian) and a 32-bit roaring
//	CRC-32 of magic and bitmap   4 bytes, big endian
const (
	lengthSize = 4
	countSize  = 8
	keySize    = 4
	crcSize    = 4
	frameSize  = lengthSize + len(blobMagic) + countSize + crcSize // the blob of an empty vector
	blobMagic  = "\xD1\xD3\x39\x64"
)

// MarshalBlob returns v as the bytes of a deletion-vector-v1 blob. Equal vectors give equal bytes: containers are run-length
// encoded where that is smaller, as Iceberg Java does.
func (v *Vector) MarshalBlob() ([]byte, error) {
	var out bytes.Buffer
	out.Write(make([]byte, lengthSize))
	out.WriteString(blobMagic)

	buckets := uint64(0)
	if v.Cardinality() > 0 {
		buckets = 1 // positions are below 2^32
	}
	out.Write(binary.LittleEndian.AppendUint64(nil, buckets))
	if buckets == 1 {
		compact := v.bitmap.Clone() // v may be frozen and shared
		compact.RunOptimize()
		out.Write(make([]byte, keySize)) // key 0
		if _, err := compact.WriteTo(&out); err != nil {
			return nil, fmt.Errorf("write deletion vector: %w", err)
		}
	}

	blob := out.Bytes()
	body := blob[lengthSize:]
	if uint64(len(body)) > math.MaxInt32 { // Java reads the length as a signed int
		return nil, fmt.Errorf("write deletion vector: %d bytes are more than the format allows", len(body))
	}
	binary.BigEndian.PutUint32(blob, uint32(len(body)))
	return binary.BigEndian.AppendUint32(blob, crc32.ChecksumIEEE(body)), nil
}

// UnmarshalBlob reads the bytes of a deletion-vector-v1 blob of a segment with rows rows. The vector is frozen and does not
// alias blob. Every error is ErrCorrupt. Memory stays within a small multiple of the blob's size.
func UnmarshalBlob(blob []byte, rows uint32) (*Vector, error) {
	if len(blob) < frameSize {
		return nil, fmt.Errorf("%w: %d bytes are too few", ErrCorrupt, len(blob))
	}
	body, sum := blob[lengthSize:len(blob)-crcSize], blob[len(blob)-crcSize:]
	if length := binary.BigEndian.Uint32(blob); uint64(length) != uint64(len(body)) {
		return nil, fmt.Errorf("%w: length is %d, %d bytes are there", ErrCorrupt, length, len(body))
	}
	if string(body[:len(blobMagic)]) != blobMagic {
		return nil, fmt.Errorf("%w: wrong magic % x", ErrCorrupt, body[:len(blobMagic)])
	}
	if want, got := binary.BigEndian.Uint32(sum), crc32.ChecksumIEEE(body); want != got {
		return nil, fmt.Errorf("%w: checksum is %08x, content has %08x", ErrCorrupt, want, got)
	}
	bitmap, err := readBuckets(body[len(blobMagic):])
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrCorrupt, err)
	}
	if !bitmap.IsEmpty() && bitmap.Maximum() >= rows {
		return nil, fmt.Errorf("%w: position %d in a file of %d rows", ErrCorrupt, bitmap.Maximum(), rows)
	}
	return (&Vector{rows: rows, bitmap: bitmap}).Freeze(), nil
}

// readBuckets reads a portable 64-bit roaring bitmap all of whose positions are below 2^32. Buckets of higher positions may
// be there if they are empty.
func readBuckets(data []byte) (*roaring.Bitmap, error) {
	count, data := binary.LittleEndian.Uint64(data), data[countSize:]
	low := roaring.New()
	previous := int64(-1)
	for i := uint64(0); i < count; i++ {
		if len(data) < keySize {
			return nil, fmt.Errorf("%d buckets announced, the bytes end at bucket %d", count, i)
		}
		key := binary.LittleEndian.Uint32(data)
		if int64(key) <= previous {
			return nil, fmt.Errorf("bucket %d comes after bucket %d", key, previous)
		}
		previous = int64(key)

		bucket := roaring.New()
		n, err := bucket.ReadFrom(bytes.NewReader(data[keySize:]))
		if err != nil {
			return nil, fmt.Errorf("bucket %d: %w", key, err)
		}
		if err := bucket.Validate(); err != nil {
			return nil, fmt.Errorf("bucket %d: %w", key, err)
		}
		if key == 0 {
			low = bucket
		} else if !bucket.IsEmpty() {
			return nil, fmt.Errorf("bucket %d holds positions past 2^32", key)
		}
		data = data[keySize+int(n):]
	}
	if len(data) != 0 {
		return nil, fmt.Errorf("%d bytes follow the last bucket", len(data))
	}
	return low, nil
}
