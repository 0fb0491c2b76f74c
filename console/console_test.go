package console

import (
	"context"
	"errors"
	"fmt"
	"io"
	"net/http"
	"strings"
	"testing"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"oncelog/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// fake is a broker with one topic "t" of one partition and one group "g". It belongs to its test.
type fake struct {
	batches   []byte
	start     int64
	end       int64
	committed int64 // -1: none
	fetched   int   // bytes that fetches have given
	broken    error
}

// append adds a batch of n records, or a marker.
func (f *fake) append(t *testing.T, n int, marker bool) {
	t.Helper()
	var records []protocol.Record
	for i := range n {
		records = append(records, protocol.Record{OffsetDelta: int32(i), Key: []byte{0, 0, 0, 0}, Value: []byte("value")})
	}
	spec := protocol.BatchSpec{ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1}
	if marker {
		spec.ProducerID, spec.ProducerEpoch, spec.Transactional, spec.Control = 1, 0, true, true
	}
	b, err := protocol.AppendBatch(nil, spec, records)
	if err != nil {
		t.Fatal(err)
	}
	b.SetBase(f.end, 0)
	f.batches = append(f.batches, b...)
	f.end += int64(n)
}

func (f *fake) request(_ context.Context, req kmsg.Request) (kmsg.Response, error) {
	if f.broken != nil {
		return nil, f.broken
	}
	switch req := req.(type) {
	case *kmsg.DescribeClusterRequest:
		resp := kmsg.NewPtrDescribeClusterResponse()
		resp.ControllerID, resp.Brokers = 1, make([]kmsg.DescribeClusterResponseBroker, 1)
		return resp, nil
	case *kmsg.ListGroupsRequest:
		resp := kmsg.NewPtrListGroupsResponse()
		resp.Groups = []kmsg.ListGroupsResponseGroup{{Group: "g", GroupState: "Stable", ProtocolType: "consumer"}}
		return resp, nil
	case *kmsg.DescribeGroupsRequest:
		resp := kmsg.NewPtrDescribeGroupsResponse()
		resp.Groups = []kmsg.DescribeGroupsResponseGroup{{Group: "g", State: "Stable", Members: make([]kmsg.DescribeGroupsResponseGroupMember, 2)}}
		return resp, nil
	case *kmsg.OffsetFetchRequest:
		resp := kmsg.NewPtrOffsetFetchResponse()
		p := kmsg.OffsetFetchResponseGroupTopicPartition{Partition: 0, Offset: f.committed}
		resp.Groups = []kmsg.OffsetFetchResponseGroup{{Group: "g", Topics: []kmsg.OffsetFetchResponseGroupTopic{
			{Topic: "t", Partitions: []kmsg.OffsetFetchResponseGroupTopicPartition{p}}}}}
		return resp, nil
	case *kmsg.ListOffsetsRequest:
		resp := kmsg.NewPtrListOffsetsResponse()
		p := kmsg.ListOffsetsResponseTopicPartition{Offset: f.end}
		if req.Topics[0].Partitions[0].Timestamp == earliest {
			p.Offset = f.start
		}
		resp.Topics = []kmsg.ListOffsetsResponseTopic{{Topic: "t", Partitions: []kmsg.ListOffsetsResponseTopicPartition{p}}}
		return resp, nil
	case *kmsg.FetchRequest:
		return f.fetch(req.Topics[0].Partitions[0]), nil
	}
	return nil, fmt.Errorf("the fake has no %T", req)
}

func (f *fake) fetch(req kmsg.FetchRequestTopicPartition) kmsg.Response {
	resp := kmsg.NewPtrFetchResponse()
	row := kmsg.NewFetchResponseTopicPartition()
	if req.FetchOffset < f.start || req.FetchOffset > f.end {
		row.ErrorCode = kerr.OffsetOutOfRange.Code
	}
	for rest := f.batches; ; {
		b, next, err := protocol.SplitBatch(rest)
		if err != nil {
			break
		}
		if b.Header().LastOffset() >= req.FetchOffset {
			row.RecordBatches = rest[:min(len(rest), max(len(b), int(req.PartitionMaxBytes)))]
			break
		}
		rest = next
	}
	f.fetched += len(row.RecordBatches)
	resp.Topics = []kmsg.FetchResponseTopic{{Topic: "t", Partitions: []kmsg.FetchResponseTopicPartition{row}}}
	return resp
}

func start(t *testing.T, f *fake) (url string) {
	t.Helper()
	registry := prometheus.NewRegistry()
	registry.MustRegister(prometheus.NewGauge(prometheus.GaugeOpts{Name: "of_the_broker"}))
	c := New(Options{Address: "127.0.0.1:0", Request: f.request, Gatherer: registry})
	if err := c.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		http.DefaultClient.CloseIdleConnections()
		if err := c.Stop(context.Background()); err != nil {
			t.Error(err)
		}
	})
	return "http://" + c.Addr().String()
}

