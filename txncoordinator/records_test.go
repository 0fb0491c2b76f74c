package txncoordinator

import (
	"bytes"
	"encoding/hex"
	"errors"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/coordinator"
	"oncelog/protocol"
)

// Records of one id as Kafka 4.4 wrote them: the first InitProducerId, an add at the last epoch, the commit that moves to
// another producer id, its completion.
var (
	kafkaKey    = "0000 000c 6f76302d6535656465642d31"
	kafkaValues = []string{
		"0001 000000000000000f 0000 0000ea60 00 00 000001a22de44bc7 ffffffffffffffff 01 00 08 000000000000000f",
		"0001 000000000000000f 7ffe 0000ea60 01 02 0d 6f76742d6535656465642d37 02 00000000 00 000001a22de4aad1 000001a22de4aad1 02 00 08 000000000000000f 02 02 0002",
		"0001 000000000000000f 7fff 0000ea60 02 02 0d 6f76742d6535656465642d37 02 00000000 00 000001a22de4aad5 000001a22de4aad1 03 00 08 000000000000000f 01 08 0000000000000027 02 02 0002",
		"0001 0000000000000027 0000 0000ea60 04 01 000001a22de4aad6 000001a22de4aad1 02 00 08 000000000000000f 02 02 0002",
	}
)

