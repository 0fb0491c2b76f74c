package server

import (
	"encoding/binary"
	"errors"
	"fmt"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// A Fetch response is the one answer that is not all in memory: the records of
// its partitions are regions of segment files, which go to the socket by
// sendfile where they are large. So it is not encoded by kmsg, whose records are
// bytes, but here, without the records; a test compares the two for every
// version.
//
//	size | correlation id | tags? | head ... <records of row 0> head ... <records of row 1> ... head
//
// head is encoded as a whole first, with the places where records belong noted,
// since the size comes before all.

// sendfileMin is the size from which on a region of a file is sent as such; a
// smaller one is copied behind what surrounds it, for one write of all. Measured
// on a loopback: 32 KiB take a third longer by sendfile, 64 KiB a third less.
const sendfileMin = 64 << 10

// cut is a place in an encoded head where the records of a row belong.
type cut struct {
	at  int
	row int
}

// flexibleFetch is the first version with tags and compact lengths.
const flexibleFetch = 12

// appendHead appends the answer without size and header, and without records.
func (f *fetch) appendHead(dst []byte, cuts []cut) ([]byte, []cut) {
	flexible := f.Version >= flexibleFetch
	dst = binary.BigEndian.AppendUint32(dst, 0) // throttle time
	if f.Version >= 7 {
		dst = binary.BigEndian.AppendUint16(dst, uint16(f.ErrorCode))
		dst = binary.BigEndian.AppendUint32(dst, uint32(f.SessionID))
	}
	order := f.order()
	dst = appendLength(dst, f.topics(order), flexible)
	for begin := 0; begin < len(order); {
		end := f.topicEnd(order, begin)
		first := &f.rows[order[begin]]
		if f.Version >= 13 {
			dst = append(dst, first.id[:]...)
		} else {
			dst = appendText(dst, first.topic, flexible)
		}
		dst = appendLength(dst, end-begin, flexible)
		for _, i := range order[begin:end] {
			row := &f.rows[i]
			dst = f.appendRow(dst, row, flexible)
			if row.result.Slice.Len > 0 {
				cuts = append(cuts, cut{len(dst), int(i)})
			}
			if flexible {
				dst = appendRowTags(dst, row)
			}
		}
		if flexible {
			dst = append(dst, 0)
		}
		begin = end
	}
	if flexible {
		dst = f.appendTags(dst)
	}
	return dst, cuts
}

// order gives the rows that are answered, in the order of the answer: what was
// refused before reading comes last, as in Kafka.
func (f *fetch) order() []int32 {
	order := make([]int32, 0, len(f.rows))
	late := false
	for i := range f.rows {
		if row := &f.rows[i]; row.early {
			late = true
		} else if !row.omit {
			order = append(order, int32(i))
		}
	}
	for i := range f.rows {
		if late && f.rows[i].early && !f.rows[i].omit {
			order = append(order, int32(i))
		}
	}
	return order
}

// topicEnd gives the end of the run of rows of one topic that begins at begin.
func (f *fetch) topicEnd(order []int32, begin int) int {
	first := &f.rows[order[begin]]
	end := begin + 1
	for end < len(order) {
		row := &f.rows[order[end]]
		if f.Version >= 13 && row.id != first.id || f.Version < 13 && row.topic != first.topic {
			break
		}
		end++
	}
	return end
}

// topics gives the number of such runs.
func (f *fetch) topics(order []int32) int {
	n := 0
	for begin := 0; begin < len(order); begin = f.topicEnd(order, begin) {
		n++
	}
	return n
}

// appendRow appends a partition up to where its records begin.
func (f *fetch) appendRow(dst []byte, row *fetchRow, flexible bool) []byte {
	dst = binary.BigEndian.AppendUint32(dst, uint32(row.index))
	dst = binary.BigEndian.AppendUint16(dst, uint16(row.code))
	dst = binary.BigEndian.AppendUint64(dst, uint64(row.result.HW))
	dst = binary.BigEndian.AppendUint64(dst, uint64(row.result.LSO))
	if f.Version >= 5 {
		dst = binary.BigEndian.AppendUint64(dst, uint64(row.result.LogStart))
	}
	aborted := row.result.Aborted
	switch {
	case aborted != nil || row.early:
		dst = appendLength(dst, len(aborted), flexible)
	case flexible:
		dst = append(dst, 0)
	default:
		dst = binary.BigEndian.AppendUint32(dst, 0xffffffff)
	}
	for _, a := range aborted {
		dst = binary.BigEndian.AppendUint64(dst, uint64(a.ProducerID))
		dst = binary.BigEndian.AppendUint64(dst, uint64(a.FirstOffset))
		if flexible {
			dst = append(dst, 0)
		}
	}
	if f.Version >= 11 {
		dst = binary.BigEndian.AppendUint32(dst, 0xffffffff) // preferred read replica: none
	}
	return appendLength(dst, row.result.Slice.Len, flexible)
}

// appendRowTags appends what follows the records: the diverging epoch (tag 0)
// and the leader (tag 1) where there are any.
func appendRowTags(dst []byte, row *fetchRow) []byte {
	diverging, led := row.result.Diverging, row.leader >= 0 || row.leaderAt >= 0
	n := byte(0)
	if diverging != nil {
		n++
	}
	if led {
		n++
	}
	dst = append(dst, n)
	if diverging != nil {
		dst = append(dst, 0, 13)
		dst = binary.BigEndian.AppendUint32(dst, uint32(diverging.Epoch))
		dst = binary.BigEndian.AppendUint64(dst, uint64(diverging.EndOffset))
		dst = append(dst, 0)
	}
	if led {
		dst = append(dst, 1, 9)
		dst = binary.BigEndian.AppendUint32(dst, uint32(row.leader))
		dst = binary.BigEndian.AppendUint32(dst, uint32(row.leaderAt))
		dst = append(dst, 0)
	}
	return dst
}

// appendTags appends the tags of the whole answer: where leaders are (tag 0).
func (f *fetch) appendTags(dst []byte) []byte {
	if len(f.Brokers) == 0 {
		return append(dst, 0)
	}
	nodes := binary.AppendUvarint(nil, uint64(len(f.Brokers))+1)
	for _, b := range f.Brokers {
		nodes = binary.BigEndian.AppendUint32(nodes, uint32(b.NodeID))
		nodes = appendText(nodes, b.Host, true)
		nodes = binary.BigEndian.AppendUint32(nodes, uint32(b.Port))
		if b.Rack == nil {
			nodes = append(nodes, 0)
		} else {
			nodes = appendText(nodes, *b.Rack, true)
		}
		nodes = append(nodes, 0)
	}
	dst = append(dst, 1, 0)
	dst = binary.AppendUvarint(dst, uint64(len(nodes)))
	return append(dst, nodes...)
}

func appendLength(dst []byte, n int, flexible bool) []byte {
	if flexible {
		return binary.AppendUvarint(dst, uint64(n)+1)
	}
	return binary.BigEndian.AppendUint32(dst, uint32(n))
}

func appendText(dst []byte, s string, flexible bool) []byte {
	if flexible {
		dst = binary.AppendUvarint(dst, uint64(len(s))+1)
	} else {
		dst = binary.BigEndian.AppendUint16(dst, uint16(len(s)))
	}
	return append(dst, s...)
}

// AppendTo is for those who want a plain response; who has a socket uses
// writeFrame.
func (f *fetch) AppendTo(dst []byte) []byte {
	dst, err := f.appendBody(dst)
	if err != nil {
		panic(err)
	}
	return dst
}

// ReadFrom is never used: a fetch is made by its handler.
func (f *fetch) ReadFrom([]byte) error { panic("fetch is written, not read") }

// RequestKind, Key and the like come from the embedded response.
var _ kmsg.Response = (*fetch)(nil)

func (f *fetch) appendBody(dst []byte) ([]byte, error) {
	head := newBuffer(0)
	defer func() { head.free() }()
	var cuts []cut
	head.b, cuts = f.appendHead(head.b, nil)
	at := 0
	var err error
	for _, c := range cuts {
		dst = append(dst, head.b[at:c.at]...)
		at = c.at
		if dst, err = f.appendRecords(dst, c.row); err != nil {
			return dst, err
		}
	}
	return append(dst, head.b[at:]...), nil
}

// appendRecords appends the records of a row.
func (f *fetch) appendRecords(dst []byte, row int) ([]byte, error) {
	s := &f.rows[row].result.Slice
	n := len(dst)
	if cap(dst)-n < s.Len {
		dst = append(make([]byte, 0, max(n+s.Len, 2*cap(dst))), dst...)
	}
	dst = dst[:n+s.Len]
	if m, err := s.ReadAt(dst[n:], 0); m < s.Len {
		return dst[:n], f.lost(row, err)
	}
	return dst, nil
}

var errNoRecords = errors.New("records are gone")

// lost is the error of records that could be found but not read. The answer's
// size is on its way already, so it ends the connection.
func (f *fetch) lost(row int, err error) error {
	if err == nil {
		err = errNoRecords
	}
	r := &f.rows[row]
	f.server.log.Error("records cannot be read", "topic", r.topic, "partition", r.index, "offset", r.offset, "error", err)
	return fmt.Errorf("%s-%d: %w", r.topic, r.index, err)
}

func (f *fetch) writeFrame(c *conn, correlation int32) error {
	head := newBuffer(0)
	defer func() { head.free() }()
	var room [16]cut
	head.b = binary.BigEndian.AppendUint32(head.b, 0)
	head.b = binary.BigEndian.AppendUint32(head.b, uint32(correlation))
	if f.Version >= flexibleFetch {
		head.b = append(head.b, 0)
	}
	var cuts []cut
	head.b, cuts = f.appendHead(head.b, room[:0])
	size, files := len(head.b)-4, 0
	for _, k := range cuts {
		n := f.rows[k.row].result.Slice.Len
		size += n
		if n >= sendfileMin {
			files++
		}
	}
	binary.BigEndian.PutUint32(head.b, uint32(size))
	if c.out == nil {
		if files > 0 {
			size = len(head.b)
		}
		c.out = newBuffer(min(size+4, flushBytes))
	}
	at := 0
	for _, k := range cuts {
		c.out.b = append(c.out.b, head.b[at:k.at]...)
		at = k.at
		if err := f.writeRecords(c, k.row); err != nil {
			return err
		}
	}
	c.out.b = append(c.out.b, head.b[at:]...)
	return c.flushFull()
}

// writeRecords writes the records of a row, or puts them behind c.out.
func (f *fetch) writeRecords(c *conn, row int) error {
	s := &f.rows[row].result.Slice
	if s.Len < sendfileMin {
		var err error
		c.out = c.out.grow(s.Len)
		if c.out.b, err = f.appendRecords(c.out.b, row); err != nil {
			return err
		}
		return c.flushFull()
	}
	if file := s.File().OS(); file != nil && c.raw != nil {
		if err := c.flush(); err != nil {
			return err
		}
		c.out = newBuffer(0)
		n, err := c.sendFile(file, s.Pos, s.Len)
		if err != errNoSendfile {
			return err
		}
		return f.copyRecords(c, row, n)
	}
	return f.copyRecords(c, row, 0)
}

// copyRecords writes the records of a row from a position on through memory.
func (f *fetch) copyRecords(c *conn, row, from int) error {
	s := &f.rows[row].result.Slice
	for from < s.Len {
		if err := c.flush(); err != nil {
			return err
		}
		c.out = newBuffer(flushBytes)
		n := min(s.Len-from, flushBytes)
		if m, err := s.ReadAt(c.out.b[:n], int64(from)); m < n {
			return f.lost(row, err)
		}
		c.out.b = c.out.b[:n]
		from += n
	}
	return nil
}

// flushFull flushes if much has been collected.
func (c *conn) flushFull() error {
	if c.out != nil && len(c.out.b) >= flushBytes {
		if err := c.flush(); err != nil {
			return err
		}
		c.out = newBuffer(0)
	}
	return nil
}

// release gives back the segment files and f itself. Its rows stay however many they are: a session that polls many partitions comes again
// soon, and else the collector takes them from the pool.
func (f *fetch) release() {
	f.releaseSlices()
	clear(f.rows)
	*f = fetch{rows: f.rows[:0]}
	fetches.Put(f)
}
