package golden

import (
	"bytes"
	"context"
	"encoding/json"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/protocol"
	"oncelog/tests/brokertest"
)

func TestMain(m *testing.M) { os.Exit(brokertest.Main(m.Run)) }

// expected is what Kafka said of a set.
type expected struct {
	Partitions []expectedPartition
}

type expectedPartition struct {
	Topic               string
	Partition           int32
	TopicID             string
	LogStartOffset      int64
	HighWatermark       int64
	LastStableOffset    int64
	LogEndOffset        int64
	AbortedTransactions []aborted
	Producers           []struct {
		ProducerID            int64
		ProducerEpoch         int16
		LastSequence          int32
		CoordinatorEpoch      int32
		CurrentTxnStartOffset int64
	}
	LeaderEpochs []struct {
		Epoch       int32
		StartOffset int64
	}
	Batches []expectedBatch
}

type aborted struct{ ProducerID, FirstOffset int64 }

type expectedBatch struct {
	BaseOffset, LastOffset int64
	LeaderEpoch, Size      int32
	CRC                    uint32
	ProducerID             int64
	BaseSequence           int32
	Transactional          bool
	Marker                 any
	Records                []struct {
		Offset, Timestamp int64
		Key, Value        []byte
		Headers           []struct {
			Key   string
			Value []byte
		}
	}
}

// settings keep a broker from changing what is there: the clock of the sets is that of their making.
var settings = []string{
	"log.initial.task.delay.ms=3600000", "log.cleaner.enable=false", "transaction.abort.timed.out.transaction.cleanup.interval.ms=3600000",
	"transactional.id.expiration.ms=2147483647", "offsets.retention.minutes=2147483647",
}

// TestImportedDirectoriesAreServed: each set is imported, by moving or by copying, and served: the same batches, offsets, aborted transactions and epochs,
// and producers go on where they were.
func TestImportedDirectoriesAreServed(t *testing.T) {
	brokertest.NeedOwn(t)
	for i, set := range []string{"plain", "txn", "compacted", "appendtime", "epochs", "killed", "killed-recovered", "coordinators"} {
		t.Run(set, func(t *testing.T) {
			e := expect(t, set)
			dir := t.TempDir()
			src := filepath.Join(dir, "kafka")
			if err := os.CopyFS(src, os.DirFS(filepath.Join("testdata", set, "data"))); err != nil {
				t.Fatal(err)
			}
			args := []string{"import", "--topic-set", "retention.ms=-1", "--set", "log.dirs=" + filepath.Join(dir, "data"), src}
			if set == "coordinators" {
				args = append(args, "--partial")
			}
			if i%2 == 0 {
				args = append(args, "--copy")
			}
			run(t, args...)
			b := brokertest.StartIn(t, dir, settings...)
			for _, p := range e.Partitions {
				s := served{t: t, broker: b, set: set, want: p}
				s.check()
			}
			if set == "coordinators" {
				checkCoordinators(t, b)
			}
			b.Stop()
			run(t, "check", "--quiet", b.Dir())
			if kept, _ := filepath.Glob(src + "/*-[0-9]*"); i%2 == 0 && len(kept) != len(e.Partitions) || i%2 == 1 && len(kept) > 0 {
				t.Errorf("left of the source: %v", kept)
			}
			b.Restart()
			for _, p := range e.Partitions {
				s := served{t: t, broker: b, set: set, want: p}
				s.connect()
				s.checkBatches(s.fetchAll(0))
			}
		})
	}
}

