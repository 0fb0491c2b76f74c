package protocol

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"
)

//go:generate go run schema_gen.go

// ErrMalformed is a request that cannot be read: cut short, or made to take far more memory than it has bytes.
var ErrMalformed = errors.New("malformed request")

// DecodeFactor and the others are what decoding a request may take: kmsg checks an array's length against the bytes that are left, then makes a slice
// of structs, so that a few MB of hostile bytes would become hundreds. Real requests stay well below these limits.
const (
	DecodeFactor  = 8       // bytes of memory for each byte of the body
	decodeSlack   = 1 << 20 // bytes of memory that every request may take
	decodeMost    = 1 << 19 // elements of all arrays: what handlers and answers take for each is a multiple of what it takes here
	stringCost    = 8       // an allocation's rounding
	unknownTag    = 128     // an entry in a map, and a share of the map
	neverFlexible = math.MaxInt16
)

// shape is what a request looks like on the wire, for every version.
type shape struct {
	flexible int16 // first flexible version
	fields   []field
}

// field is a field of a struct. kind is one of
//
//	'n'  size bytes            's'  string            'b'  bytes
//	'['  array of structs      '('  array of a primitive, the first of fields
//	'{'  struct                '?'  struct or null
//
// In requestShapes a field may be followed by ?N, null from version N on, and by @N or @N-M, the versions that have it; #N: before it is a tag.
type field struct {
	kind     byte
	from, to int16 // versions that have it
	null     int16 // first version in which a string, bytes or an array may be null
	tag      int32 // -1 unless tagged
	size     int   // bytes on the wire of 'n'; bytes in memory of an element of an array, and of what '?' points to
	fields   []field
}

// shapes reads requestShapes: an index by API key, nil where there is no such request.
var shapes = sync.OnceValue(func() []*shape {
	var all []*shape
	for line := range strings.Lines(strings.TrimSpace(requestShapes)) {
		words := strings.Fields(line)
		key, flexible := mustAtoi(words[0]), mustAtoi(words[2])
		for len(all) <= key {
			all = append(all, nil)
		}
		s := &shape{flexible: int16(flexible)}
		if flexible < 0 {
			s.flexible = neverFlexible
		}
		s.fields, _ = parseFields(words[3:])
		all[key] = s
	}
	return all
})

func mustAtoi(s string) int {
	n, err := strconv.Atoi(s)
	if err != nil {
		panic(err)
	}
	return n
}

// parseFields reads fields up to the bracket that closes them and returns the words from that bracket on.
func parseFields(words []string) (fields []field, rest []string) {
	for len(words) > 0 && !strings.ContainsRune("])}", rune(words[0][0])) {
		f := field{tag: -1, to: math.MaxInt16, null: math.MaxInt16}
		word := words[0]
		words = words[1:]
		if strings.HasPrefix(word, "#") {
			tag, w, _ := strings.Cut(word[1:], ":")
			f.tag, word = int32(mustAtoi(tag)), w
		}
		switch f.kind = word[0]; f.kind {
		case '[', '(', '{', '?':
			if size := strings.Trim(word, "[({?"); size != "" {
				f.size = mustAtoi(size)
			}
			f.fields, words = parseFields(words)
			word, words = words[0], words[1:]
		case 's', 'b':
		default:
			size, _, _ := strings.Cut(word, "@")
			f.kind, f.size = 'n', mustAtoi(size)
		}
		word, versions, ok := strings.Cut(word, "@")
		if _, null, ok := strings.Cut(word[1:], "?"); ok {
			f.null = int16(mustAtoi(null))
		}
		if ok {
			from, to, bounded := strings.Cut(versions, "-")
			f.from = int16(mustAtoi(from))
			if bounded {
				f.to = int16(mustAtoi(to))
			}
		}
		fields = append(fields, f)
	}
	return fields, words
}

// walker goes through a body as the decoder would and counts the memory that decoding would take.
type walker struct {
	src      []byte
	version  int16
	flexible bool
	cost     int
	budget   int
	elements int
}

var (
	errCutShort = fmt.Errorf("%w: cut short", ErrMalformed)
	errNull     = fmt.Errorf("%w: null in a field that cannot be null", ErrMalformed)
)

// checkBody verifies that body holds a request of that shape and that decoding it stays within the limits.
func (s *shape) checkBody(version int16, body []byte) error {
	w := walker{src: body, version: version, flexible: version >= s.flexible, budget: decodeSlack + DecodeFactor*len(body)}
	return w.structure(s.fields)
}

