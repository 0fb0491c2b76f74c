package inspect

import (
	"encoding/binary"
	"fmt"
	"math"

	"oncelog/protocol"
)

// decode reads a message of a version that it has. Members that the version doesn't have are left out, and so are tagged ones that are as when not
// written: what Kafka shows of it. Bytes behind the message are ignored.
func (m *message) decode(data []byte, version int16) (object, error) {
	r := wire{src: data, version: version, flexible: version >= m.flexible}
	o := r.object(m.fields)
	if r.err != nil {
		return nil, fmt.Errorf("%s version %d: %w", m.name, version, r.err)
	}
	return o, nil
}

// wire takes values off src. The first thing that doesn't fit sets err, and from then on every value is zero.
type wire struct {
	src      []byte
	version  int16
	flexible bool
	err      error
}

// fault is what is wrong with a message, in our words and in Kafka's.
type fault struct{ ours, kafkas string }

func (f *fault) Error() string { return f.ours }
func (f *fault) Unwrap() error { return errMessage }

func (r *wire) fail(kafkas, format string, args ...any) {
	if r.err == nil {
		r.err = &fault{fmt.Sprintf(format, args...), kafkas}
	}
	r.src = nil
}

// take gives n bytes of a value of a fixed length, zeros if there are less.
func (r *wire) take(n int) []byte {
	if n > len(r.src) {
		r.fail("null", "%d bytes wanted, %d left", n, len(r.src))
		return make([]byte, n)
	}
	b := r.src[:n:n]
	r.src = r.src[n:]
	return b
}

// takeBlob gives n bytes, none if there are less.
func (r *wire) takeBlob(n int) []byte {
	if n > len(r.src) {
		r.fail(fmt.Sprintf("Error reading byte array of %d byte(s): only %d byte(s) available", n, len(r.src)), "%d bytes wanted, %d left", n, len(r.src))
		return nil
	}
	return r.take(n)
}

func (r *wire) uvarint() int {
	v, n := binary.Uvarint(r.src)
	if n <= 0 || v > math.MaxInt32 {
		r.fail("null", "no length")
		return 0
	}
	r.src = r.src[n:]
	return int(v)
}

func (r *wire) object(fields []field) object {
	o := make(object, 0, len(fields))
	for i := range fields {
		f := &fields[i]
		if r.version < f.from || r.version > f.to {
			continue
		}
		value := f.absent
		if f.tag < 0 {
			value = r.value(f)
		}
		o = append(o, member{f.name, value})
	}
	if r.flexible {
		r.tags(fields, o)
	}
	return o.withoutAbsent(fields)
}

// tags reads the tagged fields behind a struct; those that aren't known are passed over.
func (r *wire) tags(fields []field, o object) {
	for range r.uvarint() {
		tag, size := r.uvarint(), r.uvarint()
		if r.err != nil {
			return
		}
		body := wire{src: r.takeBlob(size), version: r.version, flexible: true}
		for i := range fields {
			if f := &fields[i]; f.tag == tag && r.version >= f.from && r.version <= f.to {
				o.set(f.name, body.value(f))
			}
		}
		if r.err == nil {
			r.err = body.err
		}
	}
}

// withoutAbsent drops the tagged members that are as when not written.
func (o object) withoutAbsent(fields []field) object {
	kept := o[:0]
	for _, m := range o {
		f := fieldNamed(fields, m.name)
		if f.tag < 0 || !same(m.value, f.absent) {
			kept = append(kept, m)
		}
	}
	return kept
}

func fieldNamed(fields []field, name string) *field {
	for i := range fields {
		if fields[i].name == name {
			return &fields[i]
		}
	}
	panic("no field " + name)
}

// same compares values; lists and structs only in whether they are empty, or all as when not written.
func same(a, b any) bool {
	switch b := b.(type) {
	case []any:
		list, ok := a.([]any)
		return ok && len(list) == 0 && len(b) == 0
	case []byte:
		bytes, ok := a.([]byte)
		return ok && string(bytes) == string(b)
	case object:
		o, ok := a.(object)
		if !ok {
			return false
		}
		for _, m := range o {
			if !same(m.value, b.get(m.name)) {
				return false
			}
		}
		return true
	}
	switch a.(type) {
	case []any, []byte, object:
		return false
	}
	return a == b
}

func (r *wire) value(f *field) any {
	if f.array {
		return r.array(f)
	}
	if f.kind == "" && r.version >= f.nullable && r.absentStruct(f) {
		return nil
	}
	return r.scalar(f, r.version >= f.nullable)
}

// absentStruct reads what says whether a struct that may be null is there.
func (r *wire) absentStruct(f *field) bool {
	if f.tag >= 0 {
		return r.uvarint() == 0
	}
	return int8(r.take(1)[0]) < 0
}

func (r *wire) array(f *field) any {
	n := r.length(4)
	if n < 0 {
		if r.version < f.nullable {
			r.fail("non-nullable field "+f.name+" was serialized as null", "%s is null", f.name)
		}
		return nil
	}
	if n > len(r.src) { // each element has at least one byte
		r.fail(fmt.Sprintf("Tried to allocate a collection of size %d, but there are only %d bytes remaining.", n, len(r.src)),
			"%d elements in %d bytes", n, len(r.src))
		return nil
	}
	list := make([]any, 0, n)
	for range n {
		list = append(list, r.scalar(f, false))
		if r.err != nil {
			return nil
		}
	}
	return list
}

// length reads a length, compact or of the given number of bytes; -1 is null.
func (r *wire) length(size int) int {
	switch {
	case r.flexible:
		return r.uvarint() - 1
	case size == 2:
		return int(int16(binary.BigEndian.Uint16(r.take(2))))
	}
	return int(int32(binary.BigEndian.Uint32(r.take(4))))
}

func (r *wire) scalar(f *field, nullable bool) any {
	be := binary.BigEndian
	switch f.kind {
	case "":
		return r.object(f.fields)
	case "string", "bytes":
		return r.blob(f, nullable)
	case "uuid":
		return protocol.UUID(r.take(16))
	case "bool":
		return r.take(1)[0] != 0
	case "int8":
		return int64(int8(r.take(1)[0]))
	case "int16":
		return int64(int16(be.Uint16(r.take(2))))
	case "uint16":
		return int64(be.Uint16(r.take(2)))
	case "int32":
		return int64(int32(be.Uint32(r.take(4))))
	case "int64":
		return int64(be.Uint64(r.take(8)))
	case "float64":
		return math.Float64frombits(be.Uint64(r.take(8)))
	}
	panic("no type " + f.kind)
}

func (r *wire) blob(f *field, nullable bool) any {
	size := 4
	if f.kind == "string" {
		size = 2
	}
	n := r.length(size)
	if n < 0 {
		if !nullable {
			r.fail("non-nullable field "+f.name+" was serialized as null", "%s is null", f.name)
		}
		return nil
	}
	b := r.takeBlob(n)
	if f.kind == "string" {
		return javaText(b)
	}
	return b
}
