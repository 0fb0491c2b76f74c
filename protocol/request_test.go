package protocol

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"math/rand/v2"
	"reflect"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// everyRequest calls f for every request that kmsg has, in every version.
func everyRequest(f func(key, version int16)) {
	for key := range int16(kmsg.MaxKey + 1) {
		if req := kmsg.RequestForKey(key); req != nil {
			for version := range req.MaxVersion() + 1 {
				f(key, version)
			}
		}
	}
}

// fill gives every field of v a random value; arrays get n elements or so.
func fill(r *rand.Rand, v reflect.Value, n int) {
	if tags, ok := v.Addr().Interface().(*kmsg.Tags); ok {
		if r.IntN(4) == 0 {
			tags.Set(1000+r.Uint32N(1000), []byte("unknown"))
		}
		return
	}
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Type().Field(i).Name != "Version" {
				fill(r, v.Field(i), n)
			}
		}
	case reflect.Pointer:
		if r.IntN(3) > 0 {
			v.Set(reflect.New(v.Type().Elem()))
			fill(r, v.Elem(), n)
		}
	case reflect.Slice:
		length := r.IntN(n + 1)
		v.Set(reflect.MakeSlice(v.Type(), length, length))
		for i := range length {
			fill(r, v.Index(i), n)
		}
	case reflect.Array:
		for i := range v.Len() {
			fill(r, v.Index(i), n)
		}
	case reflect.String:
		v.SetString(fmt.Sprint(r.IntN(1000000)))
	case reflect.Bool:
		v.SetBool(r.IntN(2) == 0)
	case reflect.Float64:
		v.SetFloat(r.Float64())
	case reflect.Uint8, reflect.Uint16, reflect.Uint32, reflect.Uint64:
		v.SetUint(r.Uint64() >> (64 - v.Type().Bits()))
	default:
		v.SetInt(r.Int64() >> (64 - v.Type().Bits()))
	}
}

// TestShapesAreKmsgs: the walk accepts exactly what kmsg writes, to the last byte, for every request, version and field.
func TestShapesAreKmsgs(t *testing.T) {
	r := rand.New(rand.NewPCG(7, 8))
	everyRequest(func(key, version int16) {
		s := shapeOf(key)
		for range 20 {
			req := kmsg.RequestForKey(key)
			req.SetVersion(version)
			fill(r, reflect.ValueOf(req).Elem(), 4)
			if flexible := version >= s.flexible; flexible != req.IsFlexible() {
				t.Fatalf("%s v%d: flexible %v", kmsg.NameForKey(key), version, flexible)
			}
			body := req.AppendTo(nil)
			w := walker{src: body, version: version, flexible: version >= s.flexible, budget: 1 << 30}
			if err := w.structure(s.fields); err != nil || len(w.src) > 0 {
				t.Fatalf("%s v%d: %v, %d of %d bytes left", kmsg.NameForKey(key), version, err, len(w.src), len(body))
			}
			got, err := ParseRequest(RequestHeader{Key: key, Version: version}, body)
			if err != nil {
				t.Fatalf("%s v%d: %v", kmsg.NameForKey(key), version, err)
			}
			if again := got.AppendTo(nil); !bytes.Equal(again, body) {
				t.Fatalf("%s v%d: %x, want %x", kmsg.NameForKey(key), version, again, body)
			}
			if len(body) > 0 {
				if _, err := ParseRequest(RequestHeader{Key: key, Version: version}, body[:r.IntN(len(body))]); !errors.Is(err, ErrMalformed) {
					t.Fatalf("%s v%d cut short: %v", kmsg.NameForKey(key), version, err)
				}
			}
		}
	})
}

// swell finds the slices in v, one after the other, fills each with n zero elements, calls f, and empties it again.
func swell(v reflect.Value, n int, f func()) {
	switch v.Kind() {
	case reflect.Struct:
		for i := range v.NumField() {
			if v.Field(i).CanSet() {
				swell(v.Field(i), n, f)
			}
		}
	case reflect.Pointer:
		v.Set(reflect.New(v.Type().Elem()))
		swell(v.Elem(), n, f)
	case reflect.Slice:
		v.Set(reflect.MakeSlice(v.Type(), n, n))
		f()
		v.Set(v.Slice(0, 1))
		swell(v.Index(0), n, f)
		v.Set(reflect.Zero(v.Type()))
	}
}

