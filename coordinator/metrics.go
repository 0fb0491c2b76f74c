package coordinator

import "github.com/prometheus/client_golang/prometheus"

// metrics of one host.
type metrics struct {
	loaded      prometheus.Gauge
	loadSeconds prometheus.Histogram
}

func newMetrics(r prometheus.Registerer, topic string) *metrics {
	labels := prometheus.Labels{"topic": topic}
	m := &metrics{
		loaded: prometheus.NewGauge(prometheus.GaugeOpts{
			Name:        "oncelog_coordinator_partitions_loaded",
			Help:        "Partitions of an internal topic that this node coordinates.",
			ConstLabels: labels,
		}),
		loadSeconds: prometheus.NewHistogram(prometheus.HistogramOpts{
			Name:        "oncelog_coordinator_load_seconds",
			Help:        "Time to load one partition of an internal topic when this node becomes its coordinator.",
			ConstLabels: labels,
			Buckets:     prometheus.ExponentialBuckets(0.0001, 4, 10),
		}),
	}
	if r != nil {
		r.MustRegister(m.loaded, m.loadSeconds)
	}
	return m
}
