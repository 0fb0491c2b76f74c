package inspect

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"

	"oncelog/protocol"
)

// What ends a scan before the end of the file.
var (
	errTail   = errors.New("not a whole batch") // what is left is too short
	errBatch  = errors.New("not a batch")       // its length or magic can't be
	errFormat = errors.New("message format 0 or 1, which isn't supported")
)

const (
	magicEnd   = 17 // bytes of a batch up to its magic
	sizeOffset = 8
	frameLen   = 12 // bytes that a batch's length doesn't count
	minLength  = 14 // what a length is at least
)

// scanner reads a `.log` batch by batch. It keeps one batch, or scanBuffer if that is more, in memory.
type scanner struct {
	f    io.ReaderAt
	size int64 // of the file
	pos  int64 // of the next batch

	buf  []byte
	at   int64 // position of buf[0]
	have int   // valid bytes in buf
}

const scanBuffer = 256 << 10

func newScanner(f io.ReaderAt, size int64) *scanner {
	return &scanner{f: f, size: size, buf: make([]byte, min(size, scanBuffer))}
}

// next gives the next batch, valid until the following call, and where it lies. The error is io.EOF at the end of the file; else s.pos is where
// the batch should have been.
func (s *scanner) next() (protocol.Batch, int64, error) {
	pos := s.pos
	left := s.size - pos
	if left <= 0 {
		return nil, pos, io.EOF
	}
	if left < magicEnd {
		return nil, pos, fmt.Errorf("%d bytes: %w", left, errTail)
	}
	head, err := s.bytes(magicEnd)
	if err != nil {
		return nil, pos, err
	}
	length := int64(int32(binary.BigEndian.Uint32(head[sizeOffset:])))
	magic := head[magicEnd-1]
	switch {
	case length < minLength:
		return nil, pos, fmt.Errorf("length %d: %w", length, errBatch)
	case frameLen+length > left:
		return nil, pos, fmt.Errorf("%d of %d bytes: %w", left, frameLen+length, errTail)
	case magic < 2:
		return nil, pos, errFormat
	case magic != 2 || frameLen+length < protocol.BatchHeaderLen:
		return nil, pos, fmt.Errorf("length %d, magic %d: %w", length, magic, errBatch)
	}
	b, err := s.bytes(int(frameLen + length))
	if err != nil {
		return nil, pos, err
	}
	s.pos += int64(len(b))
	return b, pos, nil
}

// bytes reads n bytes at s.pos, which the file has.
func (s *scanner) bytes(n int) ([]byte, error) {
	if from := s.pos - s.at; from >= 0 && from+int64(n) <= int64(s.have) {
		return s.buf[from : from+int64(n) : from+int64(n)], nil
	}
	if n > len(s.buf) {
		s.buf = make([]byte, n)
	}
	want := int(min(int64(len(s.buf)), s.size-s.pos))
	got, err := s.f.ReadAt(s.buf[:want], s.pos)
	s.at, s.have = s.pos, got
	if got >= n {
		return s.buf[:n:n], nil
	}
	s.have = 0
	if err == nil || errors.Is(err, io.EOF) {
		err = io.ErrUnexpectedEOF
	}
	return nil, err
}
