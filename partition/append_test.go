package partition

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"oncelog/controlmarkers"
	"oncelog/internal/vfs"
	"oncelog/protocol"
)

// change gives a batch other bytes, and a right checksum for them.
func change(b protocol.Batch, f func(protocol.Batch)) protocol.Batch {
	f(b)
	ts := b.Header().MaxTimestamp
	b.SetMaxTimestamp(true, ts+1) // writes the checksum
	b.SetMaxTimestamp(false, ts)
	return b
}

func TestAppendRefuses(t *testing.T) {
	hour := int64(3_600_000)
	now := start.UnixMilli()
	for _, tt := range []struct {
		name     string
		topic    []string
		batch    protocol.Batch
		want     *kerr.Error
		logStart int64 // in the answer
	}{
		{"base offset", nil, change(spec{}.build(t), func(b protocol.Batch) { b.SetBase(1, -1) }), kerr.InvalidRecord, 0},
		{"one byte too large", []string{"max.message.bytes", "99"}, spec{value: strings.Repeat("x", 100-61-10)}.build(t), kerr.MessageTooLarge, -1},
		{"flipped byte", nil, func() protocol.Batch { b := spec{}.build(t); b[70] ^= 1; return b }(), kerr.CorruptMessage, -1},
		{"record count", nil, change(spec{n: 2}.build(t), func(b protocol.Batch) { binary.BigEndian.PutUint32(b[57:], 3) }), kerr.InvalidRecord, 0},
		{"no records", nil, change(spec{}.build(t), func(b protocol.Batch) { binary.BigEndian.PutUint32(b[57:], 0) }), kerr.InvalidRecord, 0},
		{"control", nil, change(spec{}.build(t), func(b protocol.Batch) { b[22] |= 0x20 }), kerr.InvalidRecord, 0},
		{"no sequence", nil, spec{pid: 5, seq: -1}.build(t), kerr.InvalidRecord, 0},
		{"transaction without producer", nil, change(spec{}.build(t), func(b protocol.Batch) { b[22] |= 0x10 }), kerr.InvalidRecord, 0},
		{"unknown codec", nil, change(spec{}.build(t), func(b protocol.Batch) { b[22] |= 7 }), kerr.InvalidRecord, 0},
		{"undecodable payload", nil, change(spec{codec: protocol.CodecGzip, value: strings.Repeat("x", 500)}.build(t),
			func(b protocol.Batch) { clear(b[61:]) }), kerr.InvalidRecord, 0},
		{"malformed record", nil, change(spec{}.build(t), func(b protocol.Batch) { b[61] += 2 }), kerr.InvalidRecord, 0},
		{"timestamp in the future", nil, spec{times: []int64{now + hour + 1}}.build(t), kerr.InvalidTimestamp, 0},
		{"timestamp too old", []string{"message.timestamp.before.max.ms", "1000"}, spec{times: []int64{now - 1001}}.build(t), kerr.InvalidTimestamp, 0},
		{"the smallest timestamp", nil, spec{times: []int64{math.MinInt64}}.build(t), kerr.InvalidTimestamp, 0},
		{"append time by the client", []string{"message.timestamp.type", "LogAppendTime"}, spec{append: true}.build(t), kerr.InvalidTimestamp, 0},
		{"null key", []string{"cleanup.policy", "compact"}, spec{keys: []string{"a", ""}}.build(t), kerr.InvalidRecord, 0},
		{"larger than a segment", []string{"internal.segment.bytes", "70"}, spec{}.build(t), kerr.RecordListTooLarge, -1},
		{"a large record within", []string{"max.decompressed.message.bytes", "1000"},
			spec{codec: protocol.CodecZstd, value: strings.Repeat("x", 1000)}.build(t), kerr.InvalidRecord, 0},
		{"gap in the sequence", nil, spec{pid: 9, epoch: 3, seq: 7}.build(t), kerr.OutOfOrderSequenceNumber, 0},
		{"old epoch", nil, spec{pid: 9, epoch: 2, seq: 5}.build(t), kerr.InvalidProducerEpoch, 0},
		{"unverified transaction", nil, spec{pid: 8, txn: true}.build(t), kerr.InvalidTxnState, 0},
	} {
		t.Run(tt.name, func(t *testing.T) {
			n := open(t, vfs.NewMem(), topicConfig(t))
			p := n.lead()
			mustProduce(t, p, spec{pid: 9, epoch: 3})
			p.setConfig(topicConfig(t, tt.topic...))
			before, _ := p.Producers()
			a, err := p.Append(AppendRequest{Batch: tt.batch, Acks: -1, ExpectEpoch: -1, Now: start})
			wantCode(t, err, tt.want)
			if want := (Appended{BaseOffset: -1, LastOffset: -1, LogAppendTime: -1, LogStart: tt.logStart, LeaderEpoch: 0}); a != want {
				t.Errorf("answer %+v, want %+v", a, want)
			}
			if after, _ := p.Producers(); p.Offsets().End != 1 || !reflect.DeepEqual(before, after) {
				t.Error("the refused batch left a trace")
			}
		})
	}
}

