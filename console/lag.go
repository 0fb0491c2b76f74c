package console

import (
	"cmp"
	"context"
	"fmt"
	"log/slog"
	"maps"
	"strconv"
	"sync"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/protocol"
)

const (
	// scrapeWithin bounds what a scrape asks the broker.
	scrapeWithin = 10 * time.Second
	// scanBudget is the most bytes of log that one scrape reads to tell records from markers; what it does not reach is
	// counted by offsets. fetchBytes is read at a time.
	scanBudget = 64 << 20
	fetchBytes = 1 << 20
	// groupBatch is how many groups' offsets are asked for at once.
	groupBatch = 100
)

// The special timestamps of ListOffsets that are asked for.
const (
	latest   = -1
	earliest = -2
)

// position names where a group stands.
type position struct {
	group, topic string
	partition    int32
}

// counted is how many records are in [from, to) of a partition.
type counted struct {
	from, to int64
	records  int64
}

// lagCollector tells how many records each consumer group has not consumed yet. Offsets don't tell: transaction markers
// take one each, and no consumer ever sees them. So it looks at the batches between the group's offset and the high
// watermark, and remembers what it counted: the next scrape only looks at what was consumed and produced since.
type lagCollector struct {
	request Request
	log     *slog.Logger
	lag     *prometheus.Desc
	offset  *prometheus.Desc
	members *prometheus.Desc

	mu struct {
		sync.Mutex
		known map[position]counted
	}
}

func newLagCollector(request Request, logger *slog.Logger) *lagCollector {
	c := &lagCollector{request: request, log: logger}
	partition := []string{"group", "topic", "partition"}
	c.lag = prometheus.NewDesc("oncelog_consumer_group_lag_messages",
		"Records between the group's committed offset and the high watermark that are still there. Transaction markers are not counted.", partition, nil)
	c.offset = prometheus.NewDesc("oncelog_consumer_group_offset", "The group's committed offset.", partition, nil)
	c.members = prometheus.NewDesc("oncelog_consumer_group_members", "Members of the group.", []string{"group", "state"}, nil)
	c.mu.known = map[position]counted{}
	return c
}

// Describe implements prometheus.Collector.
func (c *lagCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- c.lag
	ch <- c.offset
	ch <- c.members
}

// Collect implements prometheus.Collector. One scrape at a time computes.
func (c *lagCollector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), scrapeWithin)
	defer cancel()
	c.mu.Lock()
	defer c.mu.Unlock()
	if err := c.collectLocked(ctx, ch); err != nil {
		c.log.Warn("consumer group lag is incomplete", slog.Any("error", err))
	}
}

func (c *lagCollector) collectLocked(ctx context.Context, ch chan<- prometheus.Metric) error {
	groups, err := c.groups(ctx)
	if err != nil {
		return err
	}
	if err := c.tellMembers(ctx, groups, ch); err != nil {
		return err
	}
	offsets, err := c.offsets(ctx, groups)
	if err != nil {
		return err
	}
	starts, err := c.listed(ctx, offsets, earliest)
	if err != nil {
		return err
	}
	ends, err := c.listed(ctx, offsets, latest)
	if err != nil {
		return err
	}
	s := scanner{request: c.request, budget: scanBudget}
	known := make(map[position]counted, len(offsets))
	for p, at := range offsets {
		end, ok := ends[p.topic][p.partition]
		if !ok {
			continue // the partition is gone, or has no leader now
		}
		n := c.mu.known[p].advance(ctx, &s, p, max(at, starts[p.topic][p.partition]), end)
		known[p] = n
		lag := n.records + max(end-n.to, 0)
		labels := []string{p.group, p.topic, strconv.Itoa(int(p.partition))}
		ch <- prometheus.MustNewConstMetric(c.lag, prometheus.GaugeValue, float64(lag), labels...)
		ch <- prometheus.MustNewConstMetric(c.offset, prometheus.GaugeValue, float64(at), labels...)
	}
	c.mu.known = known
	return s.err
}

func (c *lagCollector) groups(ctx context.Context) ([]kmsg.ListGroupsResponseGroup, error) {
	req := kmsg.NewPtrListGroupsRequest()
	req.Version = 4
	resp, err := ask[*kmsg.ListGroupsResponse](ctx, c.request, req)
	if err != nil {
		return nil, err
	}
	return resp.Groups, kerr.ErrorForCode(resp.ErrorCode)
}

func (c *lagCollector) tellMembers(ctx context.Context, groups []kmsg.ListGroupsResponseGroup, ch chan<- prometheus.Metric) error {
	req := kmsg.NewPtrDescribeGroupsRequest()
	req.Version = 4
	for _, g := range groups {
		if cmp.Or(g.ProtocolType, "consumer") == "consumer" {
			req.Groups = append(req.Groups, g.Group)
		}
	}
	if len(req.Groups) == 0 {
		return nil
	}
	resp, err := ask[*kmsg.DescribeGroupsResponse](ctx, c.request, req)
	if err != nil {
		return err
	}
	for _, g := range resp.Groups {
		if g.ErrorCode == 0 {
			ch <- prometheus.MustNewConstMetric(c.members, prometheus.GaugeValue, float64(len(g.Members)), g.Group, g.State)
		}
	}
	return nil
}

