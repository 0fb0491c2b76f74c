package log

import (
	"encoding/binary"
	"fmt"
	"io"
	"os"
	"sync"
	"sync/atomic"
)

// The lengths of the entries of the two indexes.
const (
	offsetEntryLen = 8
	timeEntryLen   = 12
)

const (
	tailMin = 16  // entries an active index first has room for in memory
	tailMax = 512 // entries it has at most, before it writes them to its file
)

// An index is one of the two sparse indexes of a segment. Its first entries are in its file, those not written
// yet in memory, as the same bytes. The segment's writer adds; readers use whatever body they find and never lock.
//
//	.index      +--------------------+--------------------+
//	            | int32 offset - base| int32 position     |   of a batch: its last offset, where it starts
//	            +--------------------+--------------------+
//	.timeindex  +-----------------------------------------+--------------------+
//	            | int64 timestamp, ms                     | int32 offset - base|   greatest timestamp so far,
//	            +-----------------------------------------+--------------------+   last offset of its batch
//
// Entries ascend in all their fields.
type index struct {
	file
	width int
	body  atomic.Pointer[indexBody]

	// What follows is the writer's.
	exists bool // the file
	longer bool // the file may have bytes behind its entries
	hold   bool // keep all entries in memory until flush: the file is being rebuilt
}

// An indexBody is a prefix of entries in the file and the tail behind it. Only the tail's count changes, and the
// bytes below it never do.
type indexBody struct {
	inFile int
	count  atomic.Int32 // entries in tail
	tail   []byte
}

func (b *indexBody) entries() int { return b.inFile + int(b.count.Load()) }

// An entry is one entry of either index.
type entry struct {
	offset   int64 // absolute
	position int64 // of the batch; offset index
	time     int64 // ms; time index
}

func (x *index) decode(e []byte) entry {
	if x.width == offsetEntryLen {
		return entry{
			offset:   x.segment.base + int64(binary.BigEndian.Uint32(e)),
			position: int64(binary.BigEndian.Uint32(e[4:])),
		}
	}
	return entry{
		time:   int64(binary.BigEndian.Uint64(e)),
		offset: x.segment.base + int64(binary.BigEndian.Uint32(e[8:])),
	}
}

func (x *index) encode(e entry, b []byte) {
	if x.width == offsetEntryLen {
		binary.BigEndian.PutUint32(b, uint32(e.offset-x.segment.base))
		binary.BigEndian.PutUint32(b[4:], uint32(e.position))
		return
	}
	binary.BigEndian.PutUint64(b, uint64(e.time))
	binary.BigEndian.PutUint32(b[8:], uint32(e.offset-x.segment.base))
}

// A field is what an index is searched by.
type field uint8

const (
	byOffset field = iota
	byPosition
	byTime
)

func (e entry) key(f field) int64 {
	switch f {
	case byPosition:
		return e.position
	case byTime:
		return e.time
	default:
		return e.offset
	}
}

func (x *index) reset(inFile int) { x.body.Store(&indexBody{inFile: inFile}) }

func (x *index) entries() int { return x.body.Load().entries() }

// reserve makes room for one more entry: the add behind it can't fail.
func (x *index) reserve() error {
	b := x.body.Load()
	n := int(b.count.Load())
	if (n+1)*x.width <= len(b.tail) {
		return nil
	}
	if n < tailMax || x.hold {
		grown := &indexBody{inFile: b.inFile, tail: make([]byte, max(tailMin, 2*n)*x.width)}
		copy(grown.tail, b.tail[:n*x.width])
		grown.count.Store(int32(n))
		x.body.Store(grown)
		return nil
	}
	if err := x.write(); err != nil {
		return err
	}
	x.body.Store(&indexBody{inFile: b.inFile + n, tail: make([]byte, len(b.tail))})
	return nil
}

func (x *index) add(e entry) {
	b := x.body.Load()
	n := int(b.count.Load())
	x.encode(e, b.tail[n*x.width:(n+1)*x.width])
	b.count.Store(int32(n + 1))
}

// write puts the tail behind the file's entries, and creates the file where it is missing.
func (x *index) write() error {
	b := x.body.Load()
	n := int(b.count.Load())
	if n == 0 && x.exists && !x.longer {
		return nil
	}
	if !x.exists {
		x.segment.log.dirDirty.Store(true)
	}
	h, err := x.acquire(os.O_CREATE)
	if err != nil {
		return err
	}
	defer h.leave()
	x.exists = true
	start := int64(b.inFile) * int64(x.width)
	if n > 0 {
		x.longer = true
		if _, err := h.WriteAt(b.tail[:n*x.width], start); err != nil {
			return err
		}
	}
	if x.longer {
		if err := h.Truncate(start + int64(n*x.width)); err != nil {
			return err
		}
		x.longer = false
	}
	return nil
}

