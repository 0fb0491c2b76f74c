package server

import (
	"encoding/binary"
	"hash/crc32"
	"slices"
	"strconv"
	"strings"
	"sync"
	"time"
	"unicode/utf16"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/cluster"
	"oncelog/config"
	"oncelog/protocol"
)

// Bounds on what clients may make the broker remember.
const (
	telemetryClientsMax   = 16384           // as in Kafka
	telemetryIntervalMax  = 5 * time.Minute // between two pushes, if no subscription wants it shorter
	telemetryExpiry       = time.Minute     // of a client that is silent, or three of its intervals
	telemetryInflationMax = 8               // how much larger than telemetry.max.bytes a payload may be once it is decompressed
)

// telemetryCodecs are the codecs that a payload may have, in the order in which they are offered.
var telemetryCodecs = []int8{int8(protocol.CodecZstd), int8(protocol.CodecLZ4), int8(protocol.CodecGzip), int8(protocol.CodecSnappy)}

// telemetry is the broker's part in KIP-714: it knows which metrics are wanted of which clients, and shows what they pushed beside its own metrics.
// Clients that have not been heard of for long are forgotten when others are served.
type telemetry struct {
	maxBytes int
	metrics  telemetryMetrics

	mu            sync.Mutex
	image         *cluster.Image // that subscriptions are those of
	subscriptions []subscription
	version       int // grows with each change of subscriptions
	clients       map[protocol.UUID]*telemetryClient
	swept         time.Time // when expired clients were looked for last
	families      map[string]*telemetryFamily
	series        int // of all clients
}

// subscription is a client metrics resource.
type subscription struct {
	name     string
	metrics  []string
	interval time.Duration
	match    config.ClientMatch
}

// telemetryClient is one instance of a client.
type telemetryClient struct {
	id         protocol.UUID
	properties map[string]string // by which subscriptions select it

	version        int // of the subscriptions that the rest is of
	subscriptionID int32
	wanted         []string // prefixes of names, or "*" alone; in Kafka's order
	interval       time.Duration
	got, pushed    time.Time // when it last asked, and pushed; zero if never
	terminating    bool
	err            *kerr.Error // of its last push
	expires        time.Time

	series map[string]*telemetrySeries
}

func newTelemetry(maxBytes int, registerer prometheus.Registerer) *telemetry {
	t := &telemetry{
		maxBytes: maxBytes,
		clients:  map[protocol.UUID]*telemetryClient{},
		families: map[string]*telemetryFamily{},
	}
	t.metrics = newTelemetryMetrics(registerer, t)
	return t
}

// wantsTelemetry tells whether there is any subscription that wants metrics. The APIs of telemetry are listed as long as there is.
func wantsTelemetry(im *cluster.Image) bool {
	for name := range im.ConfigNames(kmsg.ConfigResourceTypeClientMetrics) {
		if im.Config(kmsg.ConfigResourceTypeClientMetrics, name)["metrics"] != "" {
			return true
		}
	}
	return false
}

// followLocked takes the subscriptions from an image.
func (t *telemetry) followLocked(im *cluster.Image) {
	if im == t.image {
		return
	}
	changed := t.image == nil
	if !changed {
		delta, known := im.Since(t.image)
		changed = !known || slices.ContainsFunc(delta.Configs, func(r cluster.Resource) bool { return r.Kind == kmsg.ConfigResourceTypeClientMetrics })
	}
	t.image = im
	if !changed {
		return
	}
	t.version++
	t.subscriptions = nil
	for name := range im.ConfigNames(kmsg.ConfigResourceTypeClientMetrics) {
		t.subscriptions = append(t.subscriptions, readSubscription(name, im.Config(kmsg.ConfigResourceTypeClientMetrics, name)))
	}
}

