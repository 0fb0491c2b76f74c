package server

import (
	"maps"
	"strconv"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// metrics are what the server counts. What is counted per request was resolved
// before: nothing is looked up by labels or allocated for one.
type metrics struct {
	latency []prometheus.Observer // by API key; nil where nothing is served

	bytesRead           prometheus.Counter
	bytesWritten        prometheus.Counter
	connectionsAccepted prometheus.Counter
	connectionsRefused  prometheus.Counter
	connectionsIdle     prometheus.Counter
	connectionsBad      prometheus.Counter
	panics              prometheus.Counter

	produceErrors errorCounters
	fetchErrors   errorCounters

	mu     sync.RWMutex
	topics map[string]*topicCounters // guarded by mu
}

// topicCounters are what went in and out of one topic.
type topicCounters struct {
	bytesIn, recordsIn, bytesOut atomic.Int64
}

// errorCounters count by error code.
type errorCounters struct {
	byCode sync.Map // int16 -> *atomic.Int64
}

func (c *errorCounters) inc(code int16) {
	n, ok := c.byCode.Load(code)
	if !ok {
		n, _ = c.byCode.LoadOrStore(code, new(atomic.Int64))
	}
	n.(*atomic.Int64).Add(1)
}

// latencyBuckets are seconds: from what a small request takes to what clients
// wait at most.
var latencyBuckets = []float64{.0001, .00025, .0005, .001, .0025, .005, .01, .025, .05, .1, .25, .5, 1, 2.5, 5, 10, 30}

func newMetrics(r prometheus.Registerer, s *Server) *metrics {
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{Namespace: "oncelog", Name: name, Help: help})
		r.MustRegister(c)
		return c
	}
	m := &metrics{
		latency:             make([]prometheus.Observer, len(apiByKey)),
		topics:              make(map[string]*topicCounters),
		bytesRead:           counter("network_received_bytes_total", "Bytes received from clients."),
		bytesWritten:        counter("network_sent_bytes_total", "Bytes sent to clients."),
		connectionsAccepted: counter("connections_accepted_total", "Connections that were accepted."),
		connectionsRefused:  counter("connections_refused_total", "Connections that were closed at once because of max.connections.per.ip."),
		connectionsIdle:     counter("connections_idle_closed_total", "Connections closed after connections.max.idle.ms."),
		connectionsBad:      counter("connections_bad_total", "Connections closed because of what the peer sent."),
		panics:              counter("request_panics_total", "Requests whose handler met a broken invariant."),
	}
	latency := prometheus.NewHistogramVec(prometheus.HistogramOpts{
		Namespace: "oncelog", Name: "request_duration_seconds",
		Help:    "Time from the arrival of a request to its answer, waits of long polls and acks included.",
		Buckets: latencyBuckets,
	}, []string{"api"})
	r.MustRegister(latency)
	for key, row := range apiByKey {
		if row != nil {
			m.latency[key] = latency.WithLabelValues(kmsg.NameForKey(int16(key)))
		}
	}
	r.MustRegister(serverCollector{s})
	return m
}

// served notes that a request has its answer.
func (m *metrics) served(row *api, took time.Duration) {
	m.latency[row.key].Observe(took.Seconds())
}

func (m *metrics) produceError(code int16) { m.produceErrors.inc(code) }
func (m *metrics) fetchError(code int16)   { m.fetchErrors.inc(code) }

// topic gives the counters of a topic.
func (m *metrics) topic(name string) *topicCounters {
	m.mu.RLock()
	c := m.topics[name]
	m.mu.RUnlock()
	if c != nil {
		return c
	}
	m.mu.Lock()
	defer m.mu.Unlock()
	if c = m.topics[name]; c == nil {
		c = new(topicCounters)
		m.topics[name] = c
	}
	return c
}

// serverCollector tells what is read at scrape time.
type serverCollector struct{ s *Server }

var (
	connectionsDesc   = prometheus.NewDesc("oncelog_connections", "Open connections.", nil, nil)
	requestMemoryDesc = prometheus.NewDesc("oncelog_request_memory_bytes", "Memory held by requests (bound: queued.max.request.bytes).", nil, nil)
	sessionsDesc      = prometheus.NewDesc("oncelog_fetch_sessions", "Incremental fetch sessions.", nil, nil)
	sessionPartsDesc  = prometheus.NewDesc("oncelog_fetch_session_partitions", "Partitions in incremental fetch sessions.", nil, nil)
	errorsDesc        = prometheus.NewDesc("oncelog_request_errors_total", "Errors answered, per partition, by API and code.", []string{"api", "code", "error"}, nil)
	topicInDesc       = prometheus.NewDesc("oncelog_topic_received_bytes_total", "Bytes of batches appended for producers.", []string{"topic"}, nil)
	topicRecordsDesc  = prometheus.NewDesc("oncelog_topic_received_records_total", "Records appended for producers.", []string{"topic"}, nil)
	topicOutDesc      = prometheus.NewDesc("oncelog_topic_sent_bytes_total", "Bytes of batches fetched.", []string{"topic"}, nil)
)

func (c serverCollector) Describe(ch chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{connectionsDesc, requestMemoryDesc, sessionsDesc, sessionPartsDesc, errorsDesc, topicInDesc, topicRecordsDesc, topicOutDesc} {
		ch <- d
	}
}

func (c serverCollector) Collect(ch chan<- prometheus.Metric) {
	gauge := func(d *prometheus.Desc, v float64) {
		ch <- prometheus.MustNewConstMetric(d, prometheus.GaugeValue, v)
	}
	gauge(connectionsDesc, float64(c.s.conns.count()))
	gauge(requestMemoryDesc, float64(c.s.memory.inUse()))
	sessions, partitions := c.s.sessions.count()
	gauge(sessionsDesc, float64(sessions))
	gauge(sessionPartsDesc, float64(partitions))
	m := c.s.metrics
	m.produceErrors.collect(ch, "Produce")
	m.fetchErrors.collect(ch, "Fetch")
	m.collectTopics(ch)
}

func (c *errorCounters) collect(ch chan<- prometheus.Metric, api string) {
	c.byCode.Range(func(code, n any) bool {
		name := "UNKNOWN_SERVER_ERROR"
		if err, ok := kerr.ErrorForCode(code.(int16)).(*kerr.Error); ok {
			name = err.Message
		}
		ch <- prometheus.MustNewConstMetric(errorsDesc, prometheus.CounterValue, float64(n.(*atomic.Int64).Load()),
			api, strconv.Itoa(int(code.(int16))), name)
		return true
	})
}

func (m *metrics) collectTopics(ch chan<- prometheus.Metric) {
	m.mu.RLock()
	topics := maps.Clone(m.topics)
	m.mu.RUnlock()
	for name, c := range topics {
		for _, v := range []struct {
			desc  *prometheus.Desc
			value int64
		}{{topicInDesc, c.bytesIn.Load()}, {topicRecordsDesc, c.recordsIn.Load()}, {topicOutDesc, c.bytesOut.Load()}} {
			ch <- prometheus.MustNewConstMetric(v.desc, prometheus.CounterValue, float64(v.value), name)
		}
	}
}

// forgetTopics drops the counters of topics that have been deleted.
func (m *metrics) forgetTopics(names []string) {
	m.mu.Lock()
	defer m.mu.Unlock()
	for _, name := range names {
		delete(m.topics, name)
	}
}
