package readstate

import (
	"cmp"
	"maps"
	"slices"
	"sync"
	"sync/atomic"

	"github.com/apache/arrow-go/v18/arrow"
	"github.com/apache/arrow-go/v18/arrow/array"

	"pgmirror/deletion"
)

// recentPins is for how many further pins a batch or vector is kept that none of them names: two statements that take
// turns at different LSNs do not push each other's out.
const recentPins = 8

// lastBatchID is the newest Batch.ID that a client of this process gave.
var lastBatchID atomic.Uint64

// cache keeps what a client has received: vectors, and columns of memory batches up to limit bytes. A batch that no open or
// recent state names goes at once; when columns pass the limit, those of the batches read longest ago go too. What was
// handed out stays valid.
type cache struct {
	limit int64

	mu      sync.Mutex
	bytes   int64
	pins    uint64 // states so far
	reads   uint64 // reads so far
	batches map[uint64]*cachedBatch
	vectors map[uint64]*cachedVector
}

type cachedVector struct {
	vector  *deletion.Vector
	lastPin uint64
}

// cachedBatch is what is known of one of the server's batches. Its fields belong to the cache's lock.
type cachedBatch struct {
	localID  uint64
	columns  map[columnKey]*cachedColumn
	users    int // open states that name it
	lastPin  uint64
	lastRead uint64
	gone     bool // no longer in the cache; a read of a state released meanwhile may still be under way
}

// columnKey names a column of a batch whatever the schema it is read under: a field id outlives names and places, and the
// type is in it because a widened column is read as another type.
type columnKey struct{ fieldID, typ string }

func keyOf(field arrow.Field) columnKey {
	id, _ := fieldID(field)
	return columnKey{id, field.Type.String()}
}

// cachedColumn is rows [0, rows) of a column. Whoever set fetching may use grown without the lock.
type cachedColumn struct {
	rows     int
	data     arrow.ArrayData // nil when rows is 0
	bytes    int64
	grown    *growing      // nil while data is as it came
	fetching chan struct{} // closed when the fetch under way has ended; nil without one
}

func newCache(limit int64) *cache {
	return &cache{limit: limit, batches: map[uint64]*cachedBatch{}, vectors: map[uint64]*cachedVector{}}
}

// pin counts a state that names the given batches, and forgets what only old states named.
func (c *cache) pin(serverIDs []uint64) []*cachedBatch {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.pins++
	out := make([]*cachedBatch, len(serverIDs))
	for i, id := range serverIDs {
		b := c.batches[id]
		if b == nil {
			b = &cachedBatch{localID: lastBatchID.Add(1), columns: map[columnKey]*cachedColumn{}}
			c.batches[id] = b
		}
		b.users++
		b.lastPin = c.pins
		out[i] = b
	}
	c.forget()
	for id, v := range c.vectors {
		if v.lastPin+recentPins <= c.pins {
			delete(c.vectors, id)
		}
	}
	return out
}

func (c *cache) unpin(batches []*cachedBatch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, b := range batches {
		b.users--
	}
	c.forget()
}

// forget drops the batches that no open or recent state names.
func (c *cache) forget() {
	for id, b := range c.batches {
		if b.users == 0 && b.lastPin+recentPins <= c.pins {
			c.drop(b)
			b.gone = true
			delete(c.batches, id)
		}
	}
}

// vector returns a vector that came before.
func (c *cache) vector(serverID uint64) (*deletion.Vector, bool) {
	c.mu.Lock()
	defer c.mu.Unlock()
	v := c.vectors[serverID]
	if v == nil {
		return nil, false
	}
	v.lastPin = c.pins + 1
	return v.vector, true
}

// addVector keeps a vector and returns the one to use: another pin may have fetched the same one meanwhile.
func (c *cache) addVector(serverID uint64, vector *deletion.Vector) *deletion.Vector {
	c.mu.Lock()
	defer c.mu.Unlock()
	if v := c.vectors[serverID]; v != nil {
		v.lastPin = c.pins + 1
		return v.vector
	}
	c.vectors[serverID] = &cachedVector{vector, c.pins + 1}
	return vector
}

