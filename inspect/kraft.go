package inspect

import (
	"errors"
	"fmt"
	"io/fs"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"oncelog/internal/vfs"
	"oncelog/log"
	"oncelog/protocol"
)

// kafkaMetadata is what Kafka's metadata log in a directory says, as far as it can be taken over.
type kafkaMetadata struct {
	topics         map[protocol.UUID]*kafkaTopic
	configs        map[string]map[string]string // of topics, by name
	nextProducerID int64
	left           map[string]int // what is not taken over: how many, by what it is
}

type kafkaTopic struct {
	name   string
	epochs map[int32]int32 // leader epoch by partition
}

// Types of resources that have configs, as numbers of Kafka's.
const topicResource = 2

// readKafkaMetadata reads the newest snapshot of the metadata log in a folder and what follows it; nil if there is none. What Kafka had written
// and not yet committed when it was stopped counts: with one controller there is no such thing.
func readKafkaMetadata(fsys vfs.FS, dir string) (*kafkaMetadata, error) {
	entries, err := fsys.ReadDir(dir)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	snapshot, end, logs := "", int64(0), []string(nil)
	for _, e := range entries {
		name := e.Name()
		switch {
		case strings.HasSuffix(name, ".checkpoint") && name != "bootstrap.checkpoint":
			if offset, _, err := parseCheckpointName(name); err == nil && (snapshot == "" || offset >= end) {
				snapshot, end = name, offset
			}
		case strings.HasSuffix(name, log.ExtLog):
			logs = append(logs, name)
		}
	}
	k := &kafkaMetadata{topics: map[protocol.UUID]*kafkaTopic{}, configs: map[string]map[string]string{}, left: map[string]int{}}
	if snapshot != "" {
		if err := k.readFile(fsys, filepath.Join(dir, snapshot), 0); err != nil {
			return nil, err
		}
	}
	slices.Sort(logs)
	for _, name := range logs {
		if err := k.readFile(fsys, filepath.Join(dir, name), end); err != nil {
			return nil, err
		}
	}
	return k, nil
}

// readFile replays the records of a file from an offset on.
func (k *kafkaMetadata) readFile(fsys vfs.FS, name string, from int64) error {
	f, err := fsys.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	s, tx := newScanner(f, st.Size()), kafkaTxn{metadata: k}
	for {
		b, pos, err := s.next()
		if isEnd(err) || errors.Is(err, errTail) {
			return nil
		}
		if err == nil {
			err = b.CheckCRC()
		}
		if err == nil && !b.Header().Control() {
			err = tx.batch(b, from)
		}
		if err != nil {
			return fmt.Errorf("%s: batch at %d: %w", name, pos, err)
		}
	}
}

// kafkaTxn holds back what lies between BeginTransaction and EndTransaction: it counts together or not at all.
type kafkaTxn struct {
	metadata *kafkaMetadata
	open     bool
	pending  []func()
}

func (t *kafkaTxn) batch(b protocol.Batch, from int64) error {
	base := b.Header().BaseOffset
	rr := b.Records(math.MaxInt32)
	defer rr.Close()
	for rr.Next() {
		if base+int64(rr.Record().OffsetDelta) < from {
			continue
		}
		m, _, o, err := decodeMetadataRecord(rr.Record().Value)
		switch {
		case errors.Is(err, errUnknownType):
			t.metadata.left["records of a newer Kafka"]++
		case err != nil:
			return err
		default:
			t.record(m.name, o)
		}
	}
	return rr.Err()
}

func (t *kafkaTxn) record(name string, o object) {
	switch name {
	case "BeginTransactionRecord":
		t.open, t.pending = true, nil
	case "AbortTransactionRecord":
		t.open, t.pending = false, nil
	case "EndTransactionRecord":
		for _, replay := range t.pending {
			replay()
		}
		t.open, t.pending = false, nil
	default:
		if t.open {
			t.pending = append(t.pending, func() { t.metadata.replay(name, o) })
			return
		}
		t.metadata.replay(name, o)
	}
}

// notTaken says what records are of that aren't taken over.
var notTaken = map[string]string{
	"AccessControlEntryRecord": "ACLs", "UserScramCredentialRecord": "SCRAM credentials", "ClientQuotaRecord": "client quotas", "DelegationTokenRecord": "delegation tokens",
}

func (k *kafkaMetadata) replay(name string, o object) {
	id, _ := o.get("topicId").(protocol.UUID)
	switch name {
	case "TopicRecord":
		k.topics[id] = &kafkaTopic{name: o.text("name"), epochs: map[int32]int32{}}
	case "RemoveTopicRecord":
		if t := k.topics[id]; t != nil {
			delete(k.configs, t.name)
			delete(k.topics, id)
		}
	case "PartitionRecord":
		if t := k.topics[id]; t != nil {
			t.epochs[int32(o.int("partitionId"))] = int32(o.int("leaderEpoch"))
		}
	case "PartitionChangeRecord":
		// A change that names a leader begins an epoch, and so does one of the ISR by an election that comes with it.
		if t := k.topics[id]; t != nil && o.get("leader") != nil {
			t.epochs[int32(o.int("partitionId"))]++
		}
	case "ConfigRecord":
		k.replayConfig(o)
	case "ProducerIdsRecord":
		k.nextProducerID = max(k.nextProducerID, o.int("nextProducerId"))
	default:
		if what := notTaken[name]; what != "" {
			k.left[what]++
		}
	}
}

func (k *kafkaMetadata) replayConfig(o object) {
	if o.int("resourceType") != topicResource {
		if o.get("value") != nil {
			k.left["configs of brokers and clients"]++
		}
		return
	}
	topic, key := o.text("resourceName"), o.text("name")
	value, set := o.get("value").(string)
	if !set {
		delete(k.configs[topic], key)
		return
	}
	if k.configs[topic] == nil {
		k.configs[topic] = map[string]string{}
	}
	k.configs[topic][key] = value
}
