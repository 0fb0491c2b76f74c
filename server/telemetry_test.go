package server

import (
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"google.golang.org/protobuf/encoding/protowire"

	"oncelog/protocol"
)

// The ids are those of Apache Kafka.
func TestSubscriptionID(t *testing.T) {
	id := func(last byte) protocol.UUID { return protocol.UUID{0: 0x77, 15: last} }
	for _, row := range []struct {
		wanted string
		millis int64
		id     protocol.UUID
		want   int32
	}{
		{"", 300000, id(1), -1547215905}, {"", 300000, id(11), -1547215915}, {"", 300000, protocol.UUID{15: 1}, -725132321},
		{"*", 400, id(20), 2030160593}, {"org.apache.kafka.producer. org.apache.kafka.consumer.x", 1000, id(20), 338292843},
		{"org.apache.kafka.consumer.x org.apache.kafka.producer. org.apache.kafka.consumer.x", 1000, id(22), 338292841},
	} {
		if got := subscriptionID(javaSet(strings.Fields(row.wanted)), time.Duration(row.millis)*time.Millisecond, row.id); got != row.want {
			t.Errorf("%+v: %d", row, got)
		}
	}
}

func getRequest(last byte) *kmsg.GetTelemetrySubscriptionsRequest {
	req := kmsg.NewPtrGetTelemetrySubscriptionsRequest()
	if last > 0 {
		req.ClientInstanceID = [16]byte{0: 0x77, 15: last}
	}
	return req
}

// pushCode pushes and gives the error code.
func (c *client) pushCode(last byte, subscription int32, terminating bool, codec int8, metrics []byte) int16 {
	c.t.Helper()
	req := kmsg.NewPtrPushTelemetryRequest()
	req.ClientInstanceID = [16]byte{0: 0x77, 15: last}
	req.SubscriptionID, req.Terminating, req.CompressionType, req.Metrics = subscription, terminating, codec, metrics
	return do[*kmsg.PushTelemetryResponse](c, req).ErrorCode
}

// What Apache Kafka answers, request by request, without any subscription.
func TestTelemetryWithoutSubscriptions(t *testing.T) {
	c := dial(t, startServer(t, "telemetry.max.bytes=1000"))
	fresh := do[*kmsg.GetTelemetrySubscriptionsResponse](c, getRequest(0))
	if fresh.ErrorCode != 0 || fresh.ClientInstanceID == [16]byte{} || !slices.Equal(fresh.AcceptedCompressionTypes, []int8{4, 3, 1, 2}) ||
		fresh.PushIntervalMillis != 300000 || fresh.TelemetryMaxBytes != 1000 || !fresh.DeltaTemporality || len(fresh.RequestedMetrics) > 0 {
		t.Errorf("%+v", fresh)
	}
	next := byte(0)
	get := func() (byte, int32) { // a new client with its subscription
		next++
		resp := do[*kmsg.GetTelemetrySubscriptionsResponse](c, getRequest(next))
		if resp.ErrorCode != 0 {
			t.Fatalf("client %d: %d", next, resp.ErrorCode)
		}
		return next, resp.SubscriptionID
	}
	again := func(id byte) int16 { return do[*kmsg.GetTelemetrySubscriptionsResponse](c, getRequest(id)).ErrorCode }
	garbage := []byte("garbage")

	a, sub := get()
	got := []int16{again(a), c.pushCode(a, sub+1, false, 0, garbage), c.pushCode(a, sub, false, 0, garbage)}
	if want := []int16{89, 117, 89}; !slices.Equal(got, want) {
		t.Errorf("wrong subscription: %v", got)
	}
	a, sub = get()
	c.pushCode(a, sub+1, false, 0, garbage)
	if got := []int16{again(a), again(a)}; !slices.Equal(got, []int16{0, 89}) {
		t.Errorf("asking after a wrong subscription: %v", got)
	}
	a, sub = get()
	got = []int16{c.pushCode(a, sub, false, 0, garbage), c.pushCode(a, sub, false, 0, garbage), c.pushCode(a, sub, true, 0, garbage),
		c.pushCode(a, sub, false, 0, garbage), c.pushCode(a, sub, true, 0, garbage), again(a)}
	if want := []int16{0, 89, 0, 42, 0, 89}; !slices.Equal(got, want) {
		t.Errorf("the last push: %v", got)
	}
	a, sub = get()
	got = []int16{c.pushCode(a, sub, false, 9, garbage)}
	a, sub = get()
	got = append(got, c.pushCode(a, sub, false, -1, garbage))
	a, sub = get()
	got = append(got, c.pushCode(a, sub, false, 0, make([]byte, 1001)))
	a, sub = get()
	got = append(got, c.pushCode(a, sub, false, 0, make([]byte, 1000)))
	a, sub = get()
	got = append(got, c.pushCode(a, sub, false, 1, garbage))
	a, sub = get()
	got = append(got, c.pushCode(a, sub, false, 1, []byte{}))
	got = append(got, c.pushCode(100, 0, false, 0, nil), c.pushCode(101, 0, true, 0, nil))
	if want := []int16{76, 76, 118, 0, 87, 0, 117, 117}; !slices.Equal(got, want) {
		t.Errorf("odd pushes: %v", got)
	}
	for last, want := range map[byte]int16{0: 42, 1: 42, 99: 42, 100: 117} {
		req := kmsg.NewPtrPushTelemetryRequest()
		req.ClientInstanceID[15] = last
		if got := do[*kmsg.PushTelemetryResponse](c, req).ErrorCode; got != want {
			t.Errorf("id %d: %d", last, got)
		}
	}
}