// flush writes what isn't in the file yet and frees the memory.
func (x *index) flush() error {
	if err := x.write(); err != nil {
		return err
	}
	x.hold = false
	if b := x.body.Load(); b.tail != nil {
		x.reset(b.entries())
	}
	return nil
}

// last is the last entry; ok is false for an empty index.
func (x *index) last() (e entry, ok bool, err error) {
	b := x.body.Load()
	if b.entries() == 0 {
		return entry{}, false, nil
	}
	e, err = x.at(b, b.entries()-1)
	return e, err == nil, err
}

func (x *index) at(b *indexBody, i int) (entry, error) {
	if i >= b.inFile {
		i -= b.inFile
		return x.decode(b.tail[i*x.width:]), nil
	}
	h, err := x.acquire(0)
	if err != nil {
		return entry{}, err
	}
	defer h.leave()
	block := blocks.Get().(*[blockLen]byte)
	defer blocks.Put(block)
	if err := x.read(h, block[:x.width], i); err != nil {
		return entry{}, err
	}
	return x.decode(block[:]), nil
}

const blockLen = 4096

// blocks are buffers for a few entries or batch headers.
var blocks = sync.Pool{New: func() any { return new([blockLen]byte) }}

// read fills p with entries of the file from the i-th on.
func (x *index) read(h *handle, p []byte, i int) error {
	n, err := h.ReadAt(p, int64(i)*int64(x.width))
	if n == len(p) {
		return nil
	}
	if err == io.EOF {
		err = fmt.Errorf("%s ends before entry %d: %w", x.path(), i, ErrCorrupt)
	}
	return err
}

// floor finds the last entry whose field is at most target, and its number; -1 when there is none.
func (x *index) floor(f field, target int64) (e entry, i int, err error) {
	b := x.body.Load()
	n := int(b.count.Load())
	if n > 0 && x.decode(b.tail).key(f) <= target {
		i, e = x.search(b.tail[:n*x.width], f, target)
		return e, b.inFile + i, nil
	}
	if b.inFile == 0 {
		return entry{}, -1, nil
	}
	return x.floorInFile(b.inFile, f, target)
}

// interpolations is how many times floorInFile guesses where an entry is, before it halves.
const interpolations = 4

// floorInFile guesses where the entry is, as if entries were spread evenly, and reads a block around that: of the batches of one load the first guess
// is right. Where they are spread otherwise the rest is halved.
func (x *index) floorInFile(n int, f field, target int64) (e entry, i int, err error) {
	block := blocks.Get().(*[blockLen]byte)
	defer blocks.Put(block)
	h, err := x.acquire(0)
	if err != nil {
		return entry{}, -1, err
	}
	defer h.leave()
	part := block[:min(n, blockLen/x.width)*x.width]
	if err := x.read(h, part, 0); err != nil {
		return entry{}, -1, err
	}
	if i, e = x.search(part, f, target); i+1 < len(part)/x.width || i+1 == n {
		return e, i, nil
	}
	var last entry
	if err := x.read(h, block[:x.width], n-1); err != nil {
		return entry{}, -1, err
	}
	if last = x.decode(block[:]); last.key(f) <= target {
		return last, n - 1, nil
	}
	// Invariant: the entry wanted is e, at i, or behind it and before hi.
	hi, hiKey := n-1, last.key(f)
	for step := 0; hi-i > 1; step++ {
		at := i + (hi-i)/2
		if step < interpolations {
			at = i + int(float64(hi-i)*(float64(target-e.key(f))/float64(hiKey-e.key(f))))
		}
		count := min(blockLen/x.width, hi+1-i)
		from := min(max(at-count/2, i), hi+1-count)
		part := block[:count*x.width]
		if err := x.read(h, part, from); err != nil {
			return entry{}, -1, err
		}
		switch k, found := x.search(part, f, target); k {
		case -1:
			hi, hiKey = from, x.decode(part).key(f)
		case count - 1:
			i, e = from+k, found
		default:
			return found, from + k, nil
		}
	}
	return e, i, nil
}

// search finds the last of these entries whose field is at most target; -1 when there is none.
func (x *index) search(entries []byte, f field, target int64) (i int, e entry) {
	lo, hi := 0, len(entries)/x.width
	for lo < hi {
		mid := (lo + hi) / 2
		if x.decode(entries[mid*x.width:]).key(f) <= target {
			lo = mid + 1
		} else {
			hi = mid
		}
	}
	if lo == 0 {
		return -1, entry{}
	}
	return lo - 1, x.decode(entries[(lo-1)*x.width:])
}