// readSubscription reads what has been checked when it was set.
func readSubscription(name string, values map[string]string) subscription {
	s := subscription{name: name, interval: telemetryIntervalMax}
	if millis, err := strconv.ParseInt(strings.TrimSpace(values["interval.ms"]), 10, 32); err == nil {
		s.interval = time.Duration(millis) * time.Millisecond
	}
	for _, metric := range strings.Split(values["metrics"], ",") {
		if metric = strings.TrimSpace(metric); metric != "" {
			s.metrics = append(s.metrics, metric)
		}
	}
	s.match, _ = config.ParseClientMatch(values["match"])
	return s
}

// clientLocked gives the client of an id, as of the present subscriptions; it is a new one if it is not known.
func (t *telemetry) clientLocked(id protocol.UUID, properties func() map[string]string, now time.Time) *telemetryClient {
	t.sweepLocked(now)
	c := t.clients[id]
	switch {
	case c == nil:
		if len(t.clients) >= telemetryClientsMax {
			t.evictLocked()
		}
		c = &telemetryClient{id: id, properties: properties(), series: map[string]*telemetrySeries{}}
		c.properties[config.ClientInstanceID] = id.String()
		t.clients[id] = c
		t.subscribeLocked(c)
	case c.version != t.version:
		*c = telemetryClient{id: id, properties: c.properties, series: c.series}
		t.subscribeLocked(c)
	}
	c.expires = now.Add(max(telemetryExpiry, 3*c.interval))
	return c
}

// subscribeLocked finds what is wanted of a client.
func (t *telemetry) subscribeLocked(c *telemetryClient) {
	c.version, c.interval = t.version, telemetryIntervalMax
	all := false
	for _, s := range t.subscriptions {
		if !s.match.Selects(c.properties) {
			continue
		}
		all = all || slices.Contains(s.metrics, "*")
		c.wanted = append(c.wanted, s.metrics...)
		c.interval = min(c.interval, s.interval)
	}
	if all {
		c.wanted = []string{"*"}
	}
	c.wanted = javaSet(c.wanted)
	c.subscriptionID = subscriptionID(c.wanted, c.interval, c.id)
}

// sweepLocked forgets clients that have expired, now and then.
func (t *telemetry) sweepLocked(now time.Time) {
	if now.Sub(t.swept) < telemetryExpiry/4 {
		return
	}
	t.swept = now
	for _, c := range t.clients {
		if now.After(c.expires) {
			t.forgetLocked(c)
		}
	}
}

// evictLocked forgets the client that would expire first.
func (t *telemetry) evictLocked() {
	var first *telemetryClient
	for _, c := range t.clients {
		if first == nil || c.expires.Before(first.expires) {
			first = c
		}
	}
	t.forgetLocked(first)
}

func (t *telemetry) forgetLocked(c *telemetryClient) {
	delete(t.clients, c.id)
	for key, s := range c.series {
		t.dropLocked(s)
		delete(c.series, key)
	}
}

// get is a client's request for its subscription. It is refused if it comes sooner than a push interval after the last request, but for a client
// that has just been told that it has the wrong one.
func (t *telemetry) get(im *cluster.Image, id protocol.UUID, properties func() map[string]string, now time.Time) (telemetryClient, error) {
	t.mu.Lock()
	defer t.mu.Unlock()
	t.followLocked(im)
	c := t.clientLocked(id, properties, now)
	last := c.got
	if c.pushed.After(last) {
		last = c.pushed
	}
	switch {
	case last.IsZero() || now.Sub(last) >= c.interval:
		c.got = now
	case c.err != kerr.UnknownSubscriptionID && c.err != kerr.UnsupportedCompressionType:
		t.metrics.throttled.Inc()
		return telemetryClient{}, kerr.ThrottlingQuotaExceeded
	}
	c.err = nil
	return *c, nil
}