// TestRecordErrors has the texts of the real broker.
func TestRecordErrors(t *testing.T) {
	at := start.UnixMilli()
	nullKey := "Compacted topic cannot accept message without key in topic partition t-0"
	inMessage := func(kind string, offset int, key int) string {
		return fmt.Sprintf("Invalid timestamp type in message %s(offset=%d, timestamp=%d, key=%d bytes, value=5 bytes)."+
			" Producer should not set timestamp type to LogAppendTime.", kind, offset, at, key)
	}
	for _, tt := range []struct {
		name  string
		topic []string
		spec  spec
		want  RecordErrors
	}{
		{"null keys", []string{"cleanup.policy", "compact"}, spec{keys: []string{"a", "", "", "", ""}}, RecordErrors{
			kerr.InvalidRecord, "One or more records have been rejected due to 4 record errors in total, and only showing the first three errors at most: [" +
				"RecordError(batchIndex=1, message='" + nullKey + "'), RecordError(batchIndex=2, message='" + nullKey + "'), RecordError(batchIndex=3, message='" + nullKey + "')]",
			[]RecordError{{1, nullKey}, {2, nullKey}, {3, nullKey}, {4, nullKey}},
		}},
		{"one is about time", []string{"cleanup.policy", "compact"}, spec{keys: []string{"", "a"}, times: []int64{at, at + 9_000_000}, codec: protocol.CodecLZ4}, RecordErrors{
			kerr.InvalidTimestamp, "One or more records have been rejected due to invalid timestamp",
			[]RecordError{{0, nullKey}, {1, fmt.Sprintf("Timestamp %d of message with offset 1 is out of range. The timestamp should be within [%d, %d]",
				at+9_000_000, at-math.MaxInt64, at+3_600_000)}},
		}},
		{"append time", []string{"message.timestamp.type", "LogAppendTime"}, spec{append: true, keys: []string{"ab", ""}}, RecordErrors{
			kerr.InvalidTimestamp, "One or more records have been rejected due to invalid timestamp",
			[]RecordError{{0, inMessage("DefaultRecord", 0, 2)}, {1, inMessage("DefaultRecord", 1, 0)}},
		}},
		{"append time, stored as it is", []string{"message.timestamp.type", "LogAppendTime"}, spec{append: true, keys: []string{"ab", ""}, codec: protocol.CodecGzip}, RecordErrors{
			kerr.InvalidTimestamp, "One or more records have been rejected due to invalid timestamp",
			[]RecordError{{0, inMessage("PartialDefaultRecord", 0, 2)}, {1, inMessage("PartialDefaultRecord", 1, -1)}},
		}},
		{"append time, to be rebuilt", []string{"message.timestamp.type", "LogAppendTime", "compression.type", "lz4"}, spec{append: true, keys: []string{""}, codec: protocol.CodecGzip}, RecordErrors{
			kerr.InvalidTimestamp, "One or more records have been rejected due to invalid timestamp",
			[]RecordError{{0, inMessage("DefaultRecord", 0, 0)}},
		}},
	} {
		t.Run(tt.name, func(t *testing.T) {
			p := open(t, vfs.NewMem(), topicConfig(t, tt.topic...)).lead()
			_, err := produce(t, p, tt.spec)
			got, ok := errors.AsType[*RecordErrors](err)
			if !ok || !reflect.DeepEqual(*got, tt.want) {
				t.Errorf("got %+v, %v\nwant %+v", got, err, tt.want)
			}
		})
	}
}

