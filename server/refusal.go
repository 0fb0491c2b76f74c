package server

import (
	"reflect"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// refusal is the response to req that gives the same error everywhere: at the
// top if there is a place, and for each thing that the request names. It is for
// faults, where no handler knows better: it finds fields by their names. Nil if
// the request has no response (Produce with acks=0).
func refusal(req kmsg.Request, code *kerr.Error) kmsg.Response {
	if p, ok := req.(*kmsg.ProduceRequest); ok && p.Acks == 0 {
		return nil
	}
	resp := req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	refuseStruct(reflect.ValueOf(resp).Elem(), reflect.ValueOf(req).Elem(), int64(code.Code))
	return resp
}

// refuseStruct fills out from the fields of in that have the same name, and
// tells whether an error was put anywhere.
func refuseStruct(out, in reflect.Value, code int64) bool {
	refused := false
	for i := range out.NumField() {
		name := out.Type().Field(i).Name
		field := out.Field(i)
		if name == "ErrorCode" {
			field.SetInt(code)
			refused = true
			continue
		}
		from := in
		if in.Kind() == reflect.Struct {
			from = in.FieldByName(name)
		}
		if !from.IsValid() {
			continue
		}
		switch {
		case field.Kind() == reflect.Slice && field.Type().Elem().Kind() == reflect.Struct && from.Kind() == reflect.Slice:
			refused = refuseSlice(field, from, code) || refused
		case field.Type() == from.Type() && field.Kind() != reflect.Slice && name != "Version" && name != "UnknownTags":
			field.Set(from)
		}
	}
	return refused
}

// refuseSlice makes one element of out per element of in. The elements of in may
// be structs, or the plain ids that the elements of out begin with.
func refuseSlice(out, in reflect.Value, code int64) bool {
	rows := reflect.MakeSlice(out.Type(), in.Len(), in.Len())
	refused := false
	for i := range in.Len() {
		row := rows.Index(i)
		if d, ok := row.Addr().Interface().(interface{ Default() }); ok {
			d.Default()
		}
		from := in.Index(i)
		if from.Kind() != reflect.Struct && row.NumField() > 0 && row.Field(0).Type() == from.Type() {
			row.Field(0).Set(from)
		}
		refused = refuseStruct(row, from, code) || refused
	}
	if refused {
		out.Set(rows)
	}
	return refused
}
