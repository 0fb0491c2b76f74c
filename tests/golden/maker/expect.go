package main

import (
	"context"
	"encoding/binary"
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/protocol"
)

// expectation is expect.json.
type expectation struct {
	Kafka       string            `json:"kafka"`
	Set         string            `json:"set"`
	Stopped     string            `json:"stopped"`
	Checkpoints map[string]string `json:"checkpoints"`
	Partitions  []partition       `json:"partitions"`
}

type partition struct {
	Topic        string `json:"topic"`
	Partition    int32  `json:"partition"`
	TopicID      string `json:"topicId"`
	LogEndOffset int64  `json:"logEndOffset"`
	live
	LeaderEpochs []epochStart `json:"leaderEpochs"`
	Segments     []segment    `json:"segments"`
	Snapshots    []snapshot   `json:"snapshots"`
	Batches      []batch      `json:"batches"`
}

// live is what a broker said just before it was stopped.
type live struct {
	LogStartOffset      int64          `json:"logStartOffset"`
	HighWatermark       int64          `json:"highWatermark"`
	LastStableOffset    int64          `json:"lastStableOffset"`
	LeaderEpoch         int32          `json:"leaderEpoch"`
	AbortedTransactions []abortedRange `json:"abortedTransactions"`
	Producers           []liveProducer `json:"producers"`
}

type abortedRange struct {
	ProducerID  int64 `json:"producerId"`
	FirstOffset int64 `json:"firstOffset"`
}

type liveProducer struct {
	ProducerID            int64 `json:"producerId"`
	ProducerEpoch         int32 `json:"producerEpoch"`
	LastSequence          int32 `json:"lastSequence"`
	LastTimestamp         int64 `json:"lastTimestamp"`
	CoordinatorEpoch      int32 `json:"coordinatorEpoch"`
	CurrentTxnStartOffset int64 `json:"currentTxnStartOffset"`
}

type epochStart struct {
	Epoch       int32 `json:"epoch"`
	StartOffset int64 `json:"startOffset"`
}

type segment struct {
	Base        int64        `json:"base"`
	LogSize     int          `json:"logSize"`
	OffsetIndex [][2]int64   `json:"offsetIndex"` // offset, position
	TimeIndex   [][2]int64   `json:"timeIndex"`   // timestamp, offset
	TxnIndex    []abortEntry `json:"txnIndex,omitempty"`
}

type abortEntry struct {
	ProducerID       int64 `json:"producerId"`
	FirstOffset      int64 `json:"firstOffset"`
	LastOffset       int64 `json:"lastOffset"`
	LastStableOffset int64 `json:"lastStableOffset"`
}

type snapshot struct {
	Offset    int64           `json:"offset"`
	Producers []savedProducer `json:"producers"`
}

type savedProducer struct {
	ProducerID            int64 `json:"producerId"`
	ProducerEpoch         int16 `json:"producerEpoch"`
	LastSequence          int32 `json:"lastSequence"`
	LastOffset            int64 `json:"lastOffset"`
	OffsetDelta           int32 `json:"offsetDelta"`
	Timestamp             int64 `json:"timestamp"`
	CoordinatorEpoch      int32 `json:"coordinatorEpoch"`
	CurrentTxnFirstOffset int64 `json:"currentTxnFirstOffset"`
}

type batch struct {
	BaseOffset    int64         `json:"baseOffset"`
	LastOffset    int64         `json:"lastOffset"`
	LeaderEpoch   int32         `json:"leaderEpoch"`
	Size          int32         `json:"size"`
	CRC           uint32        `json:"crc"`
	Codec         string        `json:"codec"`
	LogAppendTime bool          `json:"logAppendTime,omitempty"`
	Transactional bool          `json:"transactional,omitempty"`
	Control       bool          `json:"control,omitempty"`
	DeleteHorizon int64         `json:"deleteHorizonMs,omitempty"`
	BaseTimestamp int64         `json:"baseTimestamp"`
	MaxTimestamp  int64         `json:"maxTimestamp"`
	ProducerID    int64         `json:"producerId"`
	ProducerEpoch int16         `json:"producerEpoch"`
	BaseSequence  int32         `json:"baseSequence"`
	Marker        *marker       `json:"marker,omitempty"`
	Records       []savedRecord `json:"records"`
}

type marker struct {
	Type             string `json:"type"`
	CoordinatorEpoch int32  `json:"coordinatorEpoch"`
}

