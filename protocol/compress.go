package protocol

import (
	"encoding/binary"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Kafka's levels when none is configured.
const (
	defaultLZ4Level  = 9
	defaultZstdLevel = 3
)

// zstdWindow is the window of what we compress, in bytes: that of zstd's default level, which every reader has.
const zstdWindow = 2 << 20

// encoder writes compressed bytes to its target. Close ends the payload, then free gives the encoder back to its pool.
type encoder interface {
	io.WriteCloser
	reset(dst io.Writer)
	free()
}

// newEncoder returns an encoder from a pool. Level is Kafka's (compression.gzip.level and so on), 0 the default; levels that the codec does not
// have are taken as the nearest one. Snappy has none.
func newEncoder(c Codec, level int, dst io.Writer) (encoder, error) {
	var e encoder
	var err error
	switch c {
	case CodecGzip:
		e, err = newGzipEncoder(level)
	case CodecSnappy:
		e = snappyWriters.Get().(*snappyEncoder)
	case CodecLZ4:
		e, err = newLZ4Encoder(level)
	case CodecZstd:
		e, err = newZstdEncoder(level)
	default:
		return nil, fmt.Errorf("%s does not compress", c)
	}
	if err != nil {
		return nil, fmt.Errorf("%s level %d: %w", c, level, err)
	}
	e.reset(dst)
	return e, nil
}

// appender is an io.Writer to a slice that takes at most max bytes (no limit if negative).
type appender struct {
	dst []byte
	max int // of len(dst)
}

func (a *appender) Write(p []byte) (int, error) {
	if a.max >= 0 && len(p) > a.max-len(a.dst) {
		return 0, ErrTooLarge
	}
	a.dst = append(a.dst, p...)
	return len(p), nil
}

// Compress appends src, compressed by c, to dst. Level is Kafka's (compression.gzip.level and so on); 0 is the codec's default.
func Compress(dst, src []byte, c Codec, level int) ([]byte, error) {
	if c == CodecNone {
		return append(dst, src...), nil
	}
	out := appender{dst: dst, max: -1}
	e, err := newEncoder(c, level, &out)
	if err != nil {
		return dst, err
	}
	defer e.free()
	if _, err := e.Write(src); err != nil {
		return dst, err
	}
	if err := e.Close(); err != nil {
		return dst, err
	}
	return out.dst, nil
}

// gzipWriters has a pool for each level from -1 to 9.
var gzipWriters [11]sync.Pool

type gzipEncoder struct {
	*gzip.Writer
	pool *sync.Pool
}

func newGzipEncoder(level int) (encoder, error) {
	if level == 0 {
		level = gzip.DefaultCompression
	}
	level = min(max(level, gzip.DefaultCompression), gzip.BestCompression)
	pool := &gzipWriters[level+1]
	if e, ok := pool.Get().(*gzipEncoder); ok {
		return e, nil
	}
	w, err := gzip.NewWriterLevel(nil, level)
	return &gzipEncoder{Writer: w, pool: pool}, err
}

func (e *gzipEncoder) reset(dst io.Writer) { e.Reset(dst) }

func (e *gzipEncoder) free() {
	e.Reset(nil)
	e.pool.Put(e)
}

var lz4Writers = sync.Pool{New: func() any { return &lz4Encoder{Writer: lz4.NewWriter(nil)} }}

type lz4Encoder struct{ *lz4.Writer }

// lz4Levels are the levels from 1 on; all above are taken as the last.
var lz4Levels = [...]lz4.CompressionLevel{lz4.Fast, lz4.Level1, lz4.Level2, lz4.Level3, lz4.Level4, lz4.Level5, lz4.Level6, lz4.Level7, lz4.Level8, lz4.Level9}

func newLZ4Encoder(level int) (encoder, error) {
	if level == 0 {
		level = defaultLZ4Level
	}
	e := lz4Writers.Get().(*lz4Encoder)
	e.Reset(nil)
	// Java's reader wants independent blocks, and its writer makes blocks of 64 KiB without checksums.
	return e, e.Apply(lz4.CompressionLevelOption(lz4Levels[min(max(level-1, 0), len(lz4Levels)-1)]),
		lz4.BlockSizeOption(lz4.Block64Kb), lz4.ChecksumOption(false), lz4.ConcurrencyOption(1))
}

func (e *lz4Encoder) reset(dst io.Writer) { e.Reset(dst) }

func (e *lz4Encoder) free() {
	e.Reset(nil)
	lz4Writers.Put(e)
}

// zstdWriters has a pool for each of the levels that the library has.
var zstdWriters [zstd.SpeedBestCompression + 1]sync.Pool

type zstdEncoder struct {
	*zstd.Encoder
	pool *sync.Pool
}

func newZstdEncoder(level int) (encoder, error) {
	if level == 0 {
		level = defaultZstdLevel
	}
	speed := zstd.EncoderLevelFromZstd(level)
	pool := &zstdWriters[speed]
	if e, ok := pool.Get().(*zstdEncoder); ok {
		return e, nil
	}
	w, err := zstd.NewWriter(nil, zstd.WithEncoderLevel(speed), zstd.WithEncoderConcurrency(1), zstd.WithLowerEncoderMem(true),
		zstd.WithWindowSize(zstdWindow), zstd.WithEncoderCRC(false), zstd.WithZeroFrames(true))
	return &zstdEncoder{Encoder: w, pool: pool}, err
}

func (e *zstdEncoder) reset(dst io.Writer) { e.Reset(dst) }

func (e *zstdEncoder) free() {
	e.Reset(nil)
	e.pool.Put(e)
}

// snappyBlock is how much one block of xerial's framing holds, in bytes, as Java writes it.
const snappyBlock = 32 << 10

var snappyWriters = sync.Pool{New: func() any { return new(snappyEncoder) }}

// snappyEncoder writes xerial's framing, as Java's clients do.
type snappyEncoder struct {
	dst     io.Writer
	started bool
	plain   []byte // to be compressed, at most snappyBlock
	packed  []byte // a block with its length
}

func (e *snappyEncoder) reset(dst io.Writer) { e.dst, e.started, e.plain = dst, false, e.plain[:0] }

func (e *snappyEncoder) Write(p []byte) (int, error) {
	for rest := p; len(rest) > 0; {
		n := min(len(rest), snappyBlock-len(e.plain))
		e.plain = append(e.plain, rest[:n]...)
		rest = rest[n:]
		if len(e.plain) == snappyBlock {
			if err := e.flush(); err != nil {
				return 0, err
			}
		}
	}
	return len(p), nil
}

func (e *snappyEncoder) flush() error {
	if err := e.start(); err != nil {
		return err
	}
	if need := 4 + snappy.MaxEncodedLen(len(e.plain)); cap(e.packed) < need {
		e.packed = make([]byte, need)
	}
	packed := snappy.Encode(e.packed[4:cap(e.packed)], e.plain)
	binary.BigEndian.PutUint32(e.packed[:4], uint32(len(packed)))
	e.plain = e.plain[:0]
	_, err := e.dst.Write(e.packed[:4+len(packed)])
	return err
}

func (e *snappyEncoder) start() error {
	if e.started {
		return nil
	}
	e.started = true
	_, err := e.dst.Write([]byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0, 0, 0, 0, 1, 0, 0, 0, 1})
	return err
}

func (e *snappyEncoder) Close() error {
	if len(e.plain) > 0 {
		return e.flush()
	}
	return e.start()
}

func (e *snappyEncoder) free() {
	e.dst = nil
	snappyWriters.Put(e)
}