// Which clients a subscription is for, and that all that select one are added up.
func TestTelemetrySubscriptions(t *testing.T) {
	s := startServer(t)
	c := dial(t, s)
	listed := func() bool {
		return slices.ContainsFunc(do[*kmsg.ApiVersionsResponse](c, apiVersions(4)).ApiKeys, func(k kmsg.ApiVersionsResponseApiKey) bool {
			return (k.ApiKey == 71 || k.ApiKey == 72) && k.MinVersion == 0 && k.MaxVersion == 0
		})
	}
	wanted := func(id byte) string {
		resp := do[*kmsg.GetTelemetrySubscriptionsResponse](c, getRequest(id))
		return fmt.Sprint(resp.ErrorCode, " ", resp.PushIntervalMillis, " ", resp.RequestedMetrics)
	}
	c.alter(ofMetrics, "a", "interval.ms=1000")
	if listed() {
		t.Error("listed, and no metrics are wanted")
	}
	c.alter(ofMetrics, "a", "metrics=org.apache.kafka.producer.,org.apache.kafka.consumer.x", "match=client_id=te.*,client_source_address=127\\.0\\.0\\.1")
	if !listed() {
		t.Error("not listed")
	}
	if got := wanted(1); got != "0 1000 [org.apache.kafka.producer. org.apache.kafka.consumer.x]" {
		t.Error(got)
	}
	c.alter(ofMetrics, "b", "metrics=other.", "interval.ms=200", "match=client_software_name=test,client_software_version=1.0")
	if got := wanted(1); got != "0 200 [org.apache.kafka.producer. org.apache.kafka.consumer.x other.]" && !strings.HasPrefix(got, "0 200 [") {
		t.Error(got)
	}
	c.alter(ofMetrics, "c", "metrics=*,x", "match=client_id=nobody")
	if got := wanted(2); strings.Contains(got, "*") {
		t.Error(got)
	}
	c.alter(ofMetrics, "c", "match=client_source_port=[0-9]+")
	if got := wanted(2); got != "0 200 [*]" {
		t.Error(got)
	}
	stranger := dial(t, s) // has not said what it is
	c.alter(ofMetrics, "c", "match=client_software_name=unknown")
	if got := do[*kmsg.GetTelemetrySubscriptionsResponse](stranger, getRequest(3)); !slices.Equal(got.RequestedMetrics, []string{"*"}) {
		t.Errorf("%+v", got)
	}
	for _, name := range []string{"a", "b", "c"} {
		c.alter(ofMetrics, name, "!metrics", "!match", "!interval.ms")
	}
	if listed() || wanted(4) != "0 300000 []" {
		t.Errorf("listed %v, %s", listed(), wanted(5))
	}
}

