package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func mustOpen(t testing.TB, o Options) *Controller {
	t.Helper()
	o.NodeID, o.Config, o.Logger = 1, testConfig(t), discard
	c, err := Open(o)
	if err != nil {
		t.Fatal(err)
	}
	return c
}

func mustClose(t testing.TB, c *Controller) {
	t.Helper()
	if err := c.Close(); err != nil {
		t.Fatal(err)
	}
}

func mustRegister(t testing.TB, c *Controller, life byte) int64 {
	t.Helper()
	epoch, err := c.Register(t.Context(), Registration{BrokerID: 1, ClusterID: "c", Incarnation: [16]byte{15: life}})
	if err != nil {
		t.Fatal(err)
	}
	return epoch
}

func createRequest(names ...string) *kmsg.CreateTopicsRequest {
	req := kmsg.NewPtrCreateTopicsRequest()
	req.SetVersion(4)
	req.TimeoutMillis = 1000
	for _, name := range names {
		t := kmsg.NewCreateTopicsRequestTopic()
		t.Topic, t.NumPartitions, t.ReplicationFactor = name, 1, 1
		req.Topics = append(req.Topics, t)
	}
	return req
}

func createCodes(c *Controller, ctx context.Context, names ...string) (codes []int16) {
	for _, t := range c.CreateTopics(ctx, createRequest(names...)).Topics {
		codes = append(codes, t.ErrorCode)
	}
	return codes
}

// TestLoneVoterLeadsAtOnce: no timer has to run for a node to lead and to write, the first time and the second.
func TestLoneVoterLeadsAtOnce(t *testing.T) {
	dir := t.TempDir()
	for life := range 2 {
		began := time.Now()
		c := mustOpen(t, Options{Dir: dir})
		opened := time.Since(began)
		mustRegister(t, c, byte(life+1))
		t.Logf("open %v, registered %v", opened, time.Since(began))
		if d := time.Since(began); d > 2*time.Second {
			t.Errorf("took %v", d)
		}
		if im := c.Image(); im.ControllerID != 1 {
			t.Errorf("controller is %d", im.ControllerID)
		}
		mustClose(t, c)
	}
}

// TestRestartKeepsAll: the image after a restart is the one before, and producer ids that were handed out are not handed out again.
func TestRestartKeepsAll(t *testing.T) {
	dir := t.TempDir()
	c := mustOpen(t, Options{Dir: dir})
	epoch := mustRegister(t, c, 1)
	if codes := createCodes(c, t.Context(), "a", "b.c"); fmt.Sprint(codes) != "[0 0]" {
		t.Fatal(codes)
	}
	first, n, err := c.AllocateProducerIDs(t.Context(), 1, epoch)
	if err != nil || first != 0 || n != 1000 {
		t.Fatal(first, n, err)
	}
	before := describe(c.Image())
	mustClose(t, c)

	c = mustOpen(t, Options{Dir: dir})
	if got := describe(c.Image()); got != before {
		t.Fatalf("was\n%sis\n%s", before, got)
	}
	again := mustRegister(t, c, 2)
	if again <= epoch {
		t.Errorf("broker epoch %d after %d", again, epoch)
	}
	if p := c.Image().Topic("a").Partitions[0]; p.LeaderEpoch != restartEpochs {
		t.Errorf("leader epoch %d after a restart", p.LeaderEpoch)
	}
	if _, _, err := c.AllocateProducerIDs(t.Context(), 1, epoch); !errors.Is(err, kerr.StaleBrokerEpoch) {
		t.Errorf("old life gets producer ids: %v", err)
	}
	if first, _, err := c.AllocateProducerIDs(t.Context(), 1, again); err != nil || first != 1000 {
		t.Errorf("producer ids from %d: %v", first, err)
	}
	mustClose(t, c)
	if _, err := Open(Options{NodeID: 1, ClusterID: "other", Dir: dir, Config: testConfig(t), Logger: discard}); err == nil || !strings.Contains(err.Error(), "cluster c") {
		t.Errorf("opened for another cluster: %v", err)
	}
}

// TestSnapshotTakesThePlaceOfTheLog: with the log cut off behind a snapshot, a restart has the same image.
func TestSnapshotTakesThePlaceOfTheLog(t *testing.T) {
	dir := t.TempDir()
	c := mustOpen(t, Options{Dir: dir})
	mustRegister(t, c, 1)
	for i := range 3 {
		createCodes(c, t.Context(), fmt.Sprint("before", i))
	}
	if err := c.voter.raft.Snapshot().Error(); err != nil {
		t.Fatal(err)
	}
	s := c.voter.stores.Log.(*store)
	last, _ := s.LastIndex()
	if err := s.DeleteRange(1, last); err != nil {
		t.Fatal(err)
	}
	createCodes(c, t.Context(), "after")
	before := describe(c.Image())
	mustClose(t, c)
	c = mustOpen(t, Options{Dir: dir})
	if got := describe(c.Image()); got != before {
		t.Errorf("was\n%sis\n%s", before, got)
	}
	mustClose(t, c)
}