func (w *walker) structure(fields []field) error {
	for i := range fields {
		f := &fields[i]
		if f.tag >= 0 || w.version < f.from || w.version > f.to {
			continue
		}
		if err := w.field(f); err != nil {
			return err
		}
	}
	if w.flexible {
		return w.tags(fields)
	}
	return nil
}

func (w *walker) field(f *field) error {
	switch f.kind {
	case 'n':
		return w.skip(f.size)
	case 's':
		n, err := w.length(f, 2)
		if err != nil || n < 0 {
			return err
		}
		if err := w.pay(n + stringCost); err != nil {
			return err
		}
		return w.skip(n)
	case 'b': // decoded without a copy
		n, err := w.length(f, 4)
		if err != nil || n < 0 {
			return err
		}
		return w.skip(n)
	case '{':
		return w.structure(f.fields)
	case '?':
		return w.nullable(f)
	default:
		return w.array(f)
	}
}

func (w *walker) nullable(f *field) error {
	if len(w.src) == 0 {
		return errCutShort
	}
	present := int8(w.src[0])
	w.src = w.src[1:]
	if present == -1 {
		return nil
	}
	if err := w.pay(f.size); err != nil {
		return err
	}
	return w.structure(f.fields)
}

func (w *walker) array(f *field) error {
	n, err := w.length(f, 4)
	if err != nil || n <= 0 {
		return err
	}
	if n > len(w.src) { // no element is shorter than a byte
		return errCutShort
	}
	if err := w.pay(n * f.size); err != nil {
		return err
	}
	if w.elements += n; w.elements > decodeMost {
		return fmt.Errorf("%w: arrays of more than %d elements", ErrMalformed, decodeMost)
	}
	if f.kind == '(' && f.fields[0].kind == 'n' {
		return w.skip(n * f.fields[0].size)
	}
	for range n {
		if f.kind == '(' {
			err = w.field(&f.fields[0])
		} else {
			err = w.structure(f.fields)
		}
		if err != nil {
			return err
		}
	}
	return nil
}

func (w *walker) tags(fields []field) error {
	if len(w.src) > 0 && w.src[0] == 0 {
		w.src = w.src[1:]
		return nil
	}
	count, err := w.uvarint()
	if err != nil {
		return err
	}
	for ; count > 0; count-- {
		tag, err := w.uvarint()
		if err != nil {
			return err
		}
		size, err := w.uvarint()
		if err != nil {
			return err
		}
		if uint64(size) > uint64(len(w.src)) {
			return errCutShort
		}
		rest := w.src[size:]
		w.src = w.src[:size]
		if err := w.tagged(fields, tag); err != nil {
			return err
		}
		w.src = rest
	}
	return nil
}

func (w *walker) tagged(fields []field, tag uint32) error {
	for i := range fields {
		if f := &fields[i]; f.tag >= 0 && uint32(f.tag) == tag {
			return w.field(f)
		}
	}
	return w.pay(unknownTag)
}

// length reads the length of a string or bytes (size bytes wide) or of an array, less than 0 for null if f may be null.
func (w *walker) length(f *field, size int) (int, error) {
	n, err := w.rawLength(size)
	if err == nil && n < 0 && w.version < f.null {
		return n, errNull
	}
	return n, err
}

func (w *walker) rawLength(size int) (int, error) {
	if w.flexible {
		n, err := w.uvarint()
		return int(n) - 1, err
	}
	if len(w.src) < size {
		return 0, errCutShort
	}
	src := w.src
	w.src = w.src[size:]
	if size == 2 {
		return int(int16(binary.BigEndian.Uint16(src))), nil
	}
	return int(int32(binary.BigEndian.Uint32(src))), nil
}

func (w *walker) uvarint() (uint32, error) {
	v, n := Uvarint(w.src)
	if n <= 0 {
		return 0, errCutShort
	}
	w.src = w.src[n:]
	return v, nil
}

func (w *walker) skip(n int) error {
	if n > len(w.src) {
		return errCutShort
	}
	w.src = w.src[n:]
	return nil
}

func (w *walker) pay(n int) error {
	if w.cost += n; w.cost > w.budget {
		return fmt.Errorf("%w: arrays that take more than %d bytes to decode", ErrMalformed, w.budget)
	}
	return nil
}