// Messages of OpenTelemetry.

func message(number protowire.Number, parts ...[]byte) []byte {
	return protowire.AppendBytes(protowire.AppendTag(nil, number, protowire.BytesType), slices.Concat(parts...))
}

func fixed(number protowire.Number, v uint64) []byte {
	return protowire.AppendFixed64(protowire.AppendTag(nil, number, protowire.Fixed64Type), v)
}

func varint(number protowire.Number, v uint64) []byte {
	return protowire.AppendVarint(protowire.AppendTag(nil, number, protowire.VarintType), v)
}

func attribute(number protowire.Number, key, value string) []byte {
	return message(number, message(1, []byte(key)), message(2, message(1, []byte(value))))
}

func gauge(name string, value float64, attributes ...[]byte) []byte {
	return message(2, message(1, []byte(name)), message(5, message(1, fixed(4, math.Float64bits(value)), slices.Concat(attributes...))))
}

func sum(name string, value int64, delta bool, attributes ...[]byte) []byte {
	temporality := uint64(2)
	if delta {
		temporality = 1
	}
	return message(2, message(1, []byte(name)), message(7, message(1, fixed(6, uint64(value)), slices.Concat(attributes...)), varint(2, temporality), varint(3, 1)))
}

func histogram(name string, count uint64, sum float64) []byte {
	return message(2, message(1, []byte(name)), message(9, message(1, fixed(4, count), fixed(5, math.Float64bits(sum)), attribute(9, "a", "b")), varint(2, 1)))
}

func metricsData(metrics ...[]byte) []byte {
	return message(1, message(1, attribute(1, "service", "x")), message(2, metrics...))
}

// shownSeries gathers what a registry shows of clients: name{labels} value.
func shownSeries(t *testing.T, g prometheus.Gatherer) (series []string) {
	t.Helper()
	families, err := g.Gather()
	if err != nil {
		t.Error(err)
	}
	for _, f := range families {
		if !strings.HasPrefix(f.GetName(), "kafka_client_") {
			continue
		}
		for _, m := range f.Metric {
			var labels []string
			for _, l := range m.Label {
				labels = append(labels, l.GetName()+"="+l.GetValue())
			}
			series = append(series, fmt.Sprintf("%s{%s} %s %v", f.GetName(), strings.Join(labels, ","), strings.ToLower(f.GetType().String()), m.GetCounter().GetValue()+m.GetGauge().GetValue()))
		}
	}
	slices.Sort(series)
	return series
}