// TestStaleTermIsIgnored: an entry that was decided in another term than it is appended in changes nothing, whoever wrote it, and the next
// decision is taken as if it were not there.
func TestStaleTermIsIgnored(t *testing.T) {
	c := mustOpen(t, Options{Dir: t.TempDir()})
	defer mustClose(t, c)
	mustRegister(t, c, 1)
	before := describe(c.Image())
	f := c.voter.raft.Apply(encodeEntry(c.voter.raft.CurrentTerm()-1, []record{topicRecord{"stale", [16]byte{1}, nil}}), 0)
	if err := f.Error(); err != nil {
		t.Fatal(err)
	}
	if f.Response() != errStaleTerm {
		t.Errorf("response is %v", f.Response())
	}
	if got := describe(c.Image()); got != before {
		t.Errorf("stale entry made\n%s", got)
	}
	if codes := createCodes(c, t.Context(), "stale"); fmt.Sprint(codes) != "[0]" {
		t.Error(codes)
	}
}

// TestBrokenLogIsNotServedOn: if what was decided cannot be replayed, which is a bug, no more is decided, and the directory does not open again as
// if nothing had happened. What is known is still served.
func TestBrokenLogIsNotServedOn(t *testing.T) {
	dir := t.TempDir()
	c := mustOpen(t, Options{Dir: dir})
	mustRegister(t, c, 1)
	before := describe(c.Image())
	twice := []record{topicRecord{"a", [16]byte{1}, nil}, topicRecord{"a", [16]byte{2}, nil}}
	if err := c.do(t.Context(), func(*decider) []record { return twice }); !errors.Is(err, kerr.KafkaStorageError) {
		t.Errorf("bad records: %v", err)
	}
	if code := createCodes(c, t.Context(), "b")[0]; code != kerr.KafkaStorageError.Code {
		t.Errorf("next decision: %d", code)
	}
	if got := describe(c.Image()); got != before {
		t.Errorf("image was\n%sis\n%s", before, got)
	}
	mustClose(t, c)
	if c, err := Open(Options{NodeID: 1, Dir: dir, Config: testConfig(t), Logger: discard}); !errors.Is(err, errCorrupt) {
		t.Errorf("opened: %v", err)
		mustClose(t, c)
	}
}

// faultyLog fails to store entries as long as full is set.
type faultyLog struct {
	raft.LogStore
	full atomic.Bool
}

func (f *faultyLog) StoreLogs(logs []*raft.Log) error {
	if f.full.Load() {
		return syscall.ENOSPC
	}
	return f.LogStore.StoreLogs(logs)
}

func (f *faultyLog) StoreLog(l *raft.Log) error { return f.StoreLogs([]*raft.Log{l}) }

// TestFullDisk: as long as the log cannot be written requests are refused in a way that clients try again, reads go on, and once there is room the
// node leads again by itself.
func TestFullDisk(t *testing.T) {
	var log faultyLog
	c := mustOpen(t, Options{Dir: t.TempDir(), Stores: func(dir string, l *slog.Logger) (Stores, error) {
		s, err := openStores(dir, l)
		log.LogStore = s.Log
		s.Log = &log
		return s, err
	}})
	defer mustClose(t, c)
	mustRegister(t, c, 1)
	log.full.Store(true)
	for i := range 3 {
		code := createCodes(c, t.Context(), "a")[0]
		if err := kerr.ErrorForCode(code); !kerr.IsRetriable(err) {
			t.Fatalf("try %d: %v", i, err)
		}
	}
	if c.Image().Topic("a") != nil {
		t.Error("topic is there although it was not written")
	}
	log.full.Store(false)
	for kerr.IsRetriable(kerr.ErrorForCode(createCodes(c, t.Context(), "a")[0])) {
		if t.Context().Err() != nil {
			t.Fatal("does not lead again")
		}
	}
	if c.Image().Topic("a") == nil {
		t.Error("topic is not there")
	}
}

// TestManyAtOnce: requests that come together are decided one after the other all the same: one of each name wins.
func TestManyAtOnce(t *testing.T) {
	registry := prometheus.NewRegistry()
	c := mustOpen(t, Options{Dir: t.TempDir(), Registerer: registry})
	mustRegister(t, c, 1)
	var won [5]atomic.Int32
	var callers sync.WaitGroup
	for i := range 50 {
		callers.Go(func() {
			switch code := createCodes(c, t.Context(), fmt.Sprint("t", i%5))[0]; code {
			case 0:
				won[i%5].Add(1)
			case kerr.TopicAlreadyExists.Code:
			default:
				t.Errorf("code %d", code)
			}
		})
	}
	callers.Wait()
	for i := range won {
		if won[i].Load() != 1 {
			t.Errorf("t%d was created %d times", i, won[i].Load())
		}
	}
	if _, err := registry.Gather(); err != nil {
		t.Error(err)
	}
	mustClose(t, c)
	if got, err := registry.Gather(); err != nil || len(got) > 0 {
		t.Errorf("metrics after Close: %v, %v", got, err)
	}
}

