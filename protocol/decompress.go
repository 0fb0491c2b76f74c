package protocol

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"sync"

	"github.com/klauspost/compress/gzip"
	"github.com/klauspost/compress/snappy"
	"github.com/klauspost/compress/zstd"
	"github.com/pierrec/lz4/v4"
)

// Limits of what decoding may hold in memory, whatever the bytes claim.
const (
	// zstdStreamWindow is the largest window that is decoded as a stream; each such decoder keeps at most about this much.
	zstdStreamWindow = 8 << 20
	// zstdWholeMax is how much a frame with a larger window may decode to; such frames (compression levels above 19) are decoded in
	// one piece that grows with its content, one at a time.
	zstdWholeMax = 64 << 20
	// snappyExpansion bounds what a snappy block may claim: three bytes of it copy 64 at most.
	snappyExpansion = 22
)

// decoder reads the decompressed bytes of a payload. free gives it back to its pool; it is not used afterwards.
type decoder interface {
	io.Reader
	reset(src []byte) error
	free()
}

var (
	gzipReaders   = sync.Pool{New: func() any { return new(gzipDecoder) }}
	snappyReaders = sync.Pool{New: func() any { return new(snappyDecoder) }}
	lz4Readers    = sync.Pool{New: func() any { return &lz4Decoder{r: lz4.NewReader(nil)} }}
	zstdReaders   = sync.Pool{New: newZstdDecoder}
)

// newDecoder returns a decoder of src from a pool; errors are of ErrDecompress.
func newDecoder(c Codec, src []byte) (decoder, error) {
	var d decoder
	switch c {
	case CodecGzip:
		d = gzipReaders.Get().(*gzipDecoder)
	case CodecSnappy:
		d = snappyReaders.Get().(*snappyDecoder)
	case CodecLZ4:
		d = lz4Readers.Get().(*lz4Decoder)
	case CodecZstd:
		d = zstdReaders.Get().(*zstdDecoder)
	default:
		return nil, fmt.Errorf("%w: codec %d", ErrDecompress, c)
	}
	if err := d.reset(src); err != nil {
		d.free()
		return nil, fmt.Errorf("%w: %s: %w", ErrDecompress, c, err)
	}
	return d, nil
}

type gzipDecoder struct {
	src bytes.Reader
	r   gzip.Reader
}

func (d *gzipDecoder) reset(src []byte) error {
	d.src.Reset(src)
	return d.r.Reset(&d.src)
}

func (d *gzipDecoder) Read(p []byte) (int, error) { return d.r.Read(p) }

func (d *gzipDecoder) free() {
	d.src.Reset(nil)
	gzipReaders.Put(d)
}

type lz4Decoder struct {
	src bytes.Reader
	r   *lz4.Reader
}

func (d *lz4Decoder) reset(src []byte) error {
	d.src.Reset(src)
	d.r.Reset(&d.src)
	return nil
}

func (d *lz4Decoder) Read(p []byte) (int, error) { return d.r.Read(p) }

func (d *lz4Decoder) free() {
	d.src.Reset(nil)
	d.r.Reset(&d.src)
	lz4Readers.Put(d)
}

// xerialMagic begins a payload in the block framing of Java's snappy library; a raw block has none.
var xerialMagic = []byte{0x82, 'S', 'N', 'A', 'P', 'P', 'Y', 0}

const xerialHeaderLen = 16 // magic, version, lowest compatible version

var errSnappyBlock = errors.New("invalid block")

// snappyDecoder reads both framings: xerial's blocks, and one raw block.
type snappyDecoder struct {
	src    []byte // blocks to come
	framed bool
	block  []byte // decoded, the whole buffer
	pos    int    // read of block
}

func (d *snappyDecoder) reset(src []byte) error {
	d.framed = bytes.HasPrefix(src, xerialMagic) && len(src) >= xerialHeaderLen
	if d.framed {
		src = src[xerialHeaderLen:]
	}
	d.src, d.block, d.pos = src, d.block[:0], 0
	return nil
}