// What clients push is on the metrics page: what is wanted, with sums added up, in every codec.
func TestPushedMetricsAreShown(t *testing.T) {
	registry := prometheus.NewRegistry()
	s := startServerWith(t, Options{Config: testConfig(t, t.TempDir()), Registry: registry})
	c := dial(t, s)
	do[*kmsg.ApiVersionsResponse](c, apiVersions(4))
	c.alter(ofMetrics, "all", "metrics=org.apache.kafka.,own.", "interval.ms=100")
	for codec := range int8(5) {
		id := byte(codec) + 1
		sub := do[*kmsg.GetTelemetrySubscriptionsResponse](c, getRequest(id)).SubscriptionID
		data := metricsData(
			gauge("org.apache.kafka.producer.connections", 3.5, attribute(7, "node.id", "1"), attribute(7, "client_id", "not this one")),
			sum("org.apache.kafka.producer.records", 5, true),
			sum("org.apache.kafka.producer.records", 2, true),
			sum("own.total", 9, false),
			histogram("own.time", 4, 2.5),
			gauge("unwanted", 1),
		)
		src, err := protocol.Compress(nil, data, protocol.Codec(codec), 0)
		if err != nil {
			t.Fatal(err)
		}
		if code := c.pushCode(id, sub, false, codec, src); code != 0 {
			t.Fatalf("codec %d: %d", codec, code)
		}
	}
	got := shownSeries(t, registry)
	if len(got) != 5*5 {
		t.Errorf("%d series", len(got))
	}
	who := "client_id=test,client_instance_id=" + protocol.UUID{0: 0x77, 15: 1}.String() + ",client_software_name=test,client_software_version=1.0"
	for _, want := range []string{
		"kafka_client_producer_connections{" + who + ",node_id=1} gauge 3.5",
		"kafka_client_producer_records{" + who + "} counter 7",
		"kafka_client_own_total{" + who + "} counter 9",
		"kafka_client_own_time_count{a=b," + who + "} counter 4",
		"kafka_client_own_time_sum{a=b," + who + "} gauge 2.5",
	} {
		if !slices.Contains(got, want) {
			t.Errorf("%s is not among\n%s", want, strings.Join(got, "\n"))
		}
	}
	// A push that is no message at all takes nothing away.
	do[*kmsg.GetTelemetrySubscriptionsResponse](c, getRequest(1))
	c.pushCode(1, 0, true, 0, []byte("\xff\xff"))
	if again := shownSeries(t, registry); !slices.Equal(again, got) {
		t.Errorf("after garbage:\n%s", strings.Join(again, "\n"))
	}
}

// pushTo pushes without a network.
func pushTo(tel *telemetry, s *Server, last byte, now time.Time, data []byte) error {
	req := kmsg.NewPtrPushTelemetryRequest()
	req.ClientInstanceID = [16]byte{0: 0x77, 15: last}
	who := func() map[string]string { return map[string]string{} }
	c, err := tel.get(s.image(), req.ClientInstanceID, who, now)
	if err != nil {
		return err
	}
	req.SubscriptionID, req.Metrics = c.subscriptionID, data
	return tel.push(s.image(), req, who, now)
}

// Clients that are silent are forgotten with their metrics, and nothing grows without bound.
func TestTelemetryIsBounded(t *testing.T) {
	s := startServer(t)
	c := dial(t, s)
	c.alter(ofMetrics, "all", "metrics=*", "interval.ms=60000")
	registry := prometheus.NewRegistry()
	tel := newTelemetry(1<<20, registry)
	now := time.Unix(1, 0)
	var many [][]byte
	for i := range 3 * telemetryClientSeriesMax {
		many = append(many, gauge(fmt.Sprint("m", i), 1))
	}
	if err := pushTo(tel, s, 1, now, metricsData(many...)); err != nil {
		t.Fatal(err)
	}
	if tel.series != telemetryClientSeriesMax || len(tel.families) != tel.series || len(shownSeries(t, registry)) != tel.series {
		t.Errorf("%d series of one client", tel.series)
	}
	// Names of one kind, labels that are too many or too long, odd names.
	long := strings.Repeat("x", telemetryTextMax+1)
	if err := pushTo(tel, s, 2, now, metricsData(
		sum("m1", 1, false), gauge(long, 1), gauge("n", 1, attribute(7, "k", long)), gauge("n", 1, slices.Repeat(attribute(7, "k", "v"), telemetryAttributesMax+1)),
		gauge("ünicode name", 1, attribute(7, "__é", "\xff"), attribute(7, "0k", "v"), attribute(7, "k", "w")),
	)); err != nil {
		t.Fatal(err)
	}
	if got := slices.Collect(maps.Values(tel.clients[protocol.UUID{0: 0x77, 15: 2}].series)); len(got) != 1 ||
		got[0].family.name != "kafka_client__nicode_name" || !slices.Contains(got[0].labels, "v") || slices.Contains(got[0].labels, "w") {
		t.Errorf("%+v", got)
	}
	shownSeries(t, registry)
	// A delta goes on from what there is, also when the subscription changes.
	later := now.Add(2 * time.Minute)
	for i := range time.Duration(2) {
		if err := pushTo(tel, s, 3, later.Add(i*time.Minute), metricsData(sum("d", 3, true))); err != nil {
			t.Fatal(err)
		}
	}
	if got := tel.clients[protocol.UUID{0: 0x77, 15: 3}]; len(got.series) != 1 || slices.Collect(maps.Values(got.series))[0].value != 6 {
		t.Errorf("%+v", got)
	}
	// Three intervals after their last request the first two are gone.
	if err := pushTo(tel, s, 4, now.Add(3*time.Minute+telemetryExpiry/2), nil); err != nil {
		t.Fatal(err)
	}
	if len(tel.clients) != 2 || tel.series != 1 || len(tel.families) != 1 {
		t.Errorf("%d clients, %d series, %d names", len(tel.clients), tel.series, len(tel.families))
	}
	// With no room for another client the one that would expire first goes.
	for i := range telemetryClientsMax {
		id := protocol.UUID{1, 2, byte(i >> 8), byte(i), 9}
		if _, err := tel.get(s.image(), id, func() map[string]string { return map[string]string{} }, now.Add(4*time.Minute)); err != nil {
			t.Fatal(err)
		}
	}
	if len(tel.clients) != telemetryClientsMax || tel.clients[protocol.UUID{0: 0x77, 15: 3}] != nil {
		t.Errorf("%d clients", len(tel.clients))
	}
}