func unhex(t testing.TB, s string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// TestGoldenRecords: Kafka's bytes are read and written the same.
func TestGoldenRecords(t *testing.T) {
	id, ok, err := decodeKey(unhex(t, kafkaKey))
	if id != "ov0-e5eded-1" || !ok || err != nil {
		t.Fatal(id, ok, err)
	}
	if got := encodeKey(id); !bytes.Equal(got, unhex(t, kafkaKey)) {
		t.Errorf("key %x", got)
	}
	var states []string
	for _, v := range kafkaValues {
		m, err := decodeValue(unhex(t, v))
		if err != nil {
			t.Fatal(err)
		}
		states = append(states, fmt.Sprintf("%v %d/%d previous=%d next=%d client=%d %v", m.state, m.producerID, m.epoch,
			m.previousProducerID, m.nextProducerID, m.clientVersion, m.partitions))
		if got := encodeValue(&m, 2); !bytes.Equal(got, unhex(t, v)) {
			t.Errorf("value %x\nwant  %x", got, unhex(t, v))
		}
	}
	want := []string{
		"Empty 15/0 previous=15 next=-1 client=0 []",
		"Ongoing 15/32766 previous=15 next=-1 client=2 [{ovt-e5eded-7 [0]}]",
		"PrepareCommit 15/32767 previous=15 next=39 client=2 [{ovt-e5eded-7 [0]}]",
		"CompleteCommit 39/0 previous=15 next=-1 client=2 []",
	}
	if !slices.Equal(states, want) {
		t.Errorf("%q", states)
	}
}

// TestLastEpochTag: our own field is there only where it says something, comes back, and does not disturb others.
func TestLastEpochTag(t *testing.T) {
	m, err := decodeValue(unhex(t, kafkaValues[3]))
	if err != nil || m.lastEpoch != noEpoch {
		t.Fatal(m.lastEpoch, err)
	}
	m.lastEpoch = 32766
	b := encodeValue(&m, 1)
	want := unhex(t, strings.Replace(kafkaValues[3], "1 02 00 08", "1 03 00 08", 1)+" 64 02 7ffe")
	if !bytes.Equal(b, want) {
		t.Errorf("value %x\nwant  %x", b, want)
	}
	again, err := decodeValue(b)
	if err != nil || fmt.Sprint(again) != fmt.Sprint(m) {
		t.Errorf("%v, %v", again, err)
	}
	var plain kmsg.TxnMetadataValue
	if err := plain.ReadFrom(b); err != nil || plain.ProducerID != 39 || plain.UnknownTags.Len() != 1 {
		t.Errorf("%+v, %v", plain, err)
	}
	if again, err := decodeValue(encodeValue(&m, 0)); err != nil || again.lastEpoch != noEpoch || again.previousProducerID != noProducerID {
		t.Errorf("version 0: %+v, %v", again, err)
	}
}

// TestUnknownRecords: other keys are skipped, other values are refused.
func TestUnknownRecords(t *testing.T) {
	m := New(Options{Settings: func() Settings { return Settings{} }})
	if err := m.Replay(0, coordinator.Record{Key: unhex(t, "0001 0003 616263"), Value: []byte("?")}); err != nil {
		t.Error(err)
	}
	for _, r := range []coordinator.Record{
		{Key: []byte{0}},
		{Key: unhex(t, kafkaKey), Value: []byte{}},
		{Key: unhex(t, kafkaKey), Value: unhex(t, strings.Replace(kafkaValues[0], "0001", "0002", 1))},
		{Key: unhex(t, kafkaKey), Value: unhex(t, strings.Replace(kafkaValues[0], "0000ea60 00", "0000ea60 06", 1))},
		{Key: unhex(t, kafkaKey), Value: unhex(t, kafkaValues[0])[:20]},
	} {
		if err := m.Replay(0, r); !errors.Is(err, errRecord) {
			t.Errorf("%x: %v", r.Value, err)
		}
	}
	if len(m.txns) != 0 {
		t.Error(m.txns)
	}
}

// TestKafkaLog loads partitions of __transaction_state that Kafka 4.4 wrote, and writes their records again.
func TestKafkaLog(t *testing.T) {
	files, err := filepath.Glob("../tests/golden/testdata/coordinators/data/__transaction_state-*/*.log")
	if err != nil || len(files) == 0 {
		t.Fatal(files, err)
	}
	m := New(Options{Settings: func() Settings { return Settings{} }})
	for _, name := range files {
		rest, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for len(rest) > 0 {
			var b protocol.Batch
			if b, rest, err = protocol.SplitBatch(rest); err != nil {
				t.Fatal(name, err)
			}
			replayKafkaBatch(t, m, b)
		}
	}
	got := map[string]string{}
	for id, txn := range m.txns {
		got[id] = fmt.Sprintf("%v %d/%d client=%d timeout=%d %s", txn.state, txn.producerID, txn.epoch, txn.clientVersion,
			txn.timeoutMillis, partitionsText(txn.partitions))
	}
	want := map[string]string{
		"tx-ongoing":        "Ongoing 1003/0 client=2 timeout=900000 [__consumer_offsets-10 input-1]",
		"tx-empty":          "Empty 1000/0 client=0 timeout=900000 []",
		"tx-fenced":         "Empty 1004/2 client=2 timeout=900000 []",
		"tx-first-protocol": "CompleteCommit 1005/0 client=0 timeout=900000 []",
		"tx-abort":          "CompleteAbort 1002/1 client=2 timeout=900000 []",
		"tx-commit":         "CompleteCommit 1001/1 client=2 timeout=900000 []",
	}
	if !maps.Equal(got, want) {
		t.Errorf("got  %v\nwant %v", got, want)
	}
}

func replayKafkaBatch(t *testing.T, m *Machine, b protocol.Batch) {
	if err := b.CheckCRC(); err != nil {
		t.Fatal(err)
	}
	records := b.Records(1 << 20)
	defer records.Close()
	for records.Next() {
		r := records.Record()
		if err := m.Replay(b.Header().BaseOffset, coordinator.Record{Key: r.Key, Value: r.Value}); err != nil {
			t.Fatal(err)
		}
		if r.Value == nil {
			continue
		}
		v, err := decodeValue(r.Value)
		if err != nil {
			t.Fatal(err)
		}
		if got := encodeValue(&v, 2); len(v.partitions) < 2 && !bytes.Equal(got, r.Value) {
			t.Errorf("value %x\nwant  %x", got, r.Value)
		}
	}
	if err := records.Err(); err != nil {
		t.Fatal(err)
	}
}

// FuzzReplay: any record is taken or refused; what is taken is written and read the same.
func FuzzReplay(f *testing.F) {
	for _, v := range kafkaValues {
		f.Add(unhex(f, kafkaKey), unhex(f, v))
	}
	f.Add(unhex(f, kafkaKey), []byte(nil))
	f.Fuzz(func(t *testing.T, key, value []byte) {
		m := New(Options{Settings: func() Settings { return Settings{} }})
		if err := m.Replay(0, coordinator.Record{Key: key, Value: value}); err != nil {
			return
		}
		for id, txn := range m.txns {
			again, err := decodeValue(encodeValue(&txn.metadata, 1))
			if err != nil {
				t.Fatal(err)
			}
			if txn.state == Empty {
				txn.partitions = nil // they are not written
			}
			if got, want := fmt.Sprintf("%+v", again), fmt.Sprintf("%+v", txn.metadata); got != want {
				t.Errorf("%s: %s, was %s", id, got, want)
			}
		}
	})
}