// TestStartOnKafkasDirectory: a broker doesn't start on what Kafka left, and names the command that takes it over, after which it does.
func TestStartOnKafkasDirectory(t *testing.T) {
	brokertest.NeedOwn(t)
	dir := t.TempDir()
	data := filepath.Join(dir, "data")
	if err := os.CopyFS(data, os.DirFS("testdata/metadata/data")); err != nil {
		t.Fatal(err)
	}
	set := []string{"--set", "log.dirs=" + data, "--set", "listeners=PLAINTEXT://127.0.0.1:0", "--set", "http.listener="}
	out, err := exec.Command(brokertest.Binary(t), append([]string{"serve"}, set...)...).CombinedOutput()
	if err == nil || !strings.Contains(string(out), `take its topics over with "broker import `+data+`"`) || strings.Count(string(out), "broker:") != 1 {
		t.Fatalf("%v\n%s", err, out)
	}
	run(t, append([]string{"import", data}, set...)...)
	b := brokertest.StartIn(t, dir, append(settings, "offsets.topic.num.partitions=3")...)
	cl, err := kgo.NewClient(kgo.SeedBrokers(b.Addr()), kgo.ConsumerGroup("readers"), kgo.ConsumeTopics("orders"))
	if err != nil {
		t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(t.Context(), 30*time.Second)
	defer cancel()
	if err := cl.ProduceSync(ctx, &kgo.Record{Topic: "orders", Key: []byte("c"), Value: []byte("new")}).FirstErr(); err != nil {
		t.Fatal(err)
	}
	fetches := cl.PollFetches(ctx) // the group had read all that there was
	if records := fetches.Records(); len(records) != 1 || string(records[0].Value) != "new" {
		t.Errorf("%v, %v", records, fetches.Err0())
	}
	if strays, _ := filepath.Glob(data + "/*-stray"); len(strays) > 0 {
		t.Errorf("%v", strays)
	}
}

func expect(t *testing.T, set string) (e expected) {
	t.Helper()
	data, err := os.ReadFile(filepath.Join("testdata", set, "expect.json"))
	if err == nil {
		err = json.Unmarshal(data, &e)
	}
	if err != nil {
		t.Fatal(err)
	}
	return e
}

// run runs the broker's binary, which must succeed.
func run(t *testing.T, args ...string) {
	t.Helper()
	if out, err := exec.Command(brokertest.Binary(t), args...).CombinedOutput(); err != nil {
		t.Fatalf("broker %s: %v\n%s", strings.Join(args, " "), err, out)
	}
}

// served is one partition as a client sees it.
type served struct {
	t      *testing.T
	broker *brokertest.Broker
	set    string
	want   expectedPartition
	client *kgo.Client
}

func (s *served) errorf(format string, args ...any) {
	s.t.Helper()
	s.t.Errorf("%s-%d: "+format, append([]any{s.want.Topic, s.want.Partition}, args...)...)
}

func (s *served) connect() {
	s.t.Helper()
	cl, err := kgo.NewClient(kgo.SeedBrokers(s.broker.Addr()))
	if err != nil {
		s.t.Fatal(err)
	}
	s.t.Cleanup(cl.Close)
	s.client = cl
}

func ask[R kmsg.Response](s *served, req kmsg.Request) R {
	s.t.Helper()
	ctx, cancel := context.WithTimeout(s.t.Context(), 20*time.Second)
	defer cancel()
	resp, err := s.client.Broker(1).Request(ctx, req)
	if err != nil {
		s.t.Fatalf("%s-%d: %T: %v", s.want.Topic, s.want.Partition, req, err)
	}
	return resp.(R)
}

func (s *served) check() {
	s.t.Helper()
	s.connect()
	s.checkOffsets()
	batches := s.fetchAll(0)
	s.checkBatches(batches)
	s.checkRecords()
	s.checkAborted()
	s.checkEpochs()
	s.checkProducers()
	s.checkRetries(batches)
}

func (s *served) checkOffsets() {
	s.t.Helper()
	for _, tt := range []struct {
		timestamp int64
		isolation int8
		want      int64
	}{{-2, 0, s.want.LogStartOffset}, {-1, 0, s.want.HighWatermark}, {-1, 1, s.want.LastStableOffset}} {
		if s.set == "coordinators" && tt.isolation == 1 {
			continue // a transaction was open, and its time is over
		}
		req := kmsg.NewPtrListOffsetsRequest()
		req.ReplicaID, req.IsolationLevel = -1, tt.isolation
		topic, part := kmsg.NewListOffsetsRequestTopic(), kmsg.NewListOffsetsRequestTopicPartition()
		part.Partition, part.Timestamp = s.want.Partition, tt.timestamp
		topic.Topic, topic.Partitions = s.want.Topic, append(topic.Partitions, part)
		req.Topics = append(req.Topics, topic)
		if got := ask[*kmsg.ListOffsetsResponse](s, req).Topics[0].Partitions[0]; got.ErrorCode != 0 || got.Offset != tt.want {
			s.errorf("offset of %d, isolation %d: %+v, want %d", tt.timestamp, tt.isolation, got, tt.want)
		}
	}
}

// fetch reads once from an offset, with the topic's id.
func (s *served) fetch(from int64, isolation int8) kmsg.FetchResponseTopicPartition {
	s.t.Helper()
	req := kmsg.NewPtrFetchRequest()
	req.MaxWaitMillis, req.MinBytes, req.MaxBytes, req.IsolationLevel, req.SessionEpoch = 100, 1, 50<<20, isolation, -1
	topic, part := kmsg.NewFetchRequestTopic(), kmsg.NewFetchRequestTopicPartition()
	part.Partition, part.FetchOffset, part.PartitionMaxBytes, part.CurrentLeaderEpoch = s.want.Partition, from, 50<<20, -1
	id, err := protocol.ParseUUID(s.want.TopicID)
	if err != nil {
		s.t.Fatal(err)
	}
	topic.Topic, topic.TopicID, topic.Partitions = s.want.Topic, id, append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	resp := ask[*kmsg.FetchResponse](s, req)
	if resp.ErrorCode != 0 || len(resp.Topics) != 1 || resp.Topics[0].Partitions[0].ErrorCode != 0 {
		s.t.Fatalf("%s-%d: fetch from %d: %+v", s.want.Topic, s.want.Partition, from, resp)
	}
	return resp.Topics[0].Partitions[0]
}

// fetchAll reads all batches that there were in the set.
func (s *served) fetchAll(isolation int8) (batches []protocol.Batch) {
	s.t.Helper()
	for from := s.want.LogStartOffset; from < s.want.LogEndOffset; {
		rest := s.fetch(from, isolation).RecordBatches
		if len(rest) == 0 {
			break
		}
		for len(rest) > 0 {
			b, next, err := protocol.SplitBatch(rest)
			if err != nil {
				s.t.Fatal(err)
			}
			rest = next
			if from = b.Header().LastOffset() + 1; b.Header().BaseOffset < s.want.LogEndOffset {
				batches = append(batches, b)
			}
		}
	}
	return batches
}

func (s *served) checkBatches(got []protocol.Batch) {
	s.t.Helper()
	var want []expectedBatch
	for _, b := range s.want.Batches {
		if b.LastOffset >= s.want.LogStartOffset {
			want = append(want, b)
		}
	}
	if len(got) != len(want) {
		s.errorf("%d batches, want %d", len(got), len(want))
		return
	}
	for i, b := range got {
		h, w := b.Header(), want[i]
		if h.BaseOffset != w.BaseOffset || h.LastOffset() != w.LastOffset || h.LeaderEpoch != w.LeaderEpoch || h.Size != w.Size || h.CRC != w.CRC || b.CheckCRC() != nil {
			s.errorf("batch %+v, want %+v", h, w)
		}
	}
}

// checkRecords reads with a client that knows nothing of batches.
func (s *served) checkRecords() {
	s.t.Helper()
	var want []string
	for _, b := range s.want.Batches {
		for _, r := range b.Records {
			if b.Marker == nil && r.Offset >= s.want.LogStartOffset {
				k := kgo.Record{Offset: r.Offset, Key: r.Key, Value: r.Value, Timestamp: time.UnixMilli(r.Timestamp)}
				for _, h := range r.Headers {
					k.Headers = append(k.Headers, kgo.RecordHeader{Key: h.Key, Value: h.Value})
				}
				want = append(want, show(&k))
			}
		}
	}
	if len(want) == 0 {
		return
	}
	cl, err := kgo.NewClient(kgo.SeedBrokers(s.broker.Addr()), kgo.FetchIsolationLevel(kgo.ReadUncommitted()),
		kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{s.want.Topic: {s.want.Partition: kgo.NewOffset().AtStart()}}))
	if err != nil {
		s.t.Fatal(err)
	}
	defer cl.Close()
	ctx, cancel := context.WithTimeout(s.t.Context(), 20*time.Second)
	defer cancel()
	var got []string
	for len(got) < len(want) && ctx.Err() == nil {
		fetches := cl.PollFetches(ctx)
		if err := fetches.Err0(); err != nil {
			s.t.Fatal(err)
		}
		fetches.EachRecord(func(r *kgo.Record) { got = append(got, show(r)) })
	}
	if !slices.Equal(got, want) {
		s.errorf("records\n%q\nwant\n%q", got, want)
	}
}

