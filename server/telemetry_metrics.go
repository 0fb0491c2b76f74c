package server

import (
	"cmp"
	"slices"
	"strings"

	"github.com/prometheus/client_golang/prometheus"

	"oncelog/config"
)

// Bounds on the metrics of clients that are shown.
const (
	telemetryPointsMax       = 10_000 // of one push
	telemetrySeriesMax       = 50_000 // of all clients
	telemetryClientSeriesMax = 1_000  // of one client
	telemetryAttributesMax   = 16
	telemetryTextMax         = 200 // bytes of a name or of the value of a label
)

// telemetrySeries is one metric of one client, as it is shown. Its value is guarded by the telemetry's mu, the rest is immutable.
type telemetrySeries struct {
	family *telemetryFamily
	desc   *prometheus.Desc
	labels []string
	value  float64
}

// telemetryFamily is all series of one name: they are of one type.
type telemetryFamily struct {
	name    string
	counter bool
	series  int
}

// telemetryMetrics are what the broker counts of telemetry itself.
type telemetryMetrics struct {
	pushes, throttled, unknownSubscriptions, unreadable, dropped prometheus.Counter
}

func newTelemetryMetrics(r prometheus.Registerer, t *telemetry) telemetryMetrics {
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Namespace: "oncelog", Subsystem: "client_telemetry", Name: name, Help: help})
		r.MustRegister(c)
		return c
	}
	gauge := func(name, help string, value func() int) {
		r.MustRegister(prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "oncelog", Subsystem: "client_telemetry", Name: name, Help: help}, func() float64 {
			t.mu.Lock()
			defer t.mu.Unlock()
			return float64(value())
		}))
	}
	gauge("clients", "Client instances that have asked for a subscription or pushed metrics of late.", func() int { return len(t.clients) })
	gauge("series", "Metrics of clients that are shown.", func() int { return t.series })
	r.MustRegister(telemetryCollector{t})
	return telemetryMetrics{
		pushes:               counter("pushes_total", "Pushes of metrics by clients that were taken."),
		throttled:            counter("throttled_total", "Telemetry requests that came before their time."),
		unknownSubscriptions: counter("unknown_subscriptions_total", "Pushes for a subscription that is not the client's."),
		unreadable:           counter("unreadable_total", "Pushes that could not be decompressed or read."),
		dropped:              counter("dropped_series_total", "Metrics of clients that are not shown, for want of room or because their name is that of another kind."),
	}
}

// telemetryCollector shows the metrics of clients: kafka_client_producer_record_send_total for org.apache.kafka.producer.record.send.total.
type telemetryCollector struct{ t *telemetry }

// Describe says nothing: what there is depends on what clients push.
func (c telemetryCollector) Describe(chan<- *prometheus.Desc) {}

func (c telemetryCollector) Collect(ch chan<- prometheus.Metric) {
	for _, m := range c.t.shown() {
		ch <- m
	}
}

func (t *telemetry) shown() []prometheus.Metric {
	t.mu.Lock()
	defer t.mu.Unlock()
	shown := make([]prometheus.Metric, 0, t.series)
	for _, c := range t.clients {
		for _, s := range c.series {
			kind := prometheus.GaugeValue
			if s.family.counter {
				kind = prometheus.CounterValue
			}
			shown = append(shown, prometheus.MustNewConstMetric(s.desc, kind, s.value, s.labels...))
		}
	}
	return shown
}

// recordLocked takes one number that a client has pushed.
func (t *telemetry) recordLocked(c *telemetryClient, p otlpPoint) {
	names, values, ok := telemetryLabels(c, p.attributes)
	name := telemetryName(p.name)
	if !ok || len(name) > telemetryTextMax {
		t.metrics.dropped.Inc()
		return
	}
	key := name + "\x00" + strings.Join(names, "\x00") + "\x00" + strings.Join(values, "\x00")
	s := c.series[key]
	if s == nil {
		if s = t.newSeriesLocked(c, name, p.counter, names, values); s == nil {
			t.metrics.dropped.Inc()
			return
		}
		c.series[key] = s
	}
	if p.delta {
		s.value += p.value
	} else {
		s.value = p.value
	}
}

// newSeriesLocked makes room for a series, nil if there is none.
func (t *telemetry) newSeriesLocked(c *telemetryClient, name string, counter bool, names, values []string) *telemetrySeries {
	f := t.families[name]
	if t.series >= telemetrySeriesMax || len(c.series) >= telemetryClientSeriesMax || f != nil && f.counter != counter {
		return nil
	}
	if f == nil {
		f = &telemetryFamily{name: name, counter: counter}
		t.families[name] = f
	}
	f.series++
	t.series++
	return &telemetrySeries{family: f, labels: values, desc: prometheus.NewDesc(name, "Pushed by clients (KIP-714).", names, nil)}
}

func (t *telemetry) dropLocked(s *telemetrySeries) {
	t.series--
	if s.family.series--; s.family.series == 0 {
		delete(t.families, s.family.name)
	}
}

// telemetryName is a client's name for a metric as Prometheus takes it.
func telemetryName(name string) string {
	return "kafka_client_" + prometheusName(strings.TrimPrefix(name, "org.apache.kafka."))
}

// prometheusName makes what is no letter or digit an underscore.
func prometheusName(s string) string {
	return strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '_'
	}, s)
}

// telemetryLabels are who a client is, and the attributes of one of its points, ascending by name. It fails if they exceed the bounds.
func telemetryLabels(c *telemetryClient, attributes []otlpAttribute) (names, values []string, ok bool) {
	if len(attributes) > telemetryAttributesMax {
		return nil, nil, false
	}
	all := []otlpAttribute{}
	for _, property := range []string{config.ClientInstanceID, config.ClientID, config.ClientSoftwareName, config.ClientSoftwareVersion} {
		all = append(all, otlpAttribute{property, c.properties[property]})
	}
	for _, a := range attributes {
		name := strings.TrimLeft(prometheusName(a.key), "_0123456789")
		if name == "" || slices.ContainsFunc(all, func(b otlpAttribute) bool { return b.key == name }) {
			continue
		}
		all = append(all, otlpAttribute{name, a.value})
	}
	slices.SortFunc(all, func(a, b otlpAttribute) int { return cmp.Compare(a.key, b.key) })
	for _, a := range all {
		if len(a.key) > telemetryTextMax || len(a.value) > telemetryTextMax {
			return nil, nil, false
		}
		names, values = append(names, a.key), append(values, strings.ToValidUTF8(a.value, "\uFFFD"))
	}
	return names, values, true
}