func (d *snappyDecoder) Read(p []byte) (int, error) {
	for d.pos == len(d.block) {
		if len(d.src) == 0 {
			return 0, io.EOF
		}
		if err := d.next(); err != nil {
			return 0, err
		}
	}
	n := copy(p, d.block[d.pos:])
	d.pos += n
	return n, nil
}

// next decodes the next block.
func (d *snappyDecoder) next() error {
	block := d.src
	d.src = nil
	if d.framed {
		if bytes.HasPrefix(block, xerialMagic) { // streams can be put behind each other
			if len(block) < xerialHeaderLen {
				return io.ErrUnexpectedEOF
			}
			d.src = block[xerialHeaderLen:]
			return nil
		}
		if len(block) < 4 {
			return io.ErrUnexpectedEOF
		}
		n := binary.BigEndian.Uint32(block)
		if uint64(n) > uint64(len(block)-4) {
			return io.ErrUnexpectedEOF
		}
		block, d.src = block[4:4+n], block[4+n:]
	}
	size, err := snappy.DecodedLen(block)
	if err != nil {
		return err
	}
	if size > snappyExpansion*len(block) {
		return errSnappyBlock
	}
	d.pos = 0
	d.block, err = snappy.DecodeStrict(d.block[:cap(d.block)], block)
	return err
}

func (d *snappyDecoder) free() {
	d.src = nil
	if cap(d.block) > maxPooled {
		d.block = nil
	}
	snappyReaders.Put(d)
}

// zstdDecoder decodes a stream of small windows, or a frame with a large one as a whole.
type zstdDecoder struct {
	src   bytes.Reader
	r     *zstd.Decoder
	whole *bytes.Reader // the decoded frame with the large window
}

func newZstdDecoder() any {
	r, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxWindow(zstdStreamWindow))
	if err != nil {
		panic(err) // the options are constants
	}
	return &zstdDecoder{r: r}
}

var (
	// zstdWholeTurn is held while a frame with a large window is decoded.
	zstdWholeTurn = make(chan struct{}, 1)
	zstdWhole     = sync.OnceValue(func() *zstd.Decoder {
		r, err := zstd.NewReader(nil, zstd.WithDecoderConcurrency(1), zstd.WithDecoderLowmem(true), zstd.WithDecoderMaxMemory(zstdWholeMax), zstd.WithDecoderMaxWindow(128<<20))
		if err != nil {
			panic(err) // the options are constants
		}
		return r
	})
)

func (d *zstdDecoder) reset(src []byte) error {
	var h zstd.Header
	if err := h.Decode(src); err != nil {
		return err
	}
	window := h.WindowSize
	if h.SingleSegment {
		window = h.FrameContentSize
	}
	if window <= zstdStreamWindow {
		d.src.Reset(src)
		return d.r.Reset(&d.src)
	}
	zstdWholeTurn <- struct{}{}
	content, err := zstdWhole().DecodeAll(src, nil)
	<-zstdWholeTurn
	if err != nil {
		return err
	}
	d.whole = bytes.NewReader(content)
	return nil
}

func (d *zstdDecoder) Read(p []byte) (int, error) {
	if d.whole != nil {
		return d.whole.Read(p)
	}
	return d.r.Read(p)
}

func (d *zstdDecoder) free() {
	d.whole = nil
	d.src.Reset(nil)
	_ = d.r.Reset(nil)
	zstdReaders.Put(d)
}

// Decompress returns what src, compressed with c, is compressed from; CodecNone gives src itself. Content of more than limit bytes is ErrTooLarge,
// what is not of the codec's form ErrDecompress.
func Decompress(src []byte, c Codec, limit int) ([]byte, error) {
	if c == CodecNone {
		if len(src) > limit {
			return nil, fmt.Errorf("%w: %d bytes, at most %d", ErrTooLarge, len(src), limit)
		}
		return src, nil
	}
	d, err := newDecoder(c, src)
	if err != nil {
		return nil, err
	}
	defer d.free()
	content, err := io.ReadAll(io.LimitReader(d, int64(limit)+1))
	switch {
	case err != nil:
		return nil, fmt.Errorf("%w: %s: %w", ErrDecompress, c, err)
	case len(content) > limit:
		return nil, fmt.Errorf("%w: more than %d bytes", ErrTooLarge, limit)
	}
	return content, nil
}
