package duckdb

import (
	"container/list"
	"fmt"
	"sync"
	"sync/atomic"

	"github.com/duckdb/duckdb-go/v2/mapping"

	"pgmirror/readstate"
)

// vectorRows is DuckDB's vector size: the rows of one cached vector, and the most a scan emits at once.
const vectorRows = 2048

// cachedVector is up to vectorRows rows of one column in DuckDB's memory. It is destroyed with its last reference;
// vectors that DuckDB made refer to it keep the memory itself alive on their own.
type cachedVector struct {
	vec   mapping.Vector
	rows  int
	bytes int64
	refs  atomic.Int32
}

func (v *cachedVector) retain() *cachedVector { v.refs.Add(1); return v }

func (v *cachedVector) release() {
	if v.refs.Add(-1) == 0 {
		mapping.DestroyVector(&v.vec)
	}
}

// chunkKey names a column of a batch. The type is part of it because a column may be widened.
type chunkKey struct {
	batch uint64
	field int64
	typ   string
}

// chunkEntry is the first rows of one column of one batch.
type chunkEntry struct {
	key   chunkKey
	rows  int
	vecs  []*cachedVector
	bytes int64
}

// chunkCache keeps columns of memory batches as DuckDB vectors, least recently used out first. A scan holds references
// of its own, so what is evicted under it stays until it is done.
type chunkCache struct {
	limit int64

	mu      sync.Mutex
	used    int64
	entries map[chunkKey]*list.Element // of *chunkEntry
	recent  list.List                  // most recently used first

	// loading serialises the loads of one batch, so that two scans that miss together read it once.
	loading [16]sync.Mutex

	bytesCopied atomic.Int64 // into vectors, ever
}

func newChunkCache(limit int64) *chunkCache {
	return &chunkCache{limit: limit, entries: make(map[chunkKey]*list.Element)}
}

// columns returns the vectors of a batch's columns (indexes into cols), each list covering at least batch.Rows rows. The
// caller releases every vector.
func (c *chunkCache) columns(batch *readstate.Batch, cols []column, want []int) ([][]*cachedVector, error) {
	load := &c.loading[batch.ID%uint64(len(c.loading))]
	load.Lock()
	defer load.Unlock()

	out := make([][]*cachedVector, len(want))
	prefix := make([][]*cachedVector, len(want)) // whole vectors of what is cached of a batch that has grown
	from := make(map[int][]int)                  // first row to read → positions in want
	for i, w := range want {
		vecs, rows := c.get(keyOf(batch, cols[w]))
		if rows >= batch.Rows {
			out[i] = vecs
			continue
		}
		whole := rows / vectorRows
		releaseAll(vecs[whole:])
		prefix[i] = vecs[:whole]
		from[whole*vectorRows] = append(from[whole*vectorRows], i)
	}
	for first, group := range from {
		if err := c.load(batch, cols, want, group, first, prefix, out); err != nil {
			for i := range want {
				releaseAll(out[i])
				if out[i] == nil {
					releaseAll(prefix[i])
				}
			}
			return nil, err
		}
	}
	return out, nil
}

// load reads the rows from first on of one group of columns in a single call, and stores prefix and new vectors.
func (c *chunkCache) load(batch *readstate.Batch, cols []column, want, group []int, first int, prefix, out [][]*cachedVector) error {
	indexes := make([]int, len(group))
	for j, i := range group {
		indexes[j] = want[i]
	}
	arrays, err := batch.Columns.Read(indexes, first, batch.Rows)
	if err != nil {
		return fmt.Errorf("read memory batch %d: %w", batch.ID, err)
	}
	if len(arrays) != len(indexes) {
		return fmt.Errorf("read memory batch %d: %d columns came for %d", batch.ID, len(arrays), len(indexes))
	}
	for j, i := range group {
		col := cols[want[i]]
		if arrays[j].Len() != batch.Rows-first {
			return fmt.Errorf("read memory batch %d: %d rows of column %q came for %d", batch.ID, arrays[j].Len(), col.name, batch.Rows-first)
		}
		vecs, err := convert(col.typ, arrays[j])
		if err != nil {
			return fmt.Errorf("memory batch %d, column %q: %w", batch.ID, col.name, err)
		}
		for _, v := range vecs {
			c.bytesCopied.Add(v.bytes)
		}
		out[i] = append(prefix[i], vecs...)
		c.put(keyOf(batch, col), batch.Rows, out[i])
	}
	return nil
}

func keyOf(batch *readstate.Batch, col column) chunkKey {
	return chunkKey{batch: batch.ID, field: col.field, typ: col.typ.sql}
}

// get returns retained vectors and the number of rows they hold; 0 when nothing is cached.
func (c *chunkCache) get(key chunkKey) ([]*cachedVector, int) {
	c.mu.Lock()
	defer c.mu.Unlock()
	at, ok := c.entries[key]
	if !ok {
		return nil, 0
	}
	c.recent.MoveToFront(at)
	e := at.Value.(*chunkEntry)
	return retainAll(e.vecs), e.rows
}

// put stores vectors under references of the cache's own, in place of what it had, and evicts down to the limit.
func (c *chunkCache) put(key chunkKey, rows int, vecs []*cachedVector) {
	e := &chunkEntry{key: key, rows: rows, vecs: retainAll(vecs)}
	for _, v := range vecs {
		e.bytes += v.bytes
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	if old, ok := c.entries[key]; ok {
		c.dropLocked(old)
	}
	c.entries[key] = c.recent.PushFront(e)
	c.used += e.bytes
	for c.used > c.limit {
		c.dropLocked(c.recent.Back())
	}
}

func (c *chunkCache) dropLocked(at *list.Element) {
	e := c.recent.Remove(at).(*chunkEntry)
	delete(c.entries, e.key)
	c.used -= e.bytes
	releaseAll(e.vecs)
}

// clear drops everything. What scans still hold goes with them.
func (c *chunkCache) clear() {
	c.mu.Lock()
	defer c.mu.Unlock()
	for c.recent.Len() > 0 {
		c.dropLocked(c.recent.Back())
	}
}

func retainAll(vecs []*cachedVector) []*cachedVector {
	out := make([]*cachedVector, len(vecs))
	for i, v := range vecs {
		out[i] = v.retain()
	}
	return out
}

func releaseAll(vecs []*cachedVector) {
	for _, v := range vecs {
		v.release()
	}
}