func show(r *kgo.Record) string {
	s := fmt.Sprintf("%d %d %q %t %q %t", r.Offset, r.Timestamp.UnixMilli(), r.Key, r.Key == nil, r.Value, r.Value == nil)
	for _, h := range r.Headers {
		s += fmt.Sprintf(" %s=%q %t", h.Key, h.Value, h.Value == nil)
	}
	return s
}

func (s *served) checkAborted() {
	s.t.Helper()
	var got []aborted
	for from := s.want.LogStartOffset; from < s.want.LastStableOffset; {
		p := s.fetch(from, 1)
		if len(p.RecordBatches) == 0 {
			break
		}
		for _, a := range p.AbortedTransactions {
			if x := (aborted{a.ProducerID, a.FirstOffset}); !slices.Contains(got, x) {
				got = append(got, x)
			}
		}
		for rest := p.RecordBatches; len(rest) > 0; {
			b, next, err := protocol.SplitBatch(rest)
			if err != nil {
				break
			}
			from, rest = b.Header().LastOffset()+1, next
		}
	}
	if !slices.Equal(got, s.want.AbortedTransactions) {
		s.errorf("aborted %v, want %v", got, s.want.AbortedTransactions)
	}
}

// checkEpochs asks where each epoch ended. Ours begins where the set ends.
func (s *served) checkEpochs() {
	s.t.Helper()
	for i, e := range s.want.LeaderEpochs {
		end := s.want.LogEndOffset
		if i+1 < len(s.want.LeaderEpochs) {
			end = s.want.LeaderEpochs[i+1].StartOffset
		}
		if e.StartOffset == end {
			continue // it has no records, so the next one took its place
		}
		req := kmsg.NewPtrOffsetForLeaderEpochRequest()
		req.ReplicaID = -1
		topic, part := kmsg.NewOffsetForLeaderEpochRequestTopic(), kmsg.NewOffsetForLeaderEpochRequestTopicPartition()
		part.Partition, part.CurrentLeaderEpoch, part.LeaderEpoch = s.want.Partition, -1, e.Epoch
		topic.Topic, topic.Partitions = s.want.Topic, append(topic.Partitions, part)
		req.Topics = append(req.Topics, topic)
		got := ask[*kmsg.OffsetForLeaderEpochResponse](s, req).Topics[0].Partitions[0]
		if got.ErrorCode != 0 || got.LeaderEpoch != e.Epoch || got.EndOffset != end {
			s.errorf("epoch %d: %+v, want its end at %d", e.Epoch, got, end)
		}
	}
}

