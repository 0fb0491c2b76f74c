package groupcoordinator

import (
	"bytes"
	"encoding/hex"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/controlmarkers"
	"oncelog/coordinator"
	"oncelog/protocol"
)

func unhex(s string) []byte {
	b, err := hex.DecodeString(strings.ReplaceAll(s, " ", ""))
	if err != nil {
		panic(err)
	}
	return b
}

// TestGoldenBytes holds the bytes of what is written fixed, forever: they are Kafka 4.4's.
func TestGoldenBytes(t *testing.T) {
	id := [16]byte(unhex("1a6ed76a10e4400a8b5824a52ead5526"))
	_, plain := appendCommit(nil, "g", "t", 5, &commit{offset: 5, leaderEpoch: -1, commitTime: 0x1a22deaa35d, expireTime: noTimestamp, topicID: id})
	_, kept := appendCommit(nil, "g", "t", 5, &commit{offset: 7, leaderEpoch: 2, metadata: "m", commitTime: 9, expireTime: 10, topicID: id})
	instance, protocolName := "i", "range"
	stable := (&storedGroup{
		protocolType: "consumer", generation: 3, protocol: &protocolName, leader: &instance, since: 17,
		members: []storedMember{{
			id: "i", instanceID: &instance, clientID: "c", clientHost: "/h", rebalanceTimeoutMillis: 2, sessionTimeoutMillis: 1,
			subscription: []byte{1, 2}, assignment: []byte{},
		}},
	}).record("g")
	for _, c := range []struct {
		name       string
		got        coordinator.KeyValue
		key, value string
	}{
		{"commit", plain, "0001 000167 000174 00000005",
			"0004 0000000000000005 ffffffff 01 000001a22deaa35d 01 00 10 1a6ed76a10e4400a8b5824a52ead5526"},
		{"commit with its own retention time", kept, "0001 000167 000174 00000005",
			"0001 0000000000000007 00016d 0000000000000009 000000000000000a"},
		{"offset tombstone", offsetTombstone("g", "t", 5), "0001 000167 000174 00000005", ""},
		{"group tombstone", groupTombstone("g"), "0002 000167", ""},
		{"new group", (&storedGroup{since: 17}).record("g"), "0002 000167", "0003 0000 00000000 ffff ffff 0000000000000011 00000000"},
		{"group", stable, "0002 000167",
			"0003 0008636f6e73756d6572 00000003 000572616e6765 000169 0000000000000011 00000001" +
				"000169 000169 000163 00022f68 00000002 00000001 000000020102 00000000"},
	} {
		if !bytes.Equal(c.got.Key, unhex(c.key)) || !bytes.Equal(c.got.Value, unhex(c.value)) {
			t.Errorf("%s: %x = %x", c.name, c.got.Key, c.got.Value)
		}
		if (c.value == "") != (c.got.Value == nil) {
			t.Errorf("%s: value is null: %v", c.name, c.got.Value == nil)
		}
	}
}

// TestReadsAllVersions reads each version of both values that Kafka ever wrote.
func TestReadsAllVersions(t *testing.T) {
	for version := int16(0); version <= 4; version++ {
		v := kmsg.OffsetCommitValue{Version: version, Offset: 7, LeaderEpoch: 2, Metadata: "m", CommitTimestamp: 8, ExpireTimestamp: 9, TopicID: [16]byte{5}}
		c, err := decodeCommit(v.AppendTo(nil), 3)
		want := commit{offset: 7, recordOffset: 3, commitTime: 8, expireTime: noTimestamp, leaderEpoch: -1, metadata: "m"}
		switch {
		case version == 1:
			want.expireTime = 9
		case version == 3:
			want.leaderEpoch = 2
		case version == 4:
			want.leaderEpoch, want.topicID = 2, v.TopicID
		}
		if err != nil || c != want {
			t.Errorf("commit v%d: %+v, %v", version, c, err)
		}
	}
	name := "x"
	for version := int16(0); version <= 4; version++ {
		v := kmsg.GroupMetadataValue{Version: version, ProtocolType: "consumer", Generation: 4, Protocol: &name, Leader: &name, CurrentStateTimestamp: 5}
		v.Members = []kmsg.GroupMetadataValueMember{{MemberID: "x", ClientID: "c", RebalanceTimeoutMillis: 6, SessionTimeoutMillis: 7, InstanceID: &name}}
		s, err := decodeGroup(v.AppendTo(nil))
		if err != nil {
			t.Fatalf("group v%d: %v", version, err)
		}
		since, rebalance, instance := int64(noTimestamp), int32(7), ""
		if version >= 1 {
			rebalance = 6
		}
		if version >= 2 {
			since = 5
		}
		if version >= 3 {
			instance = "x"
		}
		m := s.members[0]
		if s.since != since || m.rebalanceTimeoutMillis != rebalance || m.sessionTimeoutMillis != 7 || value(m.instanceID) != instance {
			t.Errorf("group v%d: %+v", version, s)
		}
	}
	for _, bad := range []string{"", "00", "0005", "0004 00", "ffff 0000000000000005 0000 0000000000000001"} {
		if _, err := decodeCommit(unhex(bad), 0); err == nil {
			t.Errorf("commit %q was understood", bad)
		}
	}
}

