package partition

import (
	"strconv"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	dto "github.com/prometheus/client_model/go"
)

var partitionLabels = []string{"topic", "partition"}

// What a scrape tells of each partition. Nothing is registered or counted per partition in between.
var (
	sizeDesc      = desc("size_bytes", "Size of the partition's segments.")
	startDesc     = desc("start_offset", "First offset of the partition.")
	endDesc       = desc("end_offset", "Offset that the next record gets.")
	watermarkDesc = desc("high_watermark", "Offset up to which records are committed.")
	stableDesc    = desc("last_stable_offset", "Offset up to which all transactions have ended.")
	stableLagDesc = desc("last_stable_offset_lag", "Offsets between the last stable offset and the high watermark.")
	openDesc      = desc("open_transactions", "Transactions without a marker yet.")
	oldestDesc    = desc("oldest_open_transaction_seconds", "Age of the oldest open transaction, 0 without one.")
	offlineDesc   = desc("offline", "1 if the partition is offline because of an error of its storage.")
)

func desc(name, help string) *prometheus.Desc {
	return prometheus.NewDesc("oncelog_partition_"+name, help, partitionLabels, nil)
}

// collector gathers the figures of a set's partitions at a scrape.
type collector struct{ s *Set }

func (c collector) Describe(to chan<- *prometheus.Desc) {
	for _, d := range []*prometheus.Desc{sizeDesc, startDesc, endDesc, watermarkDesc, stableDesc, stableLagDesc, openDesc, oldestDesc, offlineDesc} {
		to <- d
	}
	for _, d := range cleanerDescs {
		to <- d
	}
}

func (c collector) Collect(to chan<- prometheus.Metric) {
	now := time.Now()
	c.s.shared.cleaner.collect(to, now)
	for p := range c.s.All() {
		o := p.Offsets()
		labels := p.labels()
		gauge := func(d *prometheus.Desc, v float64) { to <- &gauge{d, labels, dto.Gauge{Value: &v}} }
		gauge(offlineDesc, btof(p.Err() != nil))
		gauge(sizeDesc, float64(p.Size()))
		gauge(startDesc, float64(o.Start))
		gauge(endDesc, float64(o.End))
		gauge(watermarkDesc, float64(o.HW))
		gauge(stableDesc, float64(o.LSO))
		gauge(stableLagDesc, float64(o.HW-o.LSO))
		open, oldest := p.OpenTransactions(now)
		gauge(openDesc, float64(open))
		gauge(oldestDesc, oldest.Seconds())
	}
}

// gauge is one figure of a partition. All figures of one share their labels: with thousands of partitions that is most of what a
// scrape would have to allocate.
type gauge struct {
	desc   *prometheus.Desc
	labels []*dto.LabelPair // ascending by name, as in the exposition
	value  dto.Gauge
}

func (g *gauge) Desc() *prometheus.Desc { return g.desc }

func (g *gauge) Write(to *dto.Metric) error {
	to.Label, to.Gauge = g.labels, &g.value
	return nil
}

// labels are the partition's in the order of their names.
func (p *Partition) labels() []*dto.LabelPair {
	index := strconv.Itoa(int(p.index))
	return []*dto.LabelPair{{Name: &partitionLabels[1], Value: &index}, {Name: &partitionLabels[0], Value: &p.topic}}
}

func btof(b bool) float64 {
	if b {
		return 1
	}
	return 0
}

// OpenTransactions is the number of transactions that have no marker yet, and the age of the oldest; after a restart that counts
// from its producer's last append.
func (p *Partition) OpenTransactions(now time.Time) (count int, oldest time.Duration) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.mu.table == nil {
		return 0, 0
	}
	count, began := p.mu.table.Open()
	if count > 0 {
		oldest = max(0, now.Sub(time.UnixMilli(began)))
	}
	return count, oldest
}