type savedRecord struct {
	Offset    int64         `json:"offset"`
	Timestamp int64         `json:"timestamp"`
	Key       []byte        `json:"key"`
	Value     []byte        `json:"value"`
	Headers   []savedHeader `json:"headers,omitempty"`
}

type savedHeader struct {
	Key   string `json:"key"`
	Value []byte `json:"value"`
}

// capture asks for every partition of the topics.
func (b *broker) capture(topics []string) map[string]live {
	captured := map[string]live{}
	details, err := b.admin.ListTopicsWithInternal(context.Background(), topics...)
	must(err)
	for _, t := range details {
		for _, p := range t.Partitions {
			captured[fmt.Sprintf("%s-%d", t.Topic, p.Partition)] = b.captureOne(t.Topic, p.Partition)
		}
	}
	return captured
}

func (b *broker) captureOne(topic string, index int32) live {
	until("a leader of "+topic, func() bool { return b.listOffset(topic, index, -1, 0).ErrorCode == 0 })
	latest := b.listOffset(topic, index, -1, 0)
	l := live{
		LogStartOffset: b.listOffset(topic, index, -2, 0).Offset, HighWatermark: latest.Offset, LeaderEpoch: latest.LeaderEpoch,
		LastStableOffset: b.listOffset(topic, index, -1, 1).Offset, Producers: []liveProducer{},
	}
	_, l.AbortedTransactions = b.read(topic, index, 1)
	req := kmsg.NewPtrDescribeProducersRequest()
	t := kmsg.NewDescribeProducersRequestTopic()
	t.Topic, t.Partitions = topic, []int32{index}
	req.Topics = append(req.Topics, t)
	for _, p := range ask[*kmsg.DescribeProducersResponse](b, 0, req).Topics[0].Partitions[0].ActiveProducers {
		l.Producers = append(l.Producers, liveProducer{p.ProducerID, p.ProducerEpoch, p.LastSequence, p.LastTimestamp, p.CoordinatorEpoch, p.CurrentTxnStartOffset})
	}
	slices.SortFunc(l.Producers, func(a, b liveProducer) int { return int(a.ProducerID - b.ProducerID) })
	return l
}

// expect puts what was captured and what the files hold together.
func expect(set, stopped, captured, dir string) expectation {
	var lives map[string]live
	must(json.Unmarshal(read(captured), &lives))
	e := expectation{Kafka: "4.4.0", Set: set, Stopped: stopped, Checkpoints: map[string]string{}}
	entries, err := os.ReadDir(dir)
	must(err)
	for _, entry := range entries {
		name := entry.Name()
		switch l, ok := lives[name]; {
		case !entry.IsDir():
			if data := read(filepath.Join(dir, name)); len(data) > 0 {
				e.Checkpoints[name] = string(data)
			}
		case !ok:
			panic("nothing was captured of " + name)
		default:
			dash := strings.LastIndexByte(name, '-')
			index, err := strconv.Atoi(name[dash+1:])
			must(err)
			p := partition{Topic: name[:dash], Partition: int32(index), live: l, LeaderEpochs: []epochStart{}, Segments: []segment{}, Snapshots: []snapshot{}, Batches: []batch{}}
			p.readDir(filepath.Join(dir, name))
			e.Partitions = append(e.Partitions, p)
		}
	}
	return e
}

func read(name string) []byte {
	data, err := os.ReadFile(name)
	must(err)
	return data
}

func (p *partition) readDir(dir string) {
	entries, err := os.ReadDir(dir)
	must(err)
	for _, entry := range entries {
		name := filepath.Join(dir, entry.Name())
		digits, _, _ := strings.Cut(entry.Name(), ".")
		base, _ := strconv.ParseInt(digits, 10, 64)
		switch {
		case strings.HasSuffix(name, ".log"):
			p.readSegment(strings.TrimSuffix(name, ".log"), base)
		case strings.HasSuffix(name, ".snapshot"):
			p.Snapshots = append(p.Snapshots, readSnapshot(read(name), base))
		case entry.Name() == "partition.metadata":
			_, id, _ := strings.Cut(string(read(name)), "topic_id: ")
			p.TopicID = strings.TrimSpace(id)
		case entry.Name() == "leader-epoch-checkpoint":
			for _, line := range strings.Split(strings.TrimSpace(string(read(name))), "\n")[2:] {
				var s epochStart
				_, err := fmt.Sscan(line, &s.Epoch, &s.StartOffset)
				must(err)
				p.LeaderEpochs = append(p.LeaderEpochs, s)
			}
		}
	}
}