// TestArraysCannotTakeMoreThanTheyCarry decodes bodies of very many of the smallest elements there can be.
func TestArraysCannotTakeMoreThanTheyCarry(t *testing.T) {
	shapes() // which are made once
	elements, overhead := 100_000, 1
	if raceEnabled { // which makes append allocate twice
		elements, overhead = 10_000, 2
	}
	everyRequest(func(key, version int16) {
		if version != 0 && version != kmsg.RequestForKey(key).MaxVersion() {
			return
		}
		req := kmsg.RequestForKey(key)
		req.SetVersion(version)
		swell(reflect.ValueOf(req).Elem(), elements, func() {
			body := req.AppendTo(nil)
			var err error
			took := allocated(func() { _, err = ParseRequest(RequestHeader{Key: key, Version: version}, body) })
			if err != nil && !errors.Is(err, ErrMalformed) {
				t.Errorf("%s v%d: %v", kmsg.NameForKey(key), version, err)
			}
			if limit := overhead * (decodeSlack + 2*DecodeFactor*len(body)); int(took) > limit || err != nil && took > 64<<10 {
				t.Errorf("%s v%d: %d bytes took %d: %v", kmsg.NameForKey(key), version, len(body), took, err)
			}
		})
	})
}

// TestClaimedArraysTakeNothing has bodies that are all one byte, so that each of them claims arrays and tags of many sizes.
func TestClaimedArraysTakeNothing(t *testing.T) {
	for _, b := range []byte{0x00, 0x01, 0x02, 0x03, 0x10, 0x7f, 0x80, 0xff} {
		body := bytes.Repeat([]byte{b}, 4<<20)
		everyRequest(func(key, version int16) {
			if version != 0 && version != kmsg.RequestForKey(key).MaxVersion() {
				return
			}
			if took := allocated(func() { _, _ = ParseRequest(RequestHeader{Key: key, Version: version}, body) }); took > 2*DecodeFactor*4<<20 {
				t.Errorf("%s v%d of %#x: %d MB", kmsg.NameForKey(key), version, b, took>>20)
			}
		})
	}
	tags := append(AppendUvarint([]byte{0, 0, 0, 0, 0, 0, 0, 0, 0, 0}, 1<<20), bytes.Repeat([]byte{9, 0}, 1<<20)...)
	if took := allocated(func() { _, _ = ParseRequest(RequestHeader{Key: 3, Version: 9}, tags) }); took > 1<<20 {
		t.Errorf("tags: %d KB", took>>10)
	}
}

func TestBatchesOfAProduceRequestAreNotCopied(t *testing.T) {
	req := kmsg.NewPtrProduceRequest()
	req.SetVersion(9)
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic = "t"
	part := kmsg.NewProduceRequestTopicPartition()
	part.Records = make([]byte, 1<<20)
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	body := req.AppendTo(nil)
	if took := allocated(func() {
		got, err := ParseRequest(RequestHeader{Key: 0, Version: 9}, body)
		if err != nil {
			t.Fatal(err)
		}
		got.(*kmsg.ProduceRequest).Topics[0].Partitions[0].Records[0] = 7
	}); took > 10<<10 {
		t.Errorf("%d bytes", took)
	}
	if !bytes.Contains(body, []byte{7}) {
		t.Error("the records are a copy")
	}
}

func TestNullIsRefusedWhereKafkaRefusesIt(t *testing.T) {
	for _, c := range []struct {
		key, version int16
		body         []byte
		ok           bool
	}{
		{10, 0, []byte{0xff, 0xff}, false},                             // FindCoordinator: the key
		{10, 3, []byte{0, 0, 0}, false},                                // the same, compact
		{3, 0, []byte{0xff, 0xff, 0xff, 0xff}, false},                  // Metadata: topics, which may be null from v1 on
		{3, 1, []byte{0xff, 0xff, 0xff, 0xff}, true},                   //
		{12, 3, []byte{0, 1, 'g', 0, 0, 0, 1, 0, 0, 0xff, 0xff}, true}, // Heartbeat: the instance id
	} {
		if _, err := ParseRequest(RequestHeader{Key: c.key, Version: c.version}, c.body); (err == nil) != c.ok || err != nil && !errors.Is(err, ErrMalformed) {
			t.Errorf("%d v%d %x: %v", c.key, c.version, c.body, err)
		}
	}
}