// TestOneRequestIsOneImage: 9,999 topics of one request come into being at once, and quickly.
func TestOneRequestIsOneImage(t *testing.T) {
	c := mustOpen(t, Options{Dir: t.TempDir()})
	defer mustClose(t, c)
	mustRegister(t, c, 1)
	names := make([]string, 5000)
	for i := range names {
		names[i] = fmt.Sprintf("topic-%d.x", i)
	}
	before, changed := c.Image(), c.Changed()
	began := time.Now()
	for _, code := range createCodes(c, t.Context(), names...) {
		if code != 0 {
			t.Fatal(code)
		}
	}
	t.Logf("%d topics in %v", len(names), time.Since(began))
	select {
	case <-changed:
	default:
		t.Error("the change was not told")
	}
	im := c.Image()
	if im.NumTopics() != len(names) || len(im.recent) == 0 || im.recent[len(im.recent)-1].from != before.Index {
		t.Errorf("%d topics, last change from %d, image was %d", im.NumTopics(), im.recent[len(im.recent)-1].from, before.Index)
	}
	delta, ok := im.Since(before)
	if !ok || len(delta.Topics) != len(names) {
		t.Errorf("delta has %d topics, known %v", len(delta.Topics), ok)
	}
	// One more topic does not cost what all cost.
	began = time.Now()
	for i := range 20 {
		createCodes(c, t.Context(), fmt.Sprint("one-more-", i))
	}
	t.Logf("one more: %v", time.Since(began)/20)
}

// TestSinceForgets: what is too long ago is not known, rather than wrong.
func TestSinceForgets(t *testing.T) {
	im := mustReplay(t, emptyImage(), clusterRecord{"c"})
	old := im
	for i := range recentChanges {
		im = mustReplay(t, im, topicRecord{fmt.Sprint("t", i), [16]byte{byte(i)}, nil})
		delta, ok := im.Since(old)
		if !ok || len(delta.Topics) != i+1 {
			t.Fatalf("after %d: %v %v", i, delta, ok)
		}
	}
	im = mustReplay(t, im, configRecord{kmsg.ConfigResourceTypeTopic, "t0", "a", kmsg.StringPtr("b")})
	if delta, ok := im.Since(old); ok {
		t.Errorf("still known: %v", delta)
	}
	if delta, ok := im.Since(im); !ok || delta.Topics != nil || delta.Configs != nil {
		t.Errorf("since itself: %v %v", delta, ok)
	}
}

// TestGiveUp: a caller that gives up, and one that comes after Close, are told so at once.
func TestGiveUp(t *testing.T) {
	c := mustOpen(t, Options{Dir: t.TempDir()})
	ctx, cancel := context.WithCancel(t.Context())
	cancel()
	c2 := *c
	c2.proposals = make(chan *proposal) // nobody takes them
	if err := c2.do(ctx, func(*decider) []record { return nil }); err != kerr.RequestTimedOut {
		t.Error(err)
	}
	req := createRequest("a")
	req.TimeoutMillis = 0
	if code := c.CreateTopics(t.Context(), req).Topics[0].ErrorCode; code != kerr.RequestTimedOut.Code {
		t.Error(code)
	}
	mustClose(t, c)
	if code := createCodes(c, t.Context(), "a")[0]; code != kerr.NotController.Code {
		t.Error(code)
	}
}

// TestPanicCostsOneRequest: a bug in a decision is answered, and the next request is decided.
func TestPanicCostsOneRequest(t *testing.T) {
	c := mustOpen(t, Options{Dir: t.TempDir()})
	defer mustClose(t, c)
	mustRegister(t, c, 1)
	if err := c.do(t.Context(), func(*decider) []record { panic("bug") }); err != kerr.UnknownServerError {
		t.Error(err)
	}
	if codes := createCodes(c, t.Context(), "a"); codes[0] != 0 {
		t.Error(codes)
	}
}

// TestCorruptEntryEndsTheFold: an entry that cannot be read is not skipped. The image stays what it was, and so it does after a restart, which fails.
func TestCorruptEntryEndsTheFold(t *testing.T) {
	b := newBoard()
	f := &fsm{board: b}
	entry := encodeEntry(1, []record{clusterRecord{"c"}})
	if r := f.Apply(&raft.Log{Index: 1, Term: 1, Data: entry}); r != nil {
		t.Fatal(r)
	}
	for i, data := range [][]byte{{99}, encodeEntry(1, []record{topicRecord{"a", [16]byte{1}, nil}})} {
		if err, ok := f.Apply(&raft.Log{Index: uint64(2 + i), Term: 1, Data: data}).(error); !ok || !errors.Is(err, errCorrupt) {
			t.Errorf("entry %d: %v", i, err)
		}
	}
	if im := b.image.Load(); im.Index != 1 || im.NumTopics() != 0 {
		t.Errorf("image\n%s", describe(im))
	}
	if _, err := f.Snapshot(); !errors.Is(err, errCorrupt) {
		t.Errorf("a snapshot of it: %v", err)
	}
	if err := f.Restore(io.NopCloser(strings.NewReader("\x63"))); !errors.Is(err, errCorrupt) {
		t.Errorf("corrupt snapshot: %v", err)
	}
}