func get(t *testing.T, url string) (status int, body string) {
	t.Helper()
	resp, err := http.Get(url)
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	b, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	return resp.StatusCode, string(b)
}

// wantLag scrapes and compares what is told of the group.
func wantLag(t *testing.T, url string, lag int) {
	t.Helper()
	status, body := get(t, url+"/metrics")
	line := fmt.Sprintf(`oncelog_consumer_group_lag_messages{group="g",partition="0",topic="t"} %d`+"\n", lag)
	if status != 200 || !strings.Contains(body, line) {
		t.Errorf("status %d, want %q in:\n%s", status, line, grep(body, "oncelog_"))
	}
}

func grep(text, what string) string {
	var found []string
	for line := range strings.Lines(text) {
		if strings.Contains(line, what) {
			found = append(found, line)
		}
	}
	return strings.Join(found, "")
}

// The lag is what a consumer would still be given: markers don't count, wherever the group stands.
func TestLagDoesNotCountMarkers(t *testing.T) {
	f := &fake{}
	for range 10 {
		f.append(t, 3, false)
		f.append(t, 1, true)
	}
	url := start(t, f)
	for _, step := range []struct {
		committed int64
		lag       int
	}{
		{0, 30}, // all
		{2, 28}, // within a batch
		{3, 27}, // before a marker
		{4, 27}, // behind it
		{21, 14},
		{39, 0}, // only a marker is left
		{40, 0},
		{7, 24}, // set back
		{-1, -1},
	} {
		f.committed = step.committed
		if step.committed < 0 {
			if _, body := get(t, url+"/metrics"); strings.Contains(body, "_lag_messages{") {
				t.Error("a group without an offset has a lag")
			}
			continue
		}
		wantLag(t, url, step.lag)
	}
	if _, body := get(t, url+"/metrics"); !strings.Contains(body, `oncelog_consumer_group_members{group="g",state="Stable"} 2`) || !strings.Contains(body, "of_the_broker 0") {
		t.Errorf("something is missing in:\n%s", body)
	}
}

// A scrape reads only what the one before has not seen.
func TestLagRemembersWhatItCounted(t *testing.T) {
	f := &fake{}
	for range 1000 {
		f.append(t, 50, false)
		f.append(t, 1, true)
	}
	url := start(t, f)
	wantLag(t, url, 50000)
	all := f.fetched
	f.append(t, 50, false)
	f.committed = 51
	f.fetched = 0
	wantLag(t, url, 50000)
	if f.fetched > all/2+2*fetchBytes {
		t.Errorf("the second scrape read %d bytes, the first %d", f.fetched, all)
	}
	f.fetched = 0
	wantLag(t, url, 50000)
	if f.fetched != 0 {
		t.Errorf("a scrape without anything new read %d bytes", f.fetched)
	}
}

// Records that were deleted before the group came to them are nobody's lag.
func TestLagBeginsAtTheLogStart(t *testing.T) {
	f := &fake{}
	f.append(t, 10, false)
	f.append(t, 10, false)
	f.start = 10
	wantLag(t, start(t, f), 10)
}

// A broker that does not answer costs the lag, not the other metrics.
func TestMetricsSurviveASilentBroker(t *testing.T) {
	f := &fake{broken: errors.New("no answer")}
	url := start(t, f)
	if status, body := get(t, url+"/metrics"); status != 200 || !strings.Contains(body, "of_the_broker 0") {
		t.Errorf("%d\n%s", status, body)
	}
	if status, body := get(t, url+"/readyz"); status != 503 || !strings.Contains(body, "no answer") {
		t.Errorf("readyz: %d %q", status, body)
	}
	f.broken = nil
	for _, path := range []string{"/readyz", "/healthz"} {
		if status, _ := get(t, url+path); status != 200 {
			t.Errorf("%s: %d", path, status)
		}
	}
	if status, _ := get(t, url+"/nothing"); status != 404 {
		t.Errorf("/nothing: %d", status)
	}
}

// A port that is taken is an error that names it.
func TestBusyPort(t *testing.T) {
	url := start(t, &fake{})
	address := strings.TrimPrefix(url, "http://")
	c := New(Options{Address: address, Request: (&fake{}).request, Gatherer: prometheus.NewRegistry()})
	if err := c.Start(t.Context()); err == nil || !strings.Contains(err.Error(), "http.listener "+address) {
		t.Errorf("got %v", err)
	}
}