// TestStoredBatch: what is written is what was sent but for offset and epoch, unless timestamps or codec have to be others.
func TestStoredBatch(t *testing.T) {
	at := start.UnixMilli()
	codecs := []protocol.Codec{protocol.CodecNone, protocol.CodecGzip, protocol.CodecSnappy, protocol.CodecLZ4, protocol.CodecZstd}
	for _, codec := range codecs {
		s := spec{codec: codec, times: []int64{at, at + 5, at + 3}, pid: 4, seq: 0}
		t.Run("as sent "+codec.String(), func(t *testing.T) {
			p := open(t, vfs.NewMem(), topicConfig(t)).lead()
			mustProduce(t, p, spec{})
			want := s.build(t)
			a := mustProduce(t, p, s)
			want.SetBase(1, 0)
			got := stored(t, p, 1)
			if string(got) != string(want) || a.BaseOffset != 1 || a.LastOffset != 3 || a.LogAppendTime != -1 {
				t.Errorf("stored %x\nwant   %x\nanswer %+v", got, want, a)
			}
		})
		t.Run("maximum timestamp "+codec.String(), func(t *testing.T) {
			p := open(t, vfs.NewMem(), topicConfig(t)).lead()
			for _, wrong := range []int64{at + 99, at, -1} {
				r := s.request(t)
				r.Batch.SetMaxTimestamp(wrong == at, wrong)
				a, err := p.Append(r)
				if err != nil {
					// The batch said that all of its records have the maximum.
					t.Fatal(err)
				}
				h := stored(t, p, a.BaseOffset).Header()
				if want := map[bool]int64{true: at, false: at + 5}[wrong == at]; h.MaxTimestamp != want || h.LogAppendTime() {
					t.Errorf("maximum %d became %d, want %d", wrong, h.MaxTimestamp, want)
				}
				s.seq += 3
			}
		})
		for _, to := range codecs {
			t.Run(codec.String()+" to "+to.String(), func(t *testing.T) {
				name := to.String()
				if to == protocol.CodecNone {
					name = "uncompressed"
				}
				p := open(t, vfs.NewMem(), topicConfig(t, "compression.type", name, "message.timestamp.type", "LogAppendTime")).lead()
				a := mustProduce(t, p, spec{codec: codec, n: 3, pid: 4, seq: 9})
				b := stored(t, p, 0)
				h := b.Header()
				if h.Codec() != to || h.NumRecords != 3 || h.ProducerID != 4 || h.BaseSequence != 9 || !h.LogAppendTime() || h.MaxTimestamp != at || a.LogAppendTime != at {
					t.Errorf("%+v, answer %+v", h, a)
				}
				if err := b.Check(math.MaxInt32); err != nil {
					t.Error(err)
				}
				if err := b.Walk(math.MaxInt32, nil); err != nil {
					t.Error(err)
				}
			})
		}
	}
}

func stored(t *testing.T, p *Partition, offset int64) protocol.Batch {
	t.Helper()
	batches, _, err := read(t, p, ReadRequest{Offset: offset, Isolation: ReadLogEnd, CurrentLeaderEpoch: -1})
	if err != nil || len(batches) == 0 {
		t.Fatal(err)
	}
	return batches[0]
}

