package server

import (
	"errors"
	"math"
	"strconv"

	"google.golang.org/protobuf/encoding/protowire"
)

// errOTLP is a payload that is no OpenTelemetry MetricsData message.
var errOTLP = errors.New("no OpenTelemetry metrics")

// otlpPoint is one number that a client has pushed.
type otlpPoint struct {
	name       string
	attributes []otlpAttribute
	counter    bool // never falls but to begin anew
	delta      bool // what came since the last push; else the number as it is
	value      float64
}

type otlpAttribute struct{ key, value string }

// readOTLP reads an OpenTelemetry MetricsData message (metrics.proto of opentelemetry-proto 1.0) and hands on its points: gauges and sums, and of
// histograms the count and the sum, under their names with _count and _sum. What it doesn't know it skips. Strings are copies. An error may come
// after some points.
func readOTLP(data []byte, each func(otlpPoint)) error {
	return otlpFields(data, func(resource otlpField) error {
		if resource.number != 1 {
			return nil
		}
		return otlpFields(resource.bytes, func(scope otlpField) error {
			if scope.number != 2 {
				return nil
			}
			return otlpFields(scope.bytes, func(metric otlpField) error {
				if metric.number != 2 {
					return nil
				}
				return readOTLPMetric(metric.bytes, each)
			})
		})
	})
}

// otlpField is one field of a message: its number, and its value in one of two forms.
type otlpField struct {
	number protowire.Number
	bytes  []byte // of a message or string; nil for numbers
	bits   uint64 // of a number
}

func (f otlpField) double() float64 { return math.Float64frombits(f.bits) }

// otlpFields takes a message apart.
func otlpFields(b []byte, each func(otlpField) error) error {
	for len(b) > 0 {
		number, kind, n := protowire.ConsumeTag(b)
		if n < 0 {
			return errOTLP
		}
		b = b[n:]
		f := otlpField{number: number}
		switch kind {
		case protowire.VarintType:
			f.bits, n = protowire.ConsumeVarint(b)
		case protowire.Fixed64Type:
			f.bits, n = protowire.ConsumeFixed64(b)
		case protowire.BytesType:
			f.bytes, n = protowire.ConsumeBytes(b)
		default:
			n = protowire.ConsumeFieldValue(number, kind, b)
		}
		if n < 0 {
			return errOTLP
		}
		b = b[n:]
		if err := each(f); err != nil {
			return err
		}
	}
	return nil
}

// Numbers of the fields of a Metric that hold its points.
const (
	otlpGauge     protowire.Number = 5
	otlpSum       protowire.Number = 7
	otlpHistogram protowire.Number = 9
)

// readOTLPMetric reads one metric. The name comes before the points as a rule, but need not.
func readOTLPMetric(b []byte, each func(otlpPoint)) error {
	var name string
	var data otlpField
	err := otlpFields(b, func(f otlpField) error {
		switch f.number {
		case 1:
			name = string(f.bytes)
		case otlpGauge, otlpSum, otlpHistogram:
			data = f
		}
		return nil
	})
	if err != nil || name == "" {
		return err
	}
	shape := otlpPoint{name: name}
	if err := otlpFields(data.bytes, func(f otlpField) error {
		switch {
		case f.number == 2 && data.number != otlpGauge:
			shape.delta = f.bits == 1
		case f.number == 3 && data.number == otlpSum:
			shape.counter = f.bits != 0
		}
		return nil
	}); err != nil {
		return err
	}
	return otlpFields(data.bytes, func(f otlpField) error {
		switch {
		case f.number != 1:
			return nil
		case data.number == otlpHistogram:
			return readOTLPHistogram(f.bytes, shape, each)
		}
		return readOTLPNumber(f.bytes, shape, each)
	})
}

func readOTLPNumber(b []byte, p otlpPoint, each func(otlpPoint)) error {
	err := otlpFields(b, func(f otlpField) error {
		switch f.number {
		case 4:
			p.value = f.double()
		case 6:
			p.value = float64(int64(f.bits))
		case 7:
			return p.addAttribute(f.bytes)
		}
		return nil
	})
	if err == nil {
		each(p)
	}
	return err
}

func readOTLPHistogram(b []byte, p otlpPoint, each func(otlpPoint)) error {
	count, sum := p, p
	count.name, sum.name = p.name+"_count", p.name+"_sum"
	count.counter = true
	err := otlpFields(b, func(f otlpField) error {
		switch f.number {
		case 4:
			count.value = float64(f.bits)
		case 5:
			sum.value = f.double()
		case 9:
			return p.addAttribute(f.bytes)
		}
		return nil
	})
	if err == nil {
		count.attributes, sum.attributes = p.attributes, p.attributes
		each(count)
		each(sum)
	}
	return err
}

// addAttribute reads a KeyValue. Values that are no texts or numbers are left out.
func (p *otlpPoint) addAttribute(b []byte) error {
	var a otlpAttribute
	plain := false
	err := otlpFields(b, func(f otlpField) error {
		switch f.number {
		case 1:
			a.key = string(f.bytes)
		case 2:
			return otlpFields(f.bytes, func(v otlpField) error {
				plain = true
				switch v.number {
				case 1:
					a.value = string(v.bytes)
				case 2:
					a.value = strconv.FormatBool(v.bits != 0)
				case 3:
					a.value = strconv.FormatInt(int64(v.bits), 10)
				case 4:
					a.value = strconv.FormatFloat(v.double(), 'g', -1, 64)
				default:
					plain = false
				}
				return nil
			})
		}
		return nil
	})
	if err == nil && plain && a.key != "" {
		p.attributes = append(p.attributes, a)
	}
	return err
}