func (s *served) checkProducers() {
	s.t.Helper()
	if s.set == "coordinators" {
		return // coordinators went on, with markers
	}
	req := kmsg.NewPtrDescribeProducersRequest()
	topic := kmsg.NewDescribeProducersRequestTopic()
	topic.Topic, topic.Partitions = s.want.Topic, []int32{s.want.Partition}
	req.Topics = append(req.Topics, topic)
	got := ask[*kmsg.DescribeProducersResponse](s, req).Topics[0].Partitions[0]
	for _, w := range s.want.Producers {
		found := false
		for _, g := range got.ActiveProducers {
			found = found || g.ProducerID == w.ProducerID && g.ProducerEpoch == int32(w.ProducerEpoch) && g.LastSequence == w.LastSequence &&
				g.CoordinatorEpoch == w.CoordinatorEpoch && g.CurrentTxnStartOffset == w.CurrentTxnStartOffset
		}
		if !found {
			s.errorf("producer %+v is not among %+v", w, got.ActiveProducers)
		}
	}
}

// checkRetries sends the last batch of each idempotent producer again, which must be found to be one, and then the next.
func (s *served) checkRetries(batches []protocol.Batch) {
	s.t.Helper()
	if strings.HasPrefix(s.want.Topic, "__") {
		return
	}
	for _, p := range s.want.Producers {
		if p.LastSequence < 0 || p.CurrentTxnStartOffset >= 0 {
			continue
		}
		i := len(batches) - 1
		for ; i >= 0; i-- {
			h := batches[i].Header()
			if h.ProducerID == p.ProducerID && h.ProducerEpoch == p.ProducerEpoch && h.LastSequence() == p.LastSequence && !h.Transactional() && h.NumRecords > 0 {
				break
			}
		}
		if i < 0 || s.set == "appendtime" {
			continue
		}
		retry := protocol.Batch(bytes.Clone(batches[i]))
		base := retry.Header().BaseOffset
		if got := s.produce(retry); got.ErrorCode != 0 || got.BaseOffset != base {
			s.errorf("a retry of producer %d is %+v, want the offset %d", p.ProducerID, got, base)
		}
		next, err := protocol.AppendBatch(nil, protocol.BatchSpec{
			ProducerID: p.ProducerID, ProducerEpoch: p.ProducerEpoch, BaseSequence: protocol.AddSequence(p.LastSequence, 1), BaseTimestamp: time.Now().UnixMilli(),
		}, []protocol.Record{{Key: []byte("k"), Value: []byte("the next one")}})
		if err != nil {
			s.t.Fatal(err)
		}
		if got := s.produce(next); got.ErrorCode != 0 || got.BaseOffset < s.want.LogEndOffset {
			s.errorf("the next batch of producer %d is %+v, want an offset from %d on", p.ProducerID, got, s.want.LogEndOffset)
		}
	}
}

func (s *served) produce(b protocol.Batch) kmsg.ProduceResponseTopicPartition {
	s.t.Helper()
	b.SetBase(0, -1)
	req := kmsg.NewPtrProduceRequest()
	req.Acks, req.TimeoutMillis = -1, 10_000
	id, err := protocol.ParseUUID(s.want.TopicID)
	if err != nil {
		s.t.Fatal(err)
	}
	topic, part := kmsg.NewProduceRequestTopic(), kmsg.NewProduceRequestTopicPartition()
	part.Partition, part.Records = s.want.Partition, b
	topic.Topic, topic.TopicID, topic.Partitions = s.want.Topic, id, append(topic.Partitions, part)
	req.Topics = append(req.Topics, topic)
	return ask[*kmsg.ProduceResponse](s, req).Topics[0].Partitions[0]
}
