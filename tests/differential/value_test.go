package differential

import (
	"encoding/hex"
	"fmt"
	"reflect"
	"strconv"
	"strings"
	"unicode"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// reader parses the fields of a request: Name=value, where a value is a word, a "text", null, [rows of fields; ...],
// {fields}, [words ...], #topic, or a function's result: batch(...), rep(x,100).
type reader struct {
	text  string
	at    int
	field string // being read
	names *names
}

// fill sets the fields of the struct that p points to.
func (r *reader) fill(p reflect.Value) error {
	for {
		r.space()
		if r.at == len(r.text) || strings.IndexByte("];)}", r.text[r.at]) >= 0 {
			return nil
		}
		name, ok := r.until("=")
		if !ok {
			return r.errorf("want Field=value")
		}
		field := p.Elem().FieldByName(name)
		if !field.IsValid() {
			return r.errorf("%s has no field %s", p.Elem().Type().Name(), name)
		}
		r.field = name
		if err := r.value(field); err != nil {
			return fmt.Errorf("%s: %w", name, err)
		}
		if name == "Topic" {
			r.fillID(p, field)
		}
	}
}

// fillID gives the id along with the name, where a request has one or the other by its version.
func (r *reader) fillID(p, name reflect.Value) {
	id := p.Elem().FieldByName("TopicID")
	if name.Kind() == reflect.String && id.IsValid() && id.IsZero() {
		id.Set(reflect.ValueOf(r.names.id("#" + strings.ReplaceAll(name.String(), r.names.tag, "%"))))
	}
}

func (r *reader) value(v reflect.Value) error {
	if r.word("null") {
		switch v.Kind() {
		case reflect.Pointer, reflect.Slice:
			v.SetZero()
			return nil
		}
		return r.errorf("%s can't be null", v.Type())
	}
	switch v.Kind() {
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		return r.value(v.Elem())
	case reflect.Slice:
		if v.Type().Elem().Kind() == reflect.Uint8 {
			b, err := r.bytes()
			v.SetBytes(b)
			return err
		}
		return r.slice(v)
	case reflect.Array:
		ref := r.token()
		if !strings.HasPrefix(ref, "#") {
			return r.errorf("want #topic or #number")
		}
		v.Set(reflect.ValueOf(r.names.id(ref)))
		return nil
	case reflect.String:
		s, err := r.string()
		v.SetString(s)
		return err
	case reflect.Struct:
		if !r.word("{") {
			return r.errorf("want {")
		}
		err := r.fill(v.Addr())
		if err == nil && !r.word("}") {
			err = r.errorf("want }")
		}
		return err
	}
	return r.scalar(v)
}

func (r *reader) scalar(v reflect.Value) error {
	text := r.token()
	if kind := kindOf(text); kind != 0 {
		value, err := r.names.wire(text)
		if err != nil {
			return err
		}
		text = value
	} else {
		r.names.made[string(madeUpKind(r.field))+text] = true
	}
	switch v.Kind() {
	case reflect.Bool:
		b, err := strconv.ParseBool(text)
		v.SetBool(b)
		return err
	case reflect.Float64:
		f, err := strconv.ParseFloat(text, 64)
		v.SetFloat(f)
		return err
	case reflect.Uint16, reflect.Uint32:
		n, err := strconv.ParseUint(text, 10, 32)
		v.SetUint(n)
		return err
	}
	n, err := r.names.integer(text)
	if err == nil && v.OverflowInt(n) {
		err = fmt.Errorf("%s overflows", text)
	}
	v.SetInt(n)
	return err
}

// madeUpKind tells which values of a field brokers make up.
func madeUpKind(field string) byte {
	switch field {
	case "ProducerID", "ProducerIDFilters":
		return kindProducer
	case "SessionID":
		return kindSession
	}
	return 0
}

// kindOf tells whether a word names a number that a broker made up.
func kindOf(text string) byte {
	if len(text) > 2 && text[0] == '$' && (text[1] == kindProducer || text[1] == kindSession) {
		return text[1]
	}
	return 0
}

// integer is a number; now, now-1000 and now+1000 are times.
func (n *names) integer(text string) (int64, error) {
	if d, ok := strings.CutPrefix(text, "now"); ok {
		var delta int64
		var err error
		if d != "" {
			delta, err = strconv.ParseInt(d, 10, 64)
		}
		return n.now.UnixMilli() + delta, err
	}
	return strconv.ParseInt(text, 0, 64)
}

// slice is [a b c] of scalars, [fields; fields] of structs.
func (r *reader) slice(v reflect.Value) error {
	if !r.word("[") {
		return r.errorf("want [")
	}
	v.Set(reflect.MakeSlice(v.Type(), 0, 0))
	for !r.word("]") {
		if r.at == len(r.text) {
			return r.errorf("want ]")
		}
		e := reflect.New(v.Type().Elem())
		var err error
		at := r.at
		if e.Elem().Kind() == reflect.Struct {
			err = r.row(e.Elem())
			r.word(";")
		} else {
			err = r.value(e.Elem())
		}
		if err == nil && r.at == at {
			err = r.errorf("want an element or ]")
		}
		if err != nil {
			return err
		}
		v.Set(reflect.Append(v, e.Elem()))
	}
	return nil
}

func (r *reader) row(v reflect.Value) error {
	if d, ok := v.Addr().Interface().(interface{ Default() }); ok {
		d.Default()
	}
	r.word("{}") // a row of nothing but defaults
	return r.fill(v.Addr())
}

func (r *reader) string() (string, error) {
	r.space()
	if strings.HasPrefix(r.text[r.at:], "rep(") {
		b, err := r.bytes()
		return string(b), err
	}
	if r.at < len(r.text) && r.text[r.at] == '"' {
		q, err := strconv.QuotedPrefix(r.text[r.at:])
		if err != nil {
			return "", r.errorf("%v", err)
		}
		r.at += len(q)
		s, _ := strconv.Unquote(q)
		return r.names.wire(s)
	}
	return r.names.wire(r.token())
}

// bytes are pieces joined by +.
func (r *reader) bytes() ([]byte, error) {
	all := []byte{}
	for {
		piece, err := r.piece()
		if err != nil {
			return nil, err
		}
		all = append(all, piece...)
		if !r.word("+") {
			return all, nil
		}
	}
}

func (r *reader) piece() ([]byte, error) {
	r.space()
	name, arg, ok := r.call()
	if !ok {
		s, err := r.string()
		return []byte(s), err
	}
	arg, err := r.names.wire(arg)
	if err != nil {
		return nil, err
	}
	switch name {
	case "batch":
		return r.names.batch(arg)
	case "messages":
		return messageSet(arg)
	case "hex":
		return hex.DecodeString(strings.ReplaceAll(arg, " ", ""))
	case "rep":
		text, count, _ := strings.Cut(arg, ",")
		n, err := strconv.Atoi(count)
		return []byte(strings.Repeat(text, max(n, 0))), err
	case "sub":
		m := kmsg.NewConsumerMemberMetadata()
		m.Version, m.Topics = 1, strings.Fields(arg)
		return m.AppendTo(nil), nil
	}
	return nil, r.errorf("no function %s", name)
}

// call is a name right before a text in parentheses, which nest only within quotes.
func (r *reader) call() (name, arg string, ok bool) {
	rest := r.text[r.at:]
	open := strings.IndexFunc(rest, func(c rune) bool { return !unicode.IsLetter(c) })
	if open <= 0 || rest[open] != '(' {
		return "", "", false
	}
	end := strings.IndexByte(rest, ')')
	if end < 0 {
		return "", "", false
	}
	r.at += end + 1
	return rest[:open], rest[open+1 : end], true
}

func (r *reader) space() {
	for r.at < len(r.text) && r.text[r.at] == ' ' {
		r.at++
	}
}

// word takes w if it is next.
func (r *reader) word(w string) bool {
	r.space()
	rest, ok := strings.CutPrefix(r.text[r.at:], w)
	if !ok || w == "null" && rest != "" && strings.IndexByte(" ];", rest[0]) < 0 {
		return false
	}
	r.at += len(w)
	return true
}

// token is what comes before a space or the end of a row.
func (r *reader) token() string {
	r.space()
	rest := r.text[r.at:]
	n := strings.IndexAny(rest, " ];)}")
	if n < 0 {
		n = len(rest)
	}
	r.at += n
	return rest[:n]
}

func (r *reader) until(mark string) (string, bool) {
	before, _, ok := strings.Cut(r.text[r.at:], mark)
	if ok {
		r.at += len(before) + len(mark)
	}
	return before, ok
}

func (r *reader) errorf(format string, args ...any) error {
	return fmt.Errorf("column %d of %q: %w", r.at, r.text, fmt.Errorf(format, args...))
}

// fillStruct sets the fields of what p points to, from all of the text.
func (r *reader) fillStruct(p any) error {
	if err := r.fill(reflect.ValueOf(p)); err != nil {
		return err
	}
	if r.at < len(r.text) {
		return r.errorf("not understood")
	}
	return nil
}

// parseRequest makes the request of an API that the text describes.
func parseRequest(key int16, version int16, text string, n *names) (kmsg.Request, error) {
	req := kmsg.RequestForKey(key)
	if d, ok := req.(interface{ Default() }); ok {
		d.Default()
	}
	req.SetVersion(version)
	return req, (&reader{text: text, names: n}).fillStruct(req)
}