// TestTimestampNone: -1 is in any range.
func TestTimestampNone(t *testing.T) {
	p := open(t, vfs.NewMem(), topicConfig(t, "message.timestamp.before.max.ms", "1000")).lead()
	mustProduce(t, p, spec{times: []int64{-1}})
	mustProduce(t, p, spec{times: []int64{start.UnixMilli() - 1000, start.UnixMilli() + 3_600_000}})
}

// TestOffsetDeltas: an uncompressed batch is stored with what deltas it has, another codec puts them in order, and the
// same codec would have to be rebuilt for that, which nobody does.
func TestOffsetDeltas(t *testing.T) {
	build := func(codec protocol.Codec) protocol.Batch {
		b, err := protocol.AppendBatch(nil, protocol.BatchSpec{
			Codec: codec, BaseTimestamp: start.UnixMilli(), MaxTimestamp: -1, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1, KeepDeltas: true,
		}, []protocol.Record{{OffsetDelta: 0, Value: []byte("a")}, {OffsetDelta: 4, Value: []byte("b")}})
		if err != nil {
			t.Fatal(err)
		}
		return change(b, func(b protocol.Batch) { binary.BigEndian.PutUint32(b[23:], 1) })
	}
	for _, tt := range []struct {
		from protocol.Codec
		to   string
		ok   bool
	}{{protocol.CodecNone, "producer", true}, {protocol.CodecGzip, "lz4", true}, {protocol.CodecNone, "lz4", true}, {protocol.CodecGzip, "producer", false}} {
		p := open(t, vfs.NewMem(), topicConfig(t, "compression.type", tt.to)).lead()
		_, err := p.Append(AppendRequest{Batch: build(tt.from), ExpectEpoch: -1, Now: start})
		if (err == nil) != tt.ok {
			t.Errorf("%s to %s: %v", tt.from, tt.to, err)
		}
		if tt.ok && p.Offsets().End != 2 {
			t.Errorf("%s to %s: end %d", tt.from, tt.to, p.Offsets().End)
		}
	}
}

func TestDuplicateIsAnsweredAsTheFirstTime(t *testing.T) {
	n := open(t, vfs.NewMem(), topicConfig(t))
	p := n.lead()
	for i := range int32(6) {
		mustProduce(t, p, spec{pid: 4, seq: i * 2, n: 2, times: []int64{start.UnixMilli() - 50, start.UnixMilli() - 60}})
	}
	if _, err := p.DeleteRecords(5); err != nil {
		t.Fatal(err)
	}
	a := mustProduce(t, p, spec{pid: 4, seq: 2, n: 2})
	if want := (Appended{BaseOffset: 2, LastOffset: 3, LogAppendTime: start.UnixMilli() - 50, LogStart: 5, LeaderEpoch: 0, Duplicate: true}); a != want {
		t.Errorf("%+v, want %+v", a, want)
	}
	if p.Offsets().End != 12 {
		t.Error("appended twice")
	}
	_, err := produce(t, p, spec{pid: 4, seq: 0, n: 2})
	wantCode(t, err, kerr.OutOfOrderSequenceNumber)
}

