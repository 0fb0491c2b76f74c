package cluster

import (
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"
)

// metrics are what the controller tells of itself. Gauges are read when they are asked for.
type metrics struct {
	registerer prometheus.Registerer
	collectors []prometheus.Collector
	writes     prometheus.Histogram
}

func newMetrics(r prometheus.Registerer, c *Controller) *metrics {
	gauge := func(name, help string, value func() float64) prometheus.Collector {
		return prometheus.NewGaugeFunc(prometheus.GaugeOpts{Namespace: "oncelog", Subsystem: "controller", Name: name, Help: help}, value)
	}
	leads := func() float64 {
		if c.voter.raft.State() == raft.Leader {
			return 1
		}
		return 0
	}
	m := &metrics{registerer: r, writes: prometheus.NewHistogram(prometheus.HistogramOpts{
		Namespace: "oncelog", Subsystem: "controller", Name: "write_seconds",
		Help:    "Time to decide, write and apply one entry of the metadata log.",
		Buckets: prometheus.ExponentialBuckets(0.0005, 2, 12),
	})}
	m.collectors = []prometheus.Collector{
		m.writes,
		gauge("active", "1 if this node is the active controller (ActiveControllerCount).", leads),
		gauge("raft_term", "Current term of raft.", func() float64 { return float64(c.voter.raft.CurrentTerm()) }),
		gauge("raft_last_index", "Index of the newest entry of the metadata log.", func() float64 { return float64(c.voter.raft.LastIndex()) }),
		gauge("raft_commit_index", "Index up to which the metadata log is committed.", func() float64 { return float64(c.voter.raft.CommitIndex()) }),
		gauge("raft_applied_index", "Index up to which the metadata log is applied.", func() float64 { return float64(c.voter.raft.AppliedIndex()) }),
		gauge("topics", "Topics of the cluster (GlobalTopicCount).", func() float64 { return float64(c.Image().NumTopics()) }),
		gauge("partitions", "Partitions of the cluster (GlobalPartitionCount).", func() float64 { return float64(c.Image().NumPartitions()) }),
	}
	if r != nil {
		r.MustRegister(m.collectors...)
	}
	return m
}

func (m *metrics) wrote(d time.Duration) { m.writes.Observe(d.Seconds()) }

func (m *metrics) close() {
	if m.registerer == nil {
		return
	}
	for _, c := range m.collectors {
		m.registerer.Unregister(c)
	}
}
