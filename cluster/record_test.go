package cluster

import (
	"bytes"
	"encoding/hex"
	"errors"
	"flag"
	"os"
	"path/filepath"
	"reflect"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

var rewriteGolden = flag.Bool("rewrite-golden", false, "write golden bytes for the present version anew")

// sampleRecords has one record of each kind, with every field set.
func sampleRecords() []record {
	rack, value, rate := "r1", "1000", 12.5
	id := [16]byte{0: 0xaa, 15: 0x01}
	return []record{
		clusterRecord{"4L6g3nShT-eMCtK--X86sw"},
		featureRecord{"metadata.version", 33},
		brokerRecord{Broker{
			ID: 1, Epoch: 7, Incarnation: [16]byte{1, 2, 3}, Rack: &rack, Fenced: true, LogDirs: [][16]byte{{9}},
			Endpoints: []Endpoint{{"PLAINTEXT", "h", 9092, "PLAINTEXT"}, {"X", "", 0, "SSL"}},
		}},
		topicRecord{"orders", id, []Partition{
			{Leader: 1, LeaderEpoch: 2, PartitionEpoch: 3, Replicas: []int32{1, 2}, ISR: []int32{1}, Directories: [][16]byte{{9}, {}}},
			{Leader: -1},
		}},
		partitionsRecord{id, 2, []Partition{{Leader: 1, Replicas: []int32{1}, ISR: []int32{1}}}},
		configRecord{kmsg.ConfigResourceTypeTopic, "orders", "retention.ms", &value},
		configRecord{kmsg.ConfigResourceTypeBroker, "", "retention.ms", nil},
		removeTopicRecord{id},
		producerIDsRecord{1, 7, 1000},
		quotaRecord{[]QuotaPart{{QuotaClientID, &value}, {QuotaUser, nil}}, "request_percentage", &rate},
		quotaRecord{[]QuotaPart{{QuotaIP, nil}}, "connection_creation_rate", nil},
		credentialRecord{"anna", ScramSHA512, &ScramCredential{[]byte("salt"), []byte{1, 2}, []byte{3}, 4096}},
		credentialRecord{"anna", ScramSHA256, nil},
		removeBrokerRecord{2},
		directoryRecord{id, 1, 2, [16]byte{9}},
		logDirsRecord{1, [][16]byte{{9}, {8}}},
	}
}

// TestGoldenEntry: bytes that some version wrote are read for ever, as what they meant.
func TestGoldenEntry(t *testing.T) {
	name := filepath.Join("testdata", "entry-v1.hex")
	want := encodeEntry(5, sampleRecords())
	if *rewriteGolden {
		if err := os.WriteFile(name, []byte(hex.Dump(want)), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	dump, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if got := hex.Dump(want); got != string(dump) {
		t.Errorf("encoding has changed:\n%s", got)
	}
	data := undump(t, string(dump))
	term, records, err := decodeEntry(data)
	if err != nil {
		t.Fatal(err)
	}
	if term != 5 || !reflect.DeepEqual(records, sampleRecords()) {
		t.Errorf("golden bytes mean term %d, %#v", term, records)
	}
}

// undump reverses hex.Dump.
func undump(t *testing.T, dump string) []byte {
	t.Helper()
	var data []byte
	for line := range strings.Lines(dump) {
		if len(line) < 60 {
			continue
		}
		row, err := hex.DecodeString(strings.Join(strings.Fields(line[8:60]), ""))
		if err != nil {
			t.Fatal(err)
		}
		data = append(data, row...)
	}
	return data
}

// TestEntryFromTheFutureIsRefused: what a newer broker wrote must not be half understood.
func TestEntryFromTheFutureIsRefused(t *testing.T) {
	entry := encodeEntry(1, []record{clusterRecord{"x"}})
	for what, at := range map[string]int{"entry version": 0, "kind": 3, "record version": 4} {
		data := bytes.Clone(entry)
		data[at] = 99
		if _, _, err := decodeEntry(data); !errors.Is(err, errCorrupt) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// TestTruncatedEntryIsRefused cuts an entry everywhere.
func TestTruncatedEntryIsRefused(t *testing.T) {
	entry := encodeEntry(1, sampleRecords())
	for n := range entry {
		if _, _, err := decodeEntry(entry[:n]); !errors.Is(err, errCorrupt) {
			t.Fatalf("%d of %d bytes: %v", n, len(entry), err)
		}
	}
	if _, _, err := decodeEntry(append(entry, 0)); !errors.Is(err, errCorrupt) {
		t.Errorf("a byte too many: %v", err)
	}
}

// FuzzEntry: nothing makes decoding panic or take much more memory than it got, and what decodes encodes to the same meaning.
func FuzzEntry(f *testing.F) {
	f.Add(encodeEntry(5, sampleRecords()))
	for _, r := range sampleRecords() {
		f.Add(encodeEntry(1, []record{r}))
	}
	f.Add([]byte{entryVersion, 1, 0xff, 0xff, 0xff, 0xff, 0x0f})
	f.Fuzz(func(t *testing.T, data []byte) {
		term, records, err := decodeEntry(data)
		if err != nil {
			return
		}
		term2, records2, err := decodeEntry(encodeEntry(term, records))
		if err != nil || term2 != term || len(records2) != len(records) {
			t.Fatalf("term %d, %d records; again %d, %d: %v", term, len(records), term2, len(records2), err)
		}
		if !bytes.Equal(encodeEntry(term, records), encodeEntry(term2, records2)) {
			t.Fatal("second encoding differs")
		}
		im, err := emptyImage().replay(1, records) // must not panic
		if err == nil {
			if again, err := decodeSnapshot(encodeSnapshot(im)); err != nil || describe(again) != describe(im) {
				t.Fatalf("snapshot of\n%sis (%v)\n%s", describe(im), err, describe(again))
			}
		}
	})
}