// offsets gives where the groups stand.
func (c *lagCollector) offsets(ctx context.Context, groups []kmsg.ListGroupsResponseGroup) (map[position]int64, error) {
	at := map[position]int64{}
	for len(groups) > 0 {
		n := min(len(groups), groupBatch)
		req := kmsg.NewPtrOffsetFetchRequest()
		req.Version = 8
		for _, g := range groups[:n] {
			row := kmsg.NewOffsetFetchRequestGroup()
			row.Group = g.Group
			req.Groups = append(req.Groups, row)
		}
		groups = groups[n:]
		resp, err := ask[*kmsg.OffsetFetchResponse](ctx, c.request, req)
		if err != nil {
			return nil, err
		}
		for _, g := range resp.Groups {
			for _, t := range g.Topics {
				for _, p := range t.Partitions {
					if p.ErrorCode == 0 && p.Offset >= 0 {
						at[position{g.Group, t.Topic, p.Partition}] = p.Offset
					}
				}
			}
		}
	}
	return at, nil
}

// listed gives the offsets that partitions in which groups stand have for one of the special timestamps. Partitions that
// have none now are left out.
func (c *lagCollector) listed(ctx context.Context, offsets map[position]int64, timestamp int64) (map[string]map[int32]int64, error) {
	wanted := map[string]map[int32]bool{}
	for p := range offsets {
		if wanted[p.topic] == nil {
			wanted[p.topic] = map[int32]bool{}
		}
		wanted[p.topic][p.partition] = true
	}
	if len(wanted) == 0 {
		return nil, nil
	}
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version, req.ReplicaID = 6, -1
	for topic, partitions := range wanted {
		row := kmsg.NewListOffsetsRequestTopic()
		row.Topic = topic
		for index := range maps.Keys(partitions) {
			p := kmsg.NewListOffsetsRequestTopicPartition()
			p.Partition, p.Timestamp = index, timestamp
			row.Partitions = append(row.Partitions, p)
		}
		req.Topics = append(req.Topics, row)
	}
	resp, err := ask[*kmsg.ListOffsetsResponse](ctx, c.request, req)
	if err != nil {
		return nil, err
	}
	found := map[string]map[int32]int64{}
	for _, t := range resp.Topics {
		found[t.Topic] = map[int32]int64{}
		for _, p := range t.Partitions {
			if p.ErrorCode == 0 {
				found[t.Topic][p.Partition] = p.Offset
			}
		}
	}
	return found, nil
}

// advance brings what is known of a position up to date: the group is at `at` now, the partition ends at end. The result
// begins at `at`, and ends before end if the budget ran out.
func (n counted) advance(ctx context.Context, s *scanner, p position, at, end int64) counted {
	if at >= end {
		return counted{from: at, to: end}
	}
	if at < n.from || at > n.to {
		n = counted{from: at, to: at}
	}
	consumed := s.count(ctx, p.topic, p.partition, n.from, at)
	if consumed.to < at {
		n = counted{from: at, to: at}
	} else {
		n.from, n.records = at, n.records-consumed.records
	}
	produced := s.count(ctx, p.topic, p.partition, n.to, end)
	return counted{n.from, produced.to, n.records + produced.records}
}

// scanner counts records by reading batches, within a budget.
type scanner struct {
	request Request
	budget  int   // bytes left
	err     error // the first that was met; positions that need no reading are still told
}

// count counts the records in [from, to), as far as the budget goes: to of the result is where it stopped.
func (s *scanner) count(ctx context.Context, topic string, partition int32, from, to int64) counted {
	n := counted{from: from, to: from}
	for n.to < to && s.budget > 0 && s.err == nil {
		batches, err := s.fetch(ctx, topic, partition, n.to)
		if err != nil {
			s.err = fmt.Errorf("%s-%d at %d: %w", topic, partition, n.to, err)
			break
		}
		s.budget -= max(len(batches), 1)
		next := n.add(batches, to)
		if next == n.to {
			break // nothing there: deleted, or not readable now
		}
		n.to = next
	}
	n.to = min(n.to, to)
	return n
}

// add counts the records of whole batches from n.to on and gives the offset behind the last.
func (n *counted) add(batches []byte, to int64) (next int64) {
	next = n.to
	for {
		b, rest, err := protocol.SplitBatch(batches)
		if err != nil {
			return next // the end, or a batch that was cut off
		}
		batches = rest
		h := b.Header()
		first, last := max(h.BaseOffset, n.to), min(h.LastOffset(), to-1)
		if first <= last && !h.Control() {
			n.records += min(int64(h.NumRecords), last-first+1)
		}
		next = max(next, h.LastOffset()+1)
	}
}

// fetch reads batches from an offset on.
func (s *scanner) fetch(ctx context.Context, topic string, partition int32, from int64) ([]byte, error) {
	req := kmsg.NewPtrFetchRequest()
	req.Version, req.ReplicaID, req.MaxBytes, req.SessionEpoch = 11, -1, fetchBytes, -1
	t := kmsg.NewFetchRequestTopic()
	t.Topic = topic
	p := kmsg.NewFetchRequestTopicPartition()
	p.Partition, p.FetchOffset, p.PartitionMaxBytes = partition, from, fetchBytes
	t.Partitions = append(t.Partitions, p)
	req.Topics = append(req.Topics, t)
	resp, err := ask[*kmsg.FetchResponse](ctx, s.request, req)
	if err != nil {
		return nil, err
	}
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return nil, err
	}
	if len(resp.Topics) != 1 || len(resp.Topics[0].Partitions) != 1 {
		return nil, fmt.Errorf("a fetch of one partition was answered with %d topics", len(resp.Topics))
	}
	row := resp.Topics[0].Partitions[0]
	if row.ErrorCode == kerr.OffsetOutOfRange.Code {
		return nil, nil
	}
	return row.RecordBatches, kerr.ErrorForCode(row.ErrorCode)
}