// fetch is what a read has to ask the server for: columns (by their place in the read's list) from one row on.
type fetch struct {
	from    int
	places  []int
	columns []*cachedColumn
	done    chan struct{}
}

// lookUp puts into out the columns whose rows [0, to) are here. For the others it returns what the caller shall fetch and
// then store or abandon, or, when others fetch all of it, a channel that is closed when one of them is through.
func (c *cache) lookUp(b *cachedBatch, fields []arrow.Field, to int, out []arrow.ArrayData) (*fetch, <-chan struct{}) {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.reads++
	b.lastRead = c.reads
	var mine *fetch
	var others <-chan struct{}
	for i, field := range fields {
		if out[i] != nil {
			continue
		}
		key := keyOf(field)
		column := b.columns[key]
		if column == nil {
			column = &cachedColumn{}
			b.columns[key] = column
		}
		switch {
		case to == 0:
			out[i] = newGrowing(field.Type).data()
		case column.rows >= to:
			out[i] = column.data
		case column.fetching != nil:
			if mine == nil || column.fetching != mine.done {
				others = column.fetching
			}
		case mine == nil:
			mine = &fetch{from: column.rows, done: make(chan struct{})}
			fallthrough
		case mine.from == column.rows:
			column.fetching = mine.done
			mine.places = append(mine.places, i)
			mine.columns = append(mine.columns, column)
		}
	}
	return mine, others
}

// abandon ends a fetch that brought nothing.
func (c *cache) abandon(f *fetch) {
	c.mu.Lock()
	defer c.mu.Unlock()
	for _, column := range f.columns {
		column.fetching = nil
	}
	close(f.done)
}

// received is one column of a fetch and the memory it takes.
type received struct {
	data  arrow.ArrayData
	bytes int64
}

// store adds the fetched rows to their columns and puts those into out.
func (c *cache) store(b *cachedBatch, f *fetch, got []received, out []arrow.ArrayData) error {
	for i, column := range f.columns {
		if f.from == 0 {
			continue
		}
		if err := column.grow(&got[i]); err != nil {
			c.abandon(f)
			return err
		}
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	for i, column := range f.columns {
		out[f.places[i]] = got[i].data
		column.fetching = nil
		if !b.gone {
			c.bytes += got[i].bytes - column.bytes
			column.rows, column.data, column.bytes = got[i].data.Len(), got[i].data, got[i].bytes
		}
	}
	close(f.done)
	c.evict()
	return nil
}

// grow makes got all rows of the column: those that are here and those that came. On an error the column is as before.
func (column *cachedColumn) grow(got *received) error {
	grown := column.grown
	if grown == nil {
		grown = newGrowing(column.data.DataType())
		if err := grown.add(column.data); err != nil {
			return err
		}
	}
	column.grown = nil
	if err := grown.add(got.data); err != nil {
		return err
	}
	column.grown = grown
	got.data, got.bytes = grown.data(), grown.bytes()
	return nil
}

// evict brings the cache below its limit, as far as no fetch is under way.
func (c *cache) evict() {
	if c.bytes <= c.limit {
		return
	}
	oldestFirst := slices.SortedFunc(maps.Values(c.batches), func(a, b *cachedBatch) int { return cmp.Compare(a.lastRead, b.lastRead) })
	for _, b := range oldestFirst {
		if c.bytes <= c.limit {
			return
		}
		c.drop(b)
	}
}

// drop forgets a batch's columns but those being fetched.
func (c *cache) drop(b *cachedBatch) {
	for key, column := range b.columns {
		if column.fetching == nil {
			c.bytes -= column.bytes
			delete(b.columns, key)
		}
	}
}

// rowsOf returns rows [from, to) of a column as an array.
func rowsOf(data arrow.ArrayData, from, to int) arrow.Array {
	if from == 0 && to == data.Len() {
		return array.MakeFromData(data)
	}
	out := array.MakeFromData(array.NewSliceData(data, int64(from), int64(to)))
	out.NullN() // counted now, since it is kept in the array and several goroutines may ask
	return out
}