// Pushes come once an interval, but for the first after asking and the last.
func TestPushesAreSpacedByTheInterval(t *testing.T) {
	s := startServer(t)
	c := dial(t, s)
	c.alter(ofMetrics, "all", "metrics=*", "interval.ms=1000")
	tel := newTelemetry(1000, prometheus.NewRegistry())
	now := time.Unix(1, 0)
	who := func() map[string]string { return map[string]string{} }
	id := protocol.UUID{0: 0x77}
	get := func(after time.Duration) error {
		now = now.Add(after)
		_, err := tel.get(s.image(), id, who, now)
		return err
	}
	push := func(after time.Duration) error {
		now = now.Add(after)
		req := kmsg.NewPtrPushTelemetryRequest()
		req.ClientInstanceID, req.SubscriptionID = id, tel.clients[id].subscriptionID
		return tel.push(s.image(), req, who, now)
	}
	throttled := error(kerr.ThrottlingQuotaExceeded)
	for i, step := range []struct{ got, want error }{
		{get(0), nil}, {push(1), nil}, {push(999 * time.Millisecond), throttled}, {push(time.Millisecond), nil},
		{get(1), throttled}, {get(time.Second), nil}, {push(1), nil}, {get(time.Second), nil}, {get(1), throttled},
	} {
		if step.got != step.want {
			t.Errorf("step %d: %v", i, step.got)
		}
	}
	c.alter(ofMetrics, "all", "interval.ms=2000")
	if err := get(1); err != nil {
		t.Errorf("asking for changed subscriptions: %v", err)
	}
}

// FuzzOTLP: nothing makes the reader panic, and what it yields is no more than what it got.
func FuzzOTLP(f *testing.F) {
	f.Add(metricsData(gauge("g", 1, attribute(7, "k", "v")), sum("s", 2, true), histogram("h", 1, 2)))
	f.Add(message(1, message(2, message(2, varint(1, 5), message(11, []byte("x")), fixed(4, 1)))))
	f.Add([]byte{0xff})
	f.Fuzz(func(t *testing.T, data []byte) {
		size := 0
		_ = readOTLP(data, func(p otlpPoint) {
			for _, a := range p.attributes {
				size += len(a.key)
			}
			size++
		})
		if size > 4*len(data)+4 {
			t.Errorf("%d out of %d bytes", size, len(data))
		}
	})
}