func TestRequestHeaders(t *testing.T) {
	id := "client"
	empty := ""
	for _, c := range []struct {
		key, version int16
		id           *string
	}{{0, 3, &id}, {0, 9, &id}, {18, 0, nil}, {18, 3, nil}, {17, 1, &empty}, {3, 13, &empty}, {18, 3, &id}} {
		req := kmsg.RequestForKey(c.key)
		req.SetVersion(c.version)
		frame := AppendRequest([]byte("xx"), 77, c.id, req)[2:]
		if int(binary.BigEndian.Uint32(frame)) != len(frame)-4 {
			t.Errorf("size of %x", frame)
		}
		h, body, err := ParseRequestHeader(frame[4:])
		want := RequestHeader{Key: c.key, Version: c.version, CorrelationID: 77, HasClientID: c.id != nil}
		if c.id != nil {
			want.ClientID = *c.id
		}
		if err != nil || h != want || !bytes.Equal(body, req.AppendTo(nil)) {
			t.Errorf("%+v, %x, %v; want %+v", h, body, err, want)
		}
		for n := range len(frame) - 4 - len(body) {
			if _, _, err := ParseRequestHeader(frame[4 : 4+n]); !errors.Is(err, ErrMalformed) {
				t.Errorf("%d bytes: %v", n, err)
			}
		}
	}
	// Unknown tags of a flexible header are skipped; a negative client id length is null.
	h, body, err := ParseRequestHeader([]byte{0, 18, 0, 3, 0, 0, 0, 1, 0xff, 0xfe, 2, 0, 1, 'x', 9, 0, 'B'})
	if err != nil || h.HasClientID || string(body) != "B" {
		t.Errorf("%+v, %q, %v", h, body, err)
	}
	if h, _, err := ParseRequestHeader([]byte{0x27, 0x0f, 0, 3, 0, 0, 0, 1, 0, 0}); !errors.Is(err, ErrUnknownAPI) || h.Key != 9999 {
		t.Errorf("%+v, %v", h, err)
	}
	if _, err := ParseRequest(RequestHeader{Key: -1}, nil); !errors.Is(err, ErrUnknownAPI) {
		t.Error(err)
	}
}

func TestResponseHeaders(t *testing.T) {
	for _, c := range []struct {
		key, version int16
		headerLen    int
	}{{18, 0, 4}, {18, 4, 4}, {3, 8, 4}, {3, 9, 5}, {0, 3, 4}} {
		resp := kmsg.ResponseForKey(c.key)
		resp.SetVersion(c.version)
		frame := AppendResponse([]byte("x"), 5, resp)[1:]
		if n := len(frame) - 4; int(binary.BigEndian.Uint32(frame)) != n || n-len(resp.AppendTo(nil)) != c.headerLen {
			t.Errorf("%+v: %x", c, frame)
		}
		again := kmsg.ResponseForKey(c.key)
		again.SetVersion(c.version)
		if err := parseResponse(frame[4:], again); err != nil {
			t.Errorf("%+v: %v", c, err)
		}
	}
}

func TestResponseFitsAPooledBuffer(t *testing.T) {
	resp := kmsg.NewPtrProduceResponse()
	resp.SetVersion(9)
	topic := kmsg.NewProduceResponseTopic()
	topic.Topic = "topic"
	topic.Partitions = append(topic.Partitions, kmsg.NewProduceResponseTopicPartition())
	resp.Topics = append(resp.Topics, topic)
	buf := make([]byte, 0, 4096)
	if n := testing.AllocsPerRun(100, func() { buf = AppendResponse(buf[:0], 1, resp) }); n > 0 {
		t.Errorf("%v allocations", n)
	}
}

func BenchmarkAppendResponse(b *testing.B) {
	resp := kmsg.NewPtrProduceResponse()
	resp.SetVersion(9)
	topic := kmsg.NewProduceResponseTopic()
	topic.Partitions = append(topic.Partitions, kmsg.NewProduceResponseTopicPartition())
	resp.Topics = append(resp.Topics, topic)
	var buf []byte
	b.ReportAllocs()
	for b.Loop() {
		buf = AppendResponse(buf[:0], 1, resp)
	}
}

func BenchmarkParseRequest(b *testing.B) {
	req := kmsg.NewPtrProduceRequest()
	req.SetVersion(11)
	topic := kmsg.NewProduceRequestTopic()
	topic.Topic = "some-topic"
	part := kmsg.NewProduceRequestTopicPartition()
	part.Records = make([]byte, 1000)
	topic.Partitions = append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	id := "client"
	frame := AppendRequest(nil, 1, &id, req)[4:]
	b.ReportAllocs()
	for b.Loop() {
		h, body, err := ParseRequestHeader(frame)
		if err == nil {
			_, err = ParseRequest(h, body)
		}
		if err != nil {
			b.Fatal(err)
		}
	}
}

// However many bytes a request has: its arrays have a bounded number of elements.
func TestElementsAreBounded(t *testing.T) {
	for n, ok := range map[int]bool{decodeMost: true, decodeMost + 1: false} {
		req := kmsg.NewPtrDescribeGroupsRequest()
		req.Version = 5
		req.Groups = make([]string, n)
		body := append(req.AppendTo(nil), make([]byte, 3*n)...) // bytes behind a request are no matter
		_, err := ParseRequest(RequestHeader{Key: 15, Version: 5}, body)
		if (err == nil) != ok || err != nil && !errors.Is(err, ErrMalformed) {
			t.Errorf("%d elements: %v", n, err)
		}
	}
}
