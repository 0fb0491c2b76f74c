package partition

import (
	"bytes"
	"context"
	"errors"
	"log/slog"
	"math"
	"os"
	"path/filepath"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"go.uber.org/goleak"

	"oncelog/config"
	"oncelog/internal/vfs"
	"oncelog/protocol"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

// start is when tests begin.
var start = time.UnixMilli(1_800_000_000_000)

// node is a set with what a test wants to know about it.
type node struct {
	*Set
	t     testing.TB
	fsys  vfs.FS
	topic *config.Topic
	logs  *logBuffer
	now   time.Time
}

// logBuffer keeps the lines of a log.
type logBuffer struct {
	mu sync.Mutex
	bytes.Buffer
}

func (b *logBuffer) Write(p []byte) (int, error) {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.Write(p)
}

func (b *logBuffer) String() string {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.Buffer.String()
}

func brokerConfig(t testing.TB, set ...string) *config.Broker {
	t.Helper()
	b, _, err := config.Load(config.LoadOptions{Set: set})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

func topicConfig(t testing.TB, overrides ...string) *config.Topic {
	t.Helper()
	m := map[string]string{}
	for i := 0; i < len(overrides); i += 2 {
		m[overrides[i]] = overrides[i+1]
	}
	return brokerConfig(t).Topic(m)
}

// open opens /data of a file system.
func open(t testing.TB, fsys vfs.FS, topic *config.Topic) *node {
	t.Helper()
	n, err := tryOpen(t, fsys, "/data", topic)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func tryOpen(t testing.TB, fsys vfs.FS, dir string, topic *config.Topic) (*node, error) {
	t.Helper()
	n := &node{t: t, fsys: fsys, topic: topic, logs: &logBuffer{}, now: start}
	var err error
	n.Set, err = OpenSet(Options{
		FS: fsys, Dir: dir, NodeID: 1, RaftDir: "raft", Config: brokerConfig(t), TopicConfig: func(string) *config.Topic { return topic },
		Logger: slog.New(slog.NewTextHandler(n.logs, nil)), BrokerEpoch: func() int64 { return 7 },
	}, n.now)
	if err == nil {
		t.Cleanup(n.Abandon)
	}
	return n, err
}

// lead makes t-0, or takes it if it is there, and leads it in the next epoch.
func (n *node) lead() *Partition {
	n.t.Helper()
	p, err := n.Create("t", protocol.UUID{1}, 0, n.topic, n.now)
	if err != nil {
		n.t.Fatal(err)
	}
	if err := p.Lead(p.epochs.Load().latest()+1, []int32{1}, []int32{1}); err != nil {
		n.t.Fatal(err)
	}
	return p
}

func (n *node) close() {
	n.t.Helper()
	if err := n.Close(); err != nil {
		n.t.Fatal(err)
	}
}

// spec is a batch to build.
type spec struct {
	pid    int64 // 0: none
	epoch  int16
	seq    int32
	n      int
	txn    bool
	codec  protocol.Codec
	times  []int64 // of the records; else the test's time
	keys   []string
	value  string
	append bool // LogAppendTime
}

func (s spec) build(t testing.TB) protocol.Batch {
	t.Helper()
	if s.n == 0 {
		s.n = max(1, len(s.times), len(s.keys))
	}
	if s.value == "" {
		s.value = "value"
	}
	b := protocol.BatchSpec{
		Codec: s.codec, BaseTimestamp: start.UnixMilli(), MaxTimestamp: -1, ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1,
		Transactional: s.txn, LogAppendTime: s.append,
	}
	if s.pid != 0 {
		b.ProducerID, b.ProducerEpoch, b.BaseSequence = s.pid, s.epoch, s.seq
	}
	var records []protocol.Record
	for i := range s.n {
		r := protocol.Record{Key: []byte("key"), Value: []byte(s.value)}
		if i < len(s.times) {
			r.TimestampDelta = s.times[i] - b.BaseTimestamp
		}
		if i < len(s.keys) {
			if r.Key = []byte(s.keys[i]); s.keys[i] == "" {
				r.Key = nil
			}
		}
		records = append(records, r)
	}
	batch, err := protocol.AppendBatch(nil, b, records)
	if err != nil {
		t.Fatal(err)
	}
	return batch
}

func (s spec) request(t testing.TB) AppendRequest {
	return AppendRequest{Batch: s.build(t), Acks: -1, ExpectEpoch: -1, Now: start}
}

// produce appends as the server does: transactional batches are verified first.
func produce(t testing.TB, p *Partition, s spec) (Appended, error) {
	t.Helper()
	r := s.request(t)
	if s.txn {
		g, _, err := p.Verify(s.pid, s.epoch, s.seq, false, start)
		if err != nil {
			return Appended{}, err
		}
		r.Guard = g
	}
	return p.Append(r)
}

func mustProduce(t testing.TB, p *Partition, s spec) Appended {
	t.Helper()
	a, err := produce(t, p, s)
	if err != nil {
		t.Fatal(err)
	}
	if err := p.AwaitHW(context.Background(), a.LastOffset+1); err != nil {
		t.Fatal(err)
	}
	return a
}

func endTxn(t testing.TB, p *Partition, pid int64, epoch int16, commit bool) int64 {
	t.Helper()
	last, err := p.WriteMarker(MarkerRequest{ProducerID: pid, Epoch: epoch, Commit: commit, ExpectEpoch: -1, Now: start})
	if err != nil {
		t.Fatal(err)
	}
	return last
}

// read gives the batches of a fetch, and what came with them.
func read(t testing.TB, p *Partition, r ReadRequest) ([]protocol.Batch, ReadResult, error) {
	t.Helper()
	if r.MaxBytes == 0 {
		r.MaxBytes = math.MaxInt32
	}
	r.LastFetchedEpoch = -1
	res, err := p.Read(r)
	if err != nil {
		return nil, res, err
	}
	defer res.Slice.Release()
	var data bytes.Buffer
	if _, err := res.Slice.WriteTo(&data); err != nil {
		t.Fatal(err)
	}
	var batches []protocol.Batch
	for rest := data.Bytes(); len(rest) > 0; {
		b, next, err := protocol.SplitBatch(rest)
		if err != nil {
			break
		}
		batches, rest = append(batches, b), next
	}
	return batches, res, nil
}

func wantCode(t testing.TB, err error, want *kerr.Error) {
	t.Helper()
	if !isCode(err, want) {
		t.Fatalf("got %v, want %s", err, want.Message)
	}
}

// copyDir copies a directory of the disk to a file system.
func copyDir(t testing.TB, from string, fsys vfs.FS, to string) {
	t.Helper()
	err := filepath.WalkDir(from, func(name string, d os.DirEntry, err error) error {
		if err != nil {
			return err
		}
		rel, _ := filepath.Rel(from, name)
		target := filepath.Join(to, rel)
		if d.IsDir() {
			return fsys.MkdirAll(target, 0o755)
		}
		data, err := os.ReadFile(name)
		if err != nil {
			return err
		}
		return writeFile(fsys, target, data)
	})
	if err != nil {
		t.Fatal(err)
	}
}

func writeFile(fsys vfs.FS, name string, data []byte) error {
	f, err := fsys.OpenFile(name, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	if _, err := f.Write(data); err != nil {
		return err
	}
	if err := f.Sync(); err != nil {
		return err
	}
	return f.Close()
}

func readFile(t testing.TB, fsys vfs.FS, name string) []byte {
	t.Helper()
	data, err := vfs.ReadFile(fsys, name, math.MaxInt32)
	if err != nil {
		t.Fatal(err)
	}
	return data
}

func isCode(err error, want *kerr.Error) bool {
	known, ok := errors.AsType[*kerr.Error](err)
	return ok && known == want
}
