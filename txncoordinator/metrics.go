package txncoordinator

import (
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Metrics of all machines and the sender of a node. A nil one counts nothing.
type Metrics struct {
	commits, aborts prometheus.Counter
	completion      prometheus.Histogram
	markersQueued   prometheus.Gauge
	markersFailed   prometheus.Counter
}

// NewMetrics makes and registers them; r may be nil.
func NewMetrics(r prometheus.Registerer) *Metrics {
	ended := prometheus.NewCounterVec(prometheus.CounterOpts{
		Name: "oncelog_transactions_completed_total",
		Help: "Transactions that this coordinator completed, by how they ended.",
	}, []string{"result"})
	m := &Metrics{
		commits: ended.WithLabelValues("commit"),
		aborts:  ended.WithLabelValues("abort"),
		completion: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:    "oncelog_transaction_completion_seconds",
			Help:    "Time from the decision about a transaction to its completion, when all its markers are written.",
			Buckets: prometheus.ExponentialBuckets(0.001, 4, 9),
		}),
		markersQueued: prometheus.NewGauge(prometheus.GaugeOpts{
			Name: "oncelog_transaction_markers_pending",
			Help: "Partitions whose transaction marker is still owed.",
		}),
		markersFailed: prometheus.NewCounter(prometheus.CounterOpts{
			Name: "oncelog_transaction_markers_failed_total",
			Help: "Attempts to write a transaction marker to a partition that failed, most of them to be repeated.",
		}),
	}
	if r != nil {
		r.MustRegister(ended, m.completion, m.markersQueued, m.markersFailed)
	}
	return m
}

func (m *Metrics) completed(state kmsg.TransactionState, millis int64) {
	if m == nil {
		return
	}
	m.completion.Observe(float64(millis) / 1e3)
	if state == CompleteCommit {
		m.commits.Inc()
	} else {
		m.aborts.Inc()
	}
}

func (m *Metrics) pending(delta int) {
	if m != nil {
		m.markersQueued.Add(float64(delta))
	}
}

func (m *Metrics) failed() {
	if m != nil {
		m.markersFailed.Inc()
	}
}
