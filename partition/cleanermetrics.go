package partition

import (
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
)

// What a scrape tells of the cleaner; the names in brackets are Kafka's.
var (
	cleanerRuns        = cleanerDesc("runs_total", "Cleanings of a log that came to an end.")
	cleanerRead        = cleanerDesc("read_bytes_total", "Bytes read by cleanings.")
	cleanerWritten     = cleanerDesc("written_bytes_total", "Bytes written by cleanings.")
	cleanerRecopy      = cleanerDesc("recopy_percent", "Bytes written in percent of those read, by the last cleaning (cleaner-recopy-percent).")
	cleanerBuffer      = cleanerDesc("max_buffer_utilization_percent", "How full the last cleaning's map of keys was (max-buffer-utilization-percent).")
	cleanerTime        = cleanerDesc("max_clean_time_seconds", "Duration of the last cleaning (max-clean-time-secs).")
	cleanerDelay       = cleanerDesc("max_compaction_delay_seconds", "By how much a dirty log is above max.compaction.lag.ms, at most (max-compaction-delay-secs).")
	cleanerDirty       = cleanerDesc("max_dirty_percent", "Dirty ratio of the dirtiest log that can be cleaned (max-dirty-percent).")
	cleanerUncleanable = cleanerDesc("uncleanable_partitions", "Logs that can't be cleaned (uncleanable-partitions-count).")
	cleanerLeft        = cleanerDesc("uncleanable_bytes", "Dirty bytes of these (uncleanable-bytes).")
	cleanerLastLook    = cleanerDesc("time_since_last_run_seconds", "Since the cleaner last looked for something to clean (time-since-last-run-ms).")
)

func cleanerDesc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("oncelog_cleaner_"+name, help, nil, nil)
}

var cleanerDescs = []*prometheus.Desc{
	cleanerRuns, cleanerRead, cleanerWritten, cleanerRecopy, cleanerBuffer, cleanerTime, cleanerDelay, cleanerDirty,
	cleanerUncleanable, cleanerLeft, cleanerLastLook,
}

// cleanerFigures is what the cleaner counts.
type cleanerFigures struct {
	mu            sync.Mutex
	runs          int64
	read, written int64 // bytes
	recopy, full  float64
	took          time.Duration
	look          time.Time
}

func (f *cleanerFigures) looked(now time.Time) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.look = now
}

func (f *cleanerFigures) ran(c *cleaning, took time.Duration) {
	f.mu.Lock()
	defer f.mu.Unlock()
	f.runs++
	f.read, f.written = f.read+c.read, f.written+c.written
	f.full, f.took, f.recopy = 100*c.keys.used(), took, 0
	if c.read > 0 {
		f.recopy = 100 * float64(c.written) / float64(c.read)
	}
}

// collect tells the figures, with those of the partitions.
func (c *cleaner) collect(to chan<- prometheus.Metric, now time.Time) {
	if c == nil {
		return
	}
	var dirtiest, left float64
	var uncleanable int
	var delay time.Duration
	for p := range c.set.All() {
		p.compaction.mu.Lock()
		d, err := p.compaction.mu.dirty, p.compaction.mu.uncleanable
		p.compaction.mu.Unlock()
		if err != nil {
			uncleanable++
			left += float64(d.bytes)
			continue
		}
		dirtiest, delay = max(dirtiest, d.ratio()), max(delay, d.overdue)
	}
	f := &c.figures
	f.mu.Lock()
	defer f.mu.Unlock()
	tell := func(d *prometheus.Desc, kind prometheus.ValueType, v float64) {
		to <- prometheus.MustNewConstMetric(d, kind, v)
	}
	tell(cleanerRuns, prometheus.CounterValue, float64(f.runs))
	tell(cleanerRead, prometheus.CounterValue, float64(f.read))
	tell(cleanerWritten, prometheus.CounterValue, float64(f.written))
	tell(cleanerRecopy, prometheus.GaugeValue, f.recopy)
	tell(cleanerBuffer, prometheus.GaugeValue, f.full)
	tell(cleanerTime, prometheus.GaugeValue, f.took.Seconds())
	tell(cleanerDelay, prometheus.GaugeValue, delay.Seconds())
	tell(cleanerDirty, prometheus.GaugeValue, 100*dirtiest)
	tell(cleanerUncleanable, prometheus.GaugeValue, float64(uncleanable))
	tell(cleanerLeft, prometheus.GaugeValue, left)
	since := time.Duration(0)
	if !f.look.IsZero() {
		since = now.Sub(f.look)
	}
	tell(cleanerLastLook, prometheus.GaugeValue, since.Seconds())
}