// goldenDir holds partitions that Kafka 4.4 wrote.
const goldenDir = "../tests/golden/testdata/coordinators/data"

// TestKafkaPartitions loads partitions that Kafka 4.4 wrote, and compares what is in them. What it can write itself
// comes out as the same bytes.
func TestKafkaPartitions(t *testing.T) {
	datadriven.RunTest(t, "testdata/kafka", func(t *testing.T, d *datadriven.TestData) string {
		h := newHarness(t)
		h.m = h.machine()
		load(t, h, filepath.Join(goldenDir, "__consumer_offsets-"+d.CmdArgs[0].Key, "00000000000000000000.log"))
		h.m.Recover(h.now)
		h.check()
		h.printf("%s", h.hard(h.m))
		return h.flush()
	})
}

func load(t *testing.T, h *harness, path string) {
	src, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	for len(src) > 0 {
		var b protocol.Batch
		if b, src, err = protocol.SplitBatch(src); err != nil {
			t.Fatal(err)
		}
		head := b.Header()
		records := b.Records(1 << 20)
		for records.Next() {
			rec := records.Record()
			r := coordinator.Record{
				Key: bytes.Clone(rec.Key), Value: bytes.Clone(rec.Value),
				Transactional: head.Transactional() && !head.Control(), ProducerID: head.ProducerID, ProducerEpoch: head.ProducerEpoch,
			}
			if head.Control() {
				if r.Marker, r.IsMarker, err = controlmarkers.DecodeRecord(rec.Key, rec.Value); err != nil {
					t.Fatal(err)
				}
			}
			offset := head.BaseOffset + int64(rec.OffsetDelta)
			if err := h.m.Replay(offset, r); err != nil {
				t.Fatal(err)
			}
			h.log = append(h.log, logged{offset, r})
			same(t, r)
		}
		if records.Err() != nil {
			t.Fatal(records.Err())
		}
		records.Close()
	}
}

// same fails if a record of a kind that is written here would come out as other bytes.
func same(t *testing.T, r coordinator.Record) {
	t.Helper()
	if r.IsMarker {
		return
	}
	var again coordinator.KeyValue
	switch kind, _ := keyType(r.Key); {
	case kind == keyOffsetCommit && r.Value != nil:
		k, _ := decodeOffsetKey(r.Key)
		c, err := decodeCommit(r.Value, 0)
		if err != nil {
			t.Fatal(err)
		}
		_, again = appendCommit(nil, k.Group, k.Topic, k.Partition, &c)
	case kind == keyOffsetCommit:
		k, _ := decodeOffsetKey(r.Key)
		again = offsetTombstone(k.Group, k.Topic, k.Partition)
	case kind == keyGroupMetadata && r.Value != nil:
		id, _ := groupOfKey(r.Key)
		s, err := decodeGroup(r.Value)
		if err != nil {
			t.Fatal(err)
		}
		again = s.record(id)
	default:
		return
	}
	if !bytes.Equal(again.Key, r.Key) || !bytes.Equal(again.Value, r.Value) {
		t.Errorf("%x = %x\nbecomes\n%x = %x", r.Key, r.Value, again.Key, again.Value)
	}
}

// FuzzReplay feeds the machine records of any bytes: it refuses or folds them, and what it folds it can describe.
func FuzzReplay(f *testing.F) {
	paths, _ := filepath.Glob(goldenDir + "/__consumer_offsets-*/*.log")
	for _, p := range paths {
		src, _ := os.ReadFile(p)
		for len(src) > 0 {
			var b protocol.Batch
			b, src, _ = protocol.SplitBatch(src)
			records := b.Records(1 << 20)
			for records.Next() {
				f.Add(bytes.Clone(records.Record().Key), bytes.Clone(records.Record().Value), false)
			}
			records.Close()
		}
	}
	f.Add(unhex("000100016700017400000005"), []byte(nil), true)
	f.Fuzz(func(t *testing.T, key, value []byte, transactional bool) {
		h := newHarness(t)
		h.m = h.machine()
		r := coordinator.Record{Key: key, Value: value, Transactional: transactional, ProducerID: 1}
		if err := h.m.Replay(1, r); err != nil {
			return
		}
		h.log = append(h.log, logged{1, r})
		h.m.Recover(h.now)
		h.check()
		h.advance(h.m.Deadline().Sub(h.now))
		_ = h.hard(h.m) + h.soft()
	})
}

// FuzzSubscription decodes subscriptions of any bytes, which come from clients.
func FuzzSubscription(f *testing.F) {
	f.Add(subscription("t+u"))
	f.Add(unhex("00030000000100017400000000"))
	f.Fuzz(func(t *testing.T, blob []byte) {
		topics, ok := subscribedTopics(blob)
		total := 0
		for _, topic := range topics {
			total += len(topic)
		}
		if ok && total > len(blob) || len(topics) > len(blob) {
			t.Fatalf("%d topics of %d bytes from %d", len(topics), total, len(blob))
		}
	})
}
