package groupcoordinator

import "github.com/prometheus/client_golang/prometheus"

// Metrics counts what the machines of a node do. It is safe for concurrent use, and nil counts nothing.
type Metrics struct {
	rebalances     prometheus.Counter
	offsetCommits  prometheus.Counter
	offsetsExpired prometheus.Counter
	offsetsDeleted prometheus.Counter
}

// NewMetrics registers the counters with r, which may be nil.
func NewMetrics(r prometheus.Registerer) *Metrics {
	counter := func(name, help string) prometheus.Counter {
		c := prometheus.NewCounter(prometheus.CounterOpts{
			Namespace: "kafka", Subsystem: "group_coordinator", Name: name, Help: help,
		})
		if r != nil {
			r.MustRegister(c)
		}
		return c
	}
	return &Metrics{
		rebalances:     counter("group_completed_rebalances_total", "Rebalances that ended with a new generation."),
		offsetCommits:  counter("offset_commits_total", "Offsets that were committed, one per partition."),
		offsetsExpired: counter("offset_expirations_total", "Offsets removed because their retention time was over."),
		offsetsDeleted: counter("offset_deletions_total", "Offsets removed on request, or with their topic."),
	}
}

func (s *Metrics) rebalanced() {
	if s != nil {
		s.rebalances.Inc()
	}
}

func (s *Metrics) committed(n int) {
	if s != nil {
		s.offsetCommits.Add(float64(n))
	}
}

func (s *Metrics) expired(n int) {
	if s != nil {
		s.offsetsExpired.Add(float64(n))
	}
}

func (s *Metrics) deleted(n int) {
	if s != nil {
		s.offsetsDeleted.Add(float64(n))
	}
}
