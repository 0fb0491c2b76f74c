package differential

import (
	"fmt"
	"reflect"
	"slices"
	"strconv"
	"strings"
	"unicode"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// printer shows an answer as text: the fields that are not at their default, in the order of the protocol, with what
// differs from run to run replaced by names.
type printer struct {
	names   *names
	command *command
	codes   map[int16]bool // the error codes that it has met
	indent  string         // of the row being shown
}

// lineWidth is how long a row may be before its rows go on lines of their own.
const lineWidth = 130

// alwaysShown are fields whose default, which is 0, is worth seeing.
var alwaysShown = map[string]bool{"Partition": true, "Generation": true, "BaseOffset": true, "ApiKey": true}

// response shows a whole answer.
func (p *printer) response(resp kmsg.Response) string {
	text := p.row(reflect.ValueOf(resp).Elem(), "")
	if text == "" {
		text = "ok"
	}
	return text
}

// row shows the fields of a struct.
func (p *printer) row(v reflect.Value, indent string) string {
	p.learn(v)
	p.indent = indent
	var fields []string
	var tables []string // arrays of structs, which come last
	fresh := reflect.New(v.Type())
	if d, ok := fresh.Interface().(interface{ Default() }); ok {
		d.Default()
	}
	for i := range v.NumField() {
		f := v.Type().Field(i)
		if f.Name == "Version" || !f.IsExported() {
			continue
		}
		field := v.Field(i)
		if f.Name == "UnknownTags" {
			if n := field.Addr().Interface().(*kmsg.Tags).Len(); n > 0 {
				fields = append(fields, fmt.Sprintf("UnknownTags=%d", n))
			}
			continue
		}
		p.collect(f.Name, field)
		if p.isDefault(f.Name, field, fresh.Elem().Field(i)) {
			continue
		}
		if field.Kind() == reflect.Slice && !field.IsNil() && field.Type().Elem().Kind() == reflect.Struct && !p.masked(f.Name) {
			if t := p.table(f.Name, field, indent); t != "" {
				tables = append(tables, t)
			}
			continue
		}
		fields = append(fields, f.Name+"="+p.value(f.Name, field))
	}
	return strings.Join(append(fields, tables...), " ")
}

// isDefault tells whether a field needn't be shown. A list without elements is one, null is none where empty is possible.
func (p *printer) isDefault(name string, v, fresh reflect.Value) bool {
	if alwaysShown[name] && v.CanInt() {
		return false
	}
	if v.Kind() == reflect.Slice {
		return v.Len() == 0 && v.IsNil() == fresh.IsNil()
	}
	return reflect.DeepEqual(v.Interface(), fresh.Interface())
}

func (p *printer) masked(name string) bool { return slices.Contains(p.command.mask, name) }

// table shows rows: behind each other if they are short, else each on a line.
func (p *printer) table(name string, v reflect.Value, indent string) string {
	var rows []string
	size := 0
	for i := range v.Len() {
		e := v.Index(i)
		if p.hidden(e) {
			continue
		}
		row := p.row(e, indent+"  ")
		rows = append(rows, row)
		size += len(row) + 2
	}
	if len(rows) == 0 && v.Len() > 0 {
		return ""
	}
	if p.command.unordered {
		slices.Sort(rows)
	}
	if one := name + "=[" + strings.Join(rows, "; ") + "]"; len(indent)+size < lineWidth && !strings.Contains(one, "\n") {
		return one
	}
	sep := "\n" + indent + "  "
	return name + "=[" + sep + strings.Join(rows, ";"+sep) + "]"
}

// hidden tells whether the step left a row out.
func (p *printer) hidden(row reflect.Value) bool {
	match := func(f rowFilter) (has, ok bool) {
		field := row.FieldByName(f.field)
		if !field.IsValid() {
			return false, false
		}
		return true, f.pattern.MatchString(p.value(f.field, field))
	}
	for _, f := range p.command.without {
		if _, ok := match(f); ok {
			return true
		}
	}
	for _, f := range p.command.only {
		if has, ok := match(f); has && !ok {
			return true
		}
	}
	return false
}

// learn takes the id of a topic from a row that has its name as well.
func (p *printer) learn(v reflect.Value) {
	id, name := v.FieldByName("TopicID"), v.FieldByName("Topic")
	if !id.IsValid() || !name.IsValid() {
		return
	}
	if name.Kind() == reflect.Pointer {
		if name.IsNil() {
			return
		}
		name = name.Elem()
	}
	p.names.learn(name.String(), [16]byte(id.Bytes()))
}

// collect notes error codes.
func (p *printer) collect(name string, v reflect.Value) {
	if strings.HasSuffix(name, "ErrorCode") && v.Kind() == reflect.Int16 {
		p.codes[int16(v.Int())] = true
	}
}

func (p *printer) value(name string, v reflect.Value) string {
	if p.masked(name) {
		return "*"
	}
	switch v.Kind() {
	case reflect.Pointer:
		if v.IsNil() {
			return "null"
		}
		return p.value(name, v.Elem())
	case reflect.String:
		return p.text(name, v.String())
	case reflect.Array:
		return p.names.topicID([16]byte(v.Bytes()))
	case reflect.Struct:
		return "{" + p.row(v, "") + "}"
	case reflect.Slice:
		return p.slice(name, v)
	case reflect.Bool:
		return strconv.FormatBool(v.Bool())
	case reflect.Float64:
		return strconv.FormatFloat(v.Float(), 'g', -1, 64)
	case reflect.Uint16, reflect.Uint32:
		return strconv.FormatUint(v.Uint(), 10)
	}
	return p.number(name, v)
}

func (p *printer) number(name string, v reflect.Value) string {
	n := v.Int()
	switch {
	case strings.HasSuffix(name, "ErrorCode"):
		if n == 0 {
			return "NONE"
		}
		if err, ok := kerr.ErrorForCode(int16(n)).(*kerr.Error); ok && err.Code == int16(n) {
			return err.Message
		}
	case name == "FinalizedFeaturesEpoch":
		return "*"
	case name == "Port" && n == int64(p.names.port):
		return "$port"
	case v.Kind() == reflect.Int64:
		if text, ok := p.names.time(n); ok {
			return text
		}
	}
	if kind := madeUpKind(name); kind != 0 {
		return p.names.number(kind, n)
	}
	return strconv.FormatInt(n, 10)
}

func (p *printer) slice(name string, v reflect.Value) string {
	if v.IsNil() {
		return "null"
	}
	if v.Type().Elem().Kind() == reflect.Uint8 {
		if name == "RecordBatches" {
			return p.batches(v.Bytes())
		}
		return p.text(name, string(v.Bytes()))
	}
	var all []string
	for i := range v.Len() {
		all = append(all, p.value(name, v.Index(i)))
	}
	if p.command.unordered {
		slices.Sort(all)
	}
	return "[" + strings.Join(all, " ") + "]"
}

// text shows a string, in quotes unless it is a plain word.
func (p *printer) text(name, s string) string {
	switch {
	case name == "Documentation":
		return "*"
	case name == "Host" && s == p.names.host:
		return "$host"
	}
	s = p.names.shown(s)
	if plain(s) {
		return s
	}
	return strconv.Quote(s)
}

func plain(s string) bool {
	return s != "" && s != "null" && !strings.ContainsFunc(s, func(c rune) bool {
		return unicode.IsSpace(c) || !unicode.IsPrint(c) || strings.ContainsRune(`[];"=`, c)
	})
}