// push is a client's push. What it brings is shown from then on, as far as it is wanted and there is room.
func (t *telemetry) push(im *cluster.Image, req *kmsg.PushTelemetryRequest, properties func() map[string]string, now time.Time) error {
	t.mu.Lock()
	t.followLocked(im)
	c := t.clientLocked(protocol.UUID(req.ClientInstanceID), properties, now)
	c.err = t.checkPushLocked(c, req, now)
	c.terminating = req.Terminating
	wanted, refused := c.wanted, c.err
	t.mu.Unlock()
	if refused != nil {
		return refused
	}
	points, err := t.readPush(req, wanted)
	t.mu.Lock()
	defer t.mu.Unlock()
	if t.clients[c.id] != c {
		return nil // forgotten meanwhile
	}
	if err != nil {
		c.err = kerr.InvalidRecord
		t.metrics.unreadable.Inc()
		return err
	}
	t.metrics.pushes.Inc()
	for _, p := range points {
		t.recordLocked(c, p)
	}
	return nil
}

func (t *telemetry) checkPushLocked(c *telemetryClient, req *kmsg.PushTelemetryRequest, now time.Time) *kerr.Error {
	if c.terminating {
		return kerr.InvalidRequest // it had sent its last
	}
	// One push may come at any time after a get: clients spread them.
	inTime := c.got.After(c.pushed) || c.pushed.IsZero() || now.Sub(c.pushed) >= c.interval
	if inTime {
		c.pushed = now
	}
	codec := protocol.Codec(req.CompressionType)
	switch {
	case !inTime && !req.Terminating:
		t.metrics.throttled.Inc()
		return kerr.ThrottlingQuotaExceeded
	case req.SubscriptionID != c.subscriptionID:
		t.metrics.unknownSubscriptions.Inc()
		return kerr.UnknownSubscriptionID
	case !codec.Valid():
		return kerr.UnsupportedCompressionType
	case len(req.Metrics) > t.maxBytes:
		return kerr.TelemetryTooLarge
	}
	return nil
}

// readPush takes the points that are wanted from a payload. One that cannot be decompressed is an error; one that holds something else than metrics
// is not, as in Kafka, where that is the plugin's affair.
func (t *telemetry) readPush(req *kmsg.PushTelemetryRequest, wanted []string) ([]otlpPoint, error) {
	if len(req.Metrics) == 0 {
		return nil, nil
	}
	data, err := protocol.Decompress(req.Metrics, protocol.Codec(req.CompressionType), telemetryInflationMax*t.maxBytes)
	if err != nil {
		return nil, kerr.InvalidRecord
	}
	var points []otlpPoint
	err = readOTLP(data, func(p otlpPoint) {
		if len(points) < telemetryPointsMax && wantsMetric(wanted, p.name) {
			points = append(points, p)
		}
	})
	if err != nil {
		t.metrics.unreadable.Inc()
		return nil, nil
	}
	return points, nil
}

func wantsMetric(wanted []string, name string) bool {
	return slices.ContainsFunc(wanted, func(prefix string) bool { return prefix == "*" || strings.HasPrefix(name, prefix) })
}

// subscriptionID names a set of wanted metrics for one client, as Kafka computes it.
func subscriptionID(wanted []string, interval time.Duration, id protocol.UUID) int32 {
	text := "[" + strings.Join(wanted, ", ") + "]" + strconv.FormatInt(interval.Milliseconds(), 10)
	folded := binary.BigEndian.Uint64(id[:8]) ^ binary.BigEndian.Uint64(id[8:])
	return int32(crc32.Checksum([]byte(text), crc32.MakeTable(crc32.Castagnoli))) ^ int32(folded>>32) ^ int32(folded)
}

// javaSet drops what is there twice and puts the rest in the order of a Java HashSet, on which the id of a subscription rests.
func javaSet(list []string) []string {
	var set []string
	seen := map[string]bool{}
	for _, s := range list {
		if !seen[s] {
			seen[s] = true
			set = append(set, s)
		}
	}
	buckets := uint32(16)
	for float64(len(set)) > 0.75*float64(buckets) {
		buckets *= 2
	}
	bucket := func(s string) uint32 {
		var h uint32
		for _, unit := range utf16.Encode([]rune(s)) {
			h = 31*h + uint32(unit)
		}
		return (h ^ h>>16) & (buckets - 1)
	}
	slices.SortStableFunc(set, func(a, b string) int { return int(bucket(a)) - int(bucket(b)) })
	return set
}
