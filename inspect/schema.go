package inspect

import (
	"encoding/base64"
	"errors"
	"fmt"
	"math"
	"strconv"
	"strings"
	"sync"

	"oncelog/protocol"
)

// errMessage is bytes that are not the message they should be.
var errMessage = errors.New("malformed message")

// never is a version that no message has.
const never = math.MaxInt16

// message is the shape of one message of Kafka's.
type message struct {
	kind     string // which family it belongs to, and whether it is a key or a value there
	apiKey   int16
	name     string
	min, max int16 // versions
	flexible int16 // the first one with compact lengths and tagged fields
	fields   []field
}

// field is a field of a message.
type field struct {
	name     string
	kind     string // bool, int8 … int64, uint16, float64, string, bytes, uuid; "" for a struct
	array    bool
	from, to int16 // versions that have it
	nullable int16 // the first version in which it may be null
	tag      int   // -1 unless it is a tagged one
	absent   any   // what it is where it isn't written
	fields   []field
}

// messages reads messageShapes. A line is
//
//	kind apiKey name versions flexible field…
//
// and a field name:type[@from-to][?nullable][#tag][=default], where a type in front of which is [] is an array, and a struct's type is empty and
// followed by { field… }.
var messages = sync.OnceValue(func() []message {
	var all []message
	for line := range strings.Lines(strings.ReplaceAll(messageShapes, "\\\n", "")) {
		words := strings.Fields(line)
		if len(words) == 0 {
			continue
		}
		m := message{kind: words[0], name: words[2], apiKey: mustVersion(words[1]), flexible: never}
		from, to, _ := strings.Cut(words[3], "-")
		m.min, m.max = mustVersion(from), mustVersion(to)
		if words[4] != "-" {
			m.flexible = mustVersion(words[4])
		}
		m.fields, _ = parseFields(words[5:])
		all = append(all, m)
	}
	return all
})

// messageOf gives the message of a kind and key, nil if there is none.
func messageOf(kind string, apiKey int16) *message {
	for i := range messages() {
		if m := &messages()[i]; m.kind == kind && m.apiKey == apiKey {
			return m
		}
	}
	return nil
}

// messageNamed gives the message of that name, which exists.
func messageNamed(name string) *message {
	for i := range messages() {
		if m := &messages()[i]; m.name == name {
			return m
		}
	}
	panic("no message " + name)
}

func mustVersion(s string) int16 {
	n, err := strconv.ParseInt(s, 10, 16)
	if err != nil {
		panic(err)
	}
	return int16(n)
}

// parseFields reads fields up to the bracket that closes them, and gives the words behind it.
func parseFields(words []string) (fields []field, rest []string) {
	for len(words) > 0 && words[0] != "}" {
		f := parseField(strings.TrimSuffix(words[0], "{"))
		opens := strings.HasSuffix(words[0], "{")
		if words = words[1:]; opens {
			f.fields, words = parseFields(words)
			words = words[1:]
		}
		f.absent = f.zero(f.absent)
		fields = append(fields, f)
	}
	return fields, words
}

func parseField(word string) field {
	f := field{to: never, nullable: never, tag: -1}
	word, value, given := strings.Cut(word, "=")
	if given {
		f.absent = value
	}
	word, tag, tagged := strings.Cut(word, "#")
	if tagged {
		f.tag = int(mustVersion(tag))
	}
	word, nullable, isNullable := strings.Cut(word, "?")
	if isNullable {
		f.nullable = mustVersion(nullable)
	}
	word, versions, limited := strings.Cut(word, "@")
	if limited {
		from, to, _ := strings.Cut(versions, "-")
		f.from = mustVersion(from)
		if to != "" {
			f.to = mustVersion(to)
		}
	}
	f.name, f.kind, _ = strings.Cut(word, ":")
	f.kind, f.array = strings.CutPrefix(f.kind, "[]")
	return f
}

// zero is the value of a field that isn't written; given is its default as text, or nil.
func (f *field) zero(given any) any {
	text, _ := given.(string)
	switch {
	case text == "null":
		return nil
	case f.array:
		return []any{}
	}
	switch f.kind {
	case "":
		var o object
		for i := range f.fields {
			o = append(o, member{f.fields[i].name, f.fields[i].absent})
		}
		return o
	case "bool":
		return text == "true"
	case "string":
		return text
	case "bytes":
		return []byte{}
	case "uuid":
		return protocol.UUID{}
	case "float64":
		return float64(0)
	}
	n, _ := strconv.ParseInt(text, 10, 64) // "" is 0
	return n
}

// object is a message or a struct within one, in the order of its schema. Values are bool, int64, float64, string, []byte, protocol.UUID, []any,
// object, or nil for null.
type object []member

type member struct {
	name  string
	value any
}

// get gives a member's value, nil if the message's version doesn't have it.
func (o object) get(name string) any {
	for _, m := range o {
		if m.name == name {
			return m.value
		}
	}
	return nil
}

func (o object) text(name string) string {
	s, _ := o.get(name).(string)
	return s
}

func (o object) int(name string) int64 {
	n, _ := o.get(name).(int64)
	return n
}

// set replaces a member's value.
func (o object) set(name string, value any) {
	for i := range o {
		if o[i].name == name {
			o[i].value = value
		}
	}
}

// appendJSON appends a value as Kafka's tools print it: no blanks, bytes in base64.
func appendJSON(dst []byte, value any) []byte {
	switch v := value.(type) {
	case nil:
		return append(dst, "null"...)
	case bool:
		return strconv.AppendBool(dst, v)
	case int64:
		return strconv.AppendInt(dst, v, 10)
	case float64:
		return append(dst, javaFloat(v)...)
	case string:
		return appendQuoted(dst, v)
	case []byte:
		return append(base64.StdEncoding.AppendEncode(append(dst, '"'), v), '"')
	case protocol.UUID:
		return append(append(append(dst, '"'), v.String()...), '"')
	case []any:
		dst = append(dst, '[')
		for i, e := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = appendJSON(dst, e)
		}
		return append(dst, ']')
	case object:
		dst = append(dst, '{')
		for i, m := range v {
			if i > 0 {
				dst = append(dst, ',')
			}
			dst = append(appendQuoted(dst, m.name), ':')
			dst = appendJSON(dst, m.value)
		}
		return append(dst, '}')
	}
	panic(fmt.Sprintf("no JSON for %T", value))
}