func TestLeadership(t *testing.T) {
	n := open(t, vfs.NewMem(), topicConfig(t, "min.insync.replicas", "2"))
	p, err := n.Create("t", protocol.UUID{1}, 0, n.topic, start)
	if err != nil {
		t.Fatal(err)
	}
	try := func(acks int16, expect int32) error {
		r := spec{}.request(t)
		r.Acks, r.ExpectEpoch = acks, expect
		_, err := p.Append(r)
		return err
	}
	wantCode(t, try(1, -1), kerr.NotLeaderForPartition)
	// Two of three replicas have to be in sync, and one is: acks=-1 is refused, and nothing is committed.
	if err := p.Lead(4, []int32{1, 2, 3}, []int32{1}); err != nil {
		t.Fatal(err)
	}
	wantCode(t, try(-1, -1), kerr.NotEnoughReplicas)
	wantCode(t, try(1, 3), kerr.NotLeaderForPartition)
	if err := try(1, 4); err != nil {
		t.Fatal(err)
	}
	if o := p.Offsets(); o.HW != 0 || o.End != 1 {
		t.Errorf("%+v", o)
	}
	wantCode(t, p.Lead(3, []int32{1}, []int32{1}), kerr.FencedLeaderEpoch)
	// More than there are replicas are never asked for.
	if err := p.Lead(5, []int32{1}, []int32{1}); err != nil {
		t.Fatal(err)
	}
	if err := try(-1, 5); err != nil {
		t.Fatal(err)
	}
	if o := p.Offsets(); o.HW != 2 {
		t.Errorf("%+v", o)
	}
	p.Resign(4)
	if err := try(-1, -1); err != nil {
		t.Error("resigned from an older epoch", err)
	}
	p.Resign(5)
	wantCode(t, try(1, -1), kerr.NotLeaderForPartition)
	_, _, err = p.Verify(1, 0, 0, false, start)
	wantCode(t, err, kerr.NotLeaderForPartition)
	wantCode(t, p.AwaitHW(context.Background(), 1), kerr.NotLeaderForPartition)
}

func TestMarkers(t *testing.T) {
	n := open(t, vfs.NewMem(), topicConfig(t, "max.message.bytes", "75"))
	p := n.lead()
	mark := func(r MarkerRequest) error {
		r.ExpectEpoch, r.Now = -1, start
		_, err := p.WriteMarker(r)
		return err
	}
	if err := mark(MarkerRequest{ProducerID: 7, Epoch: 3, CoordinatorEpoch: 5, Commit: true}); err != nil {
		t.Fatal(err)
	}
	b := stored(t, p, 0)
	want := controlmarkers.Encode(controlmarkers.Marker{Commit: true, CoordinatorEpoch: 5}, 7, 3, start.UnixMilli())
	want.SetBase(0, 0)
	if string(b) != string(want) {
		t.Errorf("%x\n%x", b, want)
	}
	wantCode(t, mark(MarkerRequest{ProducerID: 7, Epoch: 2, CoordinatorEpoch: 9}), kerr.InvalidProducerEpoch)
	wantCode(t, mark(MarkerRequest{ProducerID: 7, Epoch: 3, CoordinatorEpoch: 4}), kerr.TransactionCoordinatorFenced)
	wantCode(t, mark(MarkerRequest{ProducerID: -1, Epoch: 3}), kerr.UnknownServerError)
	wantCode(t, mark(MarkerRequest{ProducerID: 7, Epoch: -1}), kerr.UnknownServerError)
	if err := mark(MarkerRequest{ProducerID: 8, Epoch: 0, CoordinatorEpoch: -1, TransactionVersion: 2}); err != nil {
		t.Error(err)
	}
}

// TestCoordinatorLog: a coordinator's batches are not looked into, and end with the epoch.
func TestCoordinatorLog(t *testing.T) {
	n := open(t, vfs.NewMem(), topicConfig(t, "cleanup.policy", "compact"))
	p := n.lead()
	l := p.CoordinatorLog(0)
	for i := range 3 {
		last, err := l.Append(spec{pid: 3, txn: true, keys: []string{"", ""}}.build(t), 0, 0, start)
		if err != nil || last != int64(2*i+1) {
			t.Fatal(last, err)
		}
	}
	last, err := l.Append(controlmarkers.Encode(controlmarkers.Marker{Commit: true}, 3, 0, start.UnixMilli()), 0, 0, start)
	if err != nil || last != 6 {
		t.Fatal(last, err)
	}
	if hw, _ := l.Committed(); hw != 7 {
		t.Error(hw)
	}
	records := 0
	for b, err := range l.Batches(0) {
		if err != nil {
			t.Fatal(err)
		}
		records += int(b.Header().NumRecords)
	}
	if records != 7 {
		t.Error(records)
	}
	if err := p.Lead(1, []int32{1}, []int32{1}); err != nil {
		t.Fatal(err)
	}
	_, err = l.Append(spec{}.build(t), 0, 0, start)
	wantCode(t, err, kerr.NotLeaderForPartition)
}