func (p *partition) readSegment(stem string, base int64) {
	data := read(stem + ".log")
	s := segment{Base: base, LogSize: len(data), OffsetIndex: [][2]int64{}, TimeIndex: [][2]int64{}}
	p.LogEndOffset = max(p.LogEndOffset, base)
	for len(data) > 0 {
		b, rest, err := protocol.SplitBatch(data)
		must(err)
		must(b.CheckCRC())
		p.Batches, p.LogEndOffset, data = append(p.Batches, readBatch(b)), b.Header().LastOffset()+1, rest
	}
	be := binary.BigEndian
	entries := func(ext string, size int, add func(e []byte)) {
		index, err := os.ReadFile(stem + ext)
		if err != nil && !os.IsNotExist(err) {
			panic(err)
		}
		for i := 0; i+size <= len(index); i += size {
			if i > 0 && ext != ".txnindex" && be.Uint64(index[i:]) == 0 {
				break // preallocated
			}
			add(index[i : i+size])
		}
	}
	entries(".index", 8, func(e []byte) {
		s.OffsetIndex = append(s.OffsetIndex, [2]int64{base + int64(be.Uint32(e)), int64(be.Uint32(e[4:]))})
	})
	entries(".timeindex", 12, func(e []byte) {
		s.TimeIndex = append(s.TimeIndex, [2]int64{int64(be.Uint64(e)), base + int64(be.Uint32(e[8:]))})
	})
	entries(".txnindex", 34, func(e []byte) {
		s.TxnIndex = append(s.TxnIndex, abortEntry{int64(be.Uint64(e[2:])), int64(be.Uint64(e[10:])), int64(be.Uint64(e[18:])), int64(be.Uint64(e[26:]))})
	})
	p.Segments = append(p.Segments, s)
}

func readSnapshot(data []byte, offset int64) snapshot {
	be := binary.BigEndian
	s := snapshot{Offset: offset, Producers: []savedProducer{}}
	for i := 10; i+46 <= len(data); i += 46 {
		e := data[i:]
		s.Producers = append(s.Producers, savedProducer{
			int64(be.Uint64(e)), int16(be.Uint16(e[8:])), int32(be.Uint32(e[10:])), int64(be.Uint64(e[14:])),
			int32(be.Uint32(e[22:])), int64(be.Uint64(e[26:])), int32(be.Uint32(e[34:])), int64(be.Uint64(e[38:])),
		})
	}
	return s
}

func readBatch(b protocol.Batch) batch {
	h := b.Header()
	out := batch{
		BaseOffset: h.BaseOffset, LastOffset: h.LastOffset(), LeaderEpoch: h.LeaderEpoch, Size: h.Size, CRC: h.CRC, Codec: h.Codec().String(),
		LogAppendTime: h.LogAppendTime(), Transactional: h.Transactional(), Control: h.Control(),
		BaseTimestamp: h.BaseTimestamp, MaxTimestamp: h.MaxTimestamp, ProducerID: h.ProducerID, ProducerEpoch: h.ProducerEpoch, BaseSequence: h.BaseSequence,
		Records: []savedRecord{},
	}
	if h.HasDeleteHorizon() {
		out.DeleteHorizon = h.BaseTimestamp
	}
	rr := b.Records(math.MaxInt32)
	defer rr.Close()
	for rr.Next() {
		r := rr.Record()
		if h.Control() {
			out.Marker = &marker{Type: "ABORT", CoordinatorEpoch: int32(binary.BigEndian.Uint32(r.Value[2:]))}
			if r.Key[3] == 1 {
				out.Marker.Type = "COMMIT"
			}
		}
		saved := savedRecord{Offset: h.BaseOffset + int64(r.OffsetDelta), Timestamp: h.Timestamp(r.TimestampDelta), Key: clone(r.Key), Value: clone(r.Value)}
		for _, header := range r.Headers {
			saved.Headers = append(saved.Headers, savedHeader{header.Key, clone(header.Value)})
		}
		out.Records = append(out.Records, saved)
	}
	must(rr.Err())
	return out
}

// clone copies bytes; nil stays nil, which is null.
func clone(b []byte) []byte {
	if b == nil {
		return nil
	}
	return append([]byte{}, b...)
}
