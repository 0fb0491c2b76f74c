package log

import (
	"errors"
	"fmt"
	"io"

	"oncelog/protocol"
)

// errPartial: what is left of a file is no whole batch.
var errPartial = errors.New("batch is not all there")

// A walker goes from batch header to batch header through a part of a .log, reading as little as possible. It
// checks what is needed to go on, and nothing of the records.
type walker struct {
	f    io.ReaderAt
	pos  int64 // of the next header
	end  int64 // where the valid part of the file ends
	buf  []byte
	at   int64 // position of buf[0] in the file
	have int   // valid bytes in buf
}

// next returns the next batch's header and its position. At the end the error is io.EOF; errPartial when the
// last batch isn't whole; ErrCorrupt when what is there can't be a batch; ErrUnsupportedMagic for an old format.
func (w *walker) next() (h protocol.BatchHeader, pos int64, err error) {
	left := w.end - w.pos
	if left <= 0 {
		return h, w.pos, io.EOF
	}
	b, err := w.bytes(int(min(left, protocol.BatchHeaderLen)))
	if err != nil {
		return h, w.pos, err
	}
	size, err := batchSize(b, w.pos)
	if err != nil {
		return h, w.pos, err
	}
	if int64(size) > left {
		return h, w.pos, errPartial
	}
	h = protocol.Batch(b).Header()
	if h.LastOffsetDelta < 0 || h.BaseOffset < 0 {
		return h, w.pos, fmt.Errorf("batch at %d has offsets %d + %d: %w", w.pos, h.BaseOffset, h.LastOffsetDelta, ErrCorrupt)
	}
	pos = w.pos
	w.pos += int64(size)
	return h, pos, nil
}

// bytes returns n bytes at w.pos, n at most len(buf). What is in the buffer is not read again.
func (w *walker) bytes(n int) ([]byte, error) {
	kept := 0
	if from := w.pos - w.at; from >= 0 && from < int64(w.have) {
		if from+int64(n) <= int64(w.have) {
			return w.buf[from : from+int64(n)], nil
		}
		kept = copy(w.buf, w.buf[from:w.have])
	}
	want := int(min(int64(len(w.buf)), w.end-w.pos))
	got, err := w.f.ReadAt(w.buf[kept:want], w.pos+int64(kept))
	got += kept
	w.at, w.have = w.pos, got
	if got >= n {
		return w.buf[:n], nil
	}
	if err == io.EOF {
		err = fmt.Errorf("file ends at %d, not at %d: %w", w.pos+int64(got), w.end, ErrCorrupt)
	}
	return nil, err
}

// batchSize reads a batch's size from its first bytes, up to BatchHeaderLen of them, in this package's errors.
func batchSize(b []byte, pos int64) (int, error) {
	size, err := protocol.BatchSize(b)
	switch {
	case err == nil && len(b) < protocol.BatchHeaderLen, errors.Is(err, protocol.ErrShort):
		return 0, errPartial
	case errors.Is(err, protocol.ErrMagic):
		return 0, fmt.Errorf("batch at %d: %w: %w", pos, ErrUnsupportedMagic, err)
	case err != nil:
		return 0, fmt.Errorf("batch at %d: %w: %w", pos, ErrCorrupt, err)
	}
	return size, nil
}