// TestVerificationOff: transactional batches are taken unasked.
func TestVerificationOff(t *testing.T) {
	n := open(t, vfs.NewMem(), topicConfig(t))
	p := n.lead()
	_, err := p.Append(spec{pid: 4, txn: true, seq: 3}.request(t))
	wantCode(t, err, kerr.InvalidTxnState)
	n.SetBrokerConfig(brokerConfig(t, "transaction.partition.verification.enable=false"))
	if _, err := p.Append(spec{pid: 4, txn: true, seq: 3}.request(t)); err != nil {
		t.Error(err)
	}
}

func TestWatch(t *testing.T) {
	n := open(t, vfs.NewMem(), topicConfig(t))
	p := n.lead()
	w := NewWaiter()
	poked := func() bool {
		select {
		case <-w:
			return true
		default:
			return false
		}
	}
	p.Watch(w)
	if poked() {
		t.Error("poked by nothing")
	}
	mustProduce(t, p, spec{})
	mustProduce(t, p, spec{})
	if !poked() || poked() {
		t.Error("two appends are one poke that waits")
	}
	if _, err := p.DeleteRecords(1); err != nil || !poked() {
		t.Error("no poke by a new start", err)
	}
	_, changed := p.Committed()
	p.Resign(0)
	select {
	case <-changed:
	default:
		t.Error("the end of the leadership isn't told")
	}
	if !poked() {
		t.Error("no poke by the end of the leadership")
	}
	p.Unwatch(w)
	if err := n.Delete("t", 0); err != nil || poked() {
		t.Error("poked after Unwatch", err)
	}
}

func TestAwaitHW(t *testing.T) {
	n := open(t, vfs.NewMem(), topicConfig(t, "min.insync.replicas", "1"))
	p := n.lead()
	if err := p.Lead(1, []int32{1, 2}, []int32{1, 2}); err != nil {
		t.Fatal(err)
	}
	a, err := produce(t, p, spec{})
	if err != nil {
		t.Fatal(err)
	}
	ctx, cancel := context.WithTimeout(context.Background(), time.Millisecond)
	defer cancel()
	if err := p.AwaitHW(ctx, a.LastOffset+1); !errors.Is(err, context.DeadlineExceeded) {
		t.Fatal(err)
	}
	if len(p.view.awaiting) != 0 {
		t.Error("who gave up is still waited for")
	}
	done := make(chan error, 2)
	go func() { done <- p.AwaitHW(context.Background(), a.LastOffset+1) }()
	go func() { done <- p.AwaitHW(context.Background(), a.LastOffset+2) }()
	for waiting := 0; waiting < 2; {
		p.view.Lock()
		waiting = len(p.view.awaiting)
		p.view.Unlock()
	}
	// The other replica leaves: what it held up is committed.
	if err := p.Lead(1, []int32{1, 2}, []int32{1}); err != nil {
		t.Fatal(err)
	}
	if err := <-done; err != nil {
		t.Fatal(err)
	}
	if err := n.Delete("t", 0); err != nil {
		t.Fatal(err)
	}
	wantCode(t, <-done, kerr.UnknownTopicOrPartition)
}

// TestAppendDoesNotAllocate is the budget of an uncompressed batch.
func TestAppendDoesNotAllocate(t *testing.T) {
	n, err := tryOpen(t, vfs.OS, t.TempDir(), topicConfig(t))
	if err != nil {
		t.Fatal(err)
	}
	p := n.lead()
	sent := spec{n: 10}.build(t)
	batch := make(protocol.Batch, len(sent))
	allocs := testing.AllocsPerRun(200, func() {
		if _, err := p.Append(sequenced(batch, sent)); err != nil {
			t.Fatal(err)
		}
	})
	if allocs > 0.5 && !raceEnabled {
		t.Errorf("%v allocations", allocs)
	}
}
