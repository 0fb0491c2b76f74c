package server

import (
	"fmt"
	"strings"
	"sync/atomic"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/internal/vfs"
	"oncelog/protocol"
)

// slowDisk holds up the fsyncs of logs whose name has a text in it.
type slowDisk struct {
	text  string
	began chan struct{}
	goOn  chan error
	open  atomic.Bool // nothing is held up
}

func newSlowDisk(text string) *slowDisk {
	return &slowDisk{text: text, began: make(chan struct{}), goOn: make(chan error)}
}

func (d *slowDisk) ask(op vfs.Op) error {
	if d.open.Load() || op.Kind != vfs.OpSync || !strings.Contains(op.Name, d.text) || !strings.HasSuffix(op.Name, ".log") {
		return nil
	}
	d.began <- struct{}{}
	return <-d.goOn
}

// With flush.messages=1 acks=1 and acks=-1 are answered once the records are on disk; what comes meanwhile shares the next
// fsync. acks=0 and other topics wait for nothing.
func TestAcksWaitForTheDisk(t *testing.T) {
	disk := newSlowDisk("/safe-0/")
	s := startServerWith(t, Options{Config: testConfig(t, t.TempDir()), FS: vfs.Inject(vfs.OS, disk.ask)})
	defer disk.open.Store(true)
	clients, other := []*client{dial(t, s), dial(t, s), dial(t, s)}, dial(t, s)
	other.createTopic("safe", 1, "flush.messages=1")
	other.createTopic("fast", 1)
	reqs := []*kmsg.ProduceRequest{
		produceRequest(9, "safe", 0, 1, batch(t, 1, 10)), produceRequest(9, "safe", 0, -1, batch(t, 1, 10)), produceRequest(9, "safe", 0, 1, batch(t, 1, 10)),
	}
	end := func(want int64) func() bool {
		return func() bool { return s.replicas.Get("safe", 0).Offsets().End == want }
	}
	var ids []int32
	for i, req := range reqs {
		ids = append(ids, clients[i].send(req))
		if i == 0 {
			<-disk.began
		}
		waitFor(t, "the append", end(int64(i+1)))
	}
	other.send(produceRequest(9, "safe", 0, 0, batch(t, 1, 10)))
	waitFor(t, "the last append", end(4))
	other.produce("fast", 0, batch(t, 1, 10))
	if hw := s.replicas.Get("safe", 0).Offsets().HW; hw != 0 {
		t.Errorf("high watermark %d before the fsync", hw)
	}
	disk.goOn <- nil
	if got := produced(clients[0].receive(reqs[0], ids[0]).(*kmsg.ProduceResponse)); got != "safe-0 0@0" {
		t.Error(got)
	}
	<-disk.began
	if hw := s.replicas.Get("safe", 0).Offsets().HW; hw != 1 {
		t.Errorf("high watermark %d between the fsyncs", hw)
	}
	disk.goOn <- nil
	for i, want := range []string{1: "safe-0 0@1", 2: "safe-0 0@2"} {
		if i == 0 {
			continue
		}
		if got := produced(clients[i].receive(reqs[i], ids[i]).(*kmsg.ProduceResponse)); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// TestPipelinedAppendsShareFsyncs: a client that doesn't wait for its answers is not kept waiting with its next request by the fsync of the last, once
// it is known for that.
func TestPipelinedAppendsShareFsyncs(t *testing.T) {
	disk := newSlowDisk("/safe-0/")
	s := startServerWith(t, Options{Config: testConfig(t, t.TempDir()), FS: vfs.Inject(vfs.OS, disk.ask)})
	defer disk.open.Store(true)
	c := dial(t, s)
	c.createTopic("safe", 1, "flush.messages=1")
	req := produceRequest(9, "safe", 0, -1, batch(t, 1, 10))
	disk.open.Store(true)
	do[*kmsg.ProduceResponse](c, req)
	const before = 1
	s.lastSyncSince.Add(-int64(aloneFor)) // from now on the reader does the fsyncs
	disk.open.Store(false)
	ids := []int32{c.send(req)}
	<-disk.began
	ids = append(ids, c.send(req))
	waitFor(t, "the next request", func() bool {
		s.conns.mu.Lock()
		defer s.conns.mu.Unlock()
		for c := range s.conns.open {
			return c.readable()
		}
		return false
	})
	disk.goOn <- nil
	<-disk.began
	for range 3 {
		ids = append(ids, c.send(req))
	}
	waitFor(t, "the appends", func() bool { return s.replicas.Get("safe", 0).Offsets().End == before+5 })
	disk.goOn <- nil
	<-disk.began
	disk.goOn <- nil
	for i, id := range ids {
		if got, want := produced(c.receive(req, id).(*kmsg.ProduceResponse)), fmt.Sprint("safe-0 0@", before+i); got != want {
			t.Errorf("got %s, want %s", got, want)
		}
	}
}

// A failed fsync is told to those who wait for it, whoever did it.
func TestFailedFsyncIsTold(t *testing.T) {
	for _, acks := range []int16{1, -1} {
		for _, here := range []bool{false, true} {
			disk := newSlowDisk("/safe-0/")
			s := startServerWith(t, Options{Config: testConfig(t, t.TempDir()), FS: vfs.Inject(vfs.OS, disk.ask)})
			c := dial(t, s)
			c.createTopic("safe", 1, "flush.messages=1")
			req := produceRequest(9, "safe", 0, acks, batch(t, 1, 10))
			if here {
				disk.open.Store(true)
				do[*kmsg.ProduceResponse](c, req)
				s.lastSyncSince.Add(-int64(aloneFor))
				disk.open.Store(false)
			}
			id := c.send(req)
			<-disk.began
			disk.goOn <- syscall.EIO
			if got := produced(c.receive(req, id).(*kmsg.ProduceResponse)); !strings.HasPrefix(got, "safe-0 56@") {
				t.Error(acks, here, got)
			}
			if got := produced(do[*kmsg.ProduceResponse](c, req)); got != "safe-0 56@-1" {
				t.Error(acks, here, got)
			}
			disk.open.Store(true)
		}
	}
}

// With log.flush.interval.messages=1 a coordinator's answer means that the disk has what it says.
func TestCoordinatorsWaitForTheDisk(t *testing.T) {
	disk := newSlowDisk("/__transaction_state-")
	s := startServerWith(t, Options{Config: testConfig(t, t.TempDir(), "log.flush.interval.messages=1"), FS: vfs.Inject(vfs.OS, disk.ask)})
	defer disk.open.Store(true)
	c := dial(t, s)
	find := kmsg.NewPtrFindCoordinatorRequest()
	find.Version, find.CoordinatorType, find.CoordinatorKeys = 4, 1, []string{"id"}
	waitFor(t, "the coordinator", func() bool {
		do[*kmsg.FindCoordinatorResponse](c, find) // makes the topic
		_, err := s.txnShard("id")
		return err == nil
	})
	init := kmsg.NewPtrInitProducerIDRequest()
	init.Version, init.TransactionTimeoutMillis = 4, 60000
	init.TransactionalID = kmsg.StringPtr("id")
	sent := c.send(init)
	<-disk.began
	shard := protocol.CoordinatorPartition("id", 2)
	if o := s.replicas.Get(transactionsTopic, shard).Offsets(); o.HW != 0 || o.End == 0 {
		t.Errorf("%+v before the fsync", o)
	}
	disk.goOn <- nil
	if r := c.receive(init, sent).(*kmsg.InitProducerIDResponse); r.ErrorCode != 0 {
		t.Errorf("error %d", r.ErrorCode)
	}
}
