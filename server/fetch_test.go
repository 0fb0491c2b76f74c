package server

import (
	"bytes"
	"encoding/binary"
	"fmt"
	"io"
	"log/slog"
	"net"
	"reflect"
	"strings"
	"testing"
	"time"

	"github.com/hashicorp/raft"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/cluster"
	"oncelog/internal/vfs"
	"oncelog/partition"
	"oncelog/protocol"
)

// fetched shows an answer: error and bytes by partition.
func fetched(resp *kmsg.FetchResponse) string {
	var rows []string
	if resp.ErrorCode != 0 {
		rows = append(rows, fmt.Sprintf("error %d", resp.ErrorCode))
	}
	for _, t := range resp.Topics {
		for _, p := range t.Partitions {
			rows = append(rows, fmt.Sprintf("%s-%d %d:%d", t.Topic, p.Partition, p.ErrorCode, len(p.RecordBatches)))
		}
	}
	return strings.Join(rows, ", ")
}

// The encoder of fetch answers writes what kmsg would, in every version.
func TestFetchEncodesLikeKmsg(t *testing.T) {
	rack := "r"
	id := [16]byte{1, 2, 3}
	for version := int16(4); version <= 18; version++ {
		f := &fetch{}
		f.FetchResponse.Default()
		f.Version, f.SessionID, f.ErrorCode = version, 77, 5
		want := kmsg.NewFetchResponse()
		want.Version, want.SessionID, want.ErrorCode = version, 77, 5
		rows := []fetchRow{
			{fetchTarget: fetchTarget{topic: "a", id: id}, result: partition.ReadResult{HW: 9, LSO: 8, LogStart: 2}, leader: -1, leaderAt: -1},
			{fetchTarget: fetchTarget{topic: "a", id: id, index: 3}, result: partition.ReadResult{HW: 9, LSO: 8, Aborted: []partition.AbortedTxn{{ProducerID: 4, FirstOffset: 5}}}, leader: -1, leaderAt: -1},
			{fetchTarget: fetchTarget{topic: "b"}, early: true, code: 3, result: partition.ReadResult{HW: -1, LSO: -1, LogStart: -1}, leader: -1, leaderAt: -1},
			{fetchTarget: fetchTarget{topic: "b", index: 1}, code: 6, result: partition.ReadResult{HW: -1, LSO: -1, LogStart: -1}, leader: 2, leaderAt: 300},
			{fetchTarget: fetchTarget{topic: "b", index: 2}, result: partition.ReadResult{Diverging: &partition.EpochEnd{Epoch: 1, EndOffset: 1 << 40}}, leader: -1, leaderAt: -1},
			{fetchTarget: fetchTarget{topic: "b", index: 4}, omit: true},
		}
		f.rows = rows
		if version >= 16 {
			for _, r := range []*string{nil, &rack} {
				b := kmsg.NewFetchResponseBroker()
				b.NodeID, b.Host, b.Port, b.Rack = 2, strings.Repeat("host", 60), 9092, r
				f.Brokers = append(f.Brokers, b)
			}
			want.Brokers = f.Brokers
		}
		for _, i := range []int{0, 1, 3, 4, 2} { // what was refused before reading is last
			row := rows[i]
			if n := len(want.Topics); n == 0 || want.Topics[n-1].Topic != row.topic {
				topic := kmsg.NewFetchResponseTopic()
				topic.Topic, topic.TopicID = row.topic, row.id
				want.Topics = append(want.Topics, topic)
			}
			p := kmsg.NewFetchResponseTopicPartition()
			p.Partition, p.ErrorCode = row.index, row.code
			p.HighWatermark, p.LastStableOffset, p.LogStartOffset = row.result.HW, row.result.LSO, row.result.LogStart
			p.CurrentLeader.LeaderID, p.CurrentLeader.LeaderEpoch = row.leader, row.leaderAt
			p.RecordBatches = []byte{}
			if row.early {
				p.AbortedTransactions = []kmsg.FetchResponseTopicPartitionAbortedTransaction{}
			}
			for _, a := range row.result.Aborted {
				p.AbortedTransactions = append(p.AbortedTransactions, kmsg.FetchResponseTopicPartitionAbortedTransaction{ProducerID: a.ProducerID, FirstOffset: a.FirstOffset})
			}
			if d := row.result.Diverging; d != nil {
				p.DivergingEpoch.Epoch, p.DivergingEpoch.EndOffset = d.Epoch, d.EndOffset
			}
			last := &want.Topics[len(want.Topics)-1]
			last.Partitions = append(last.Partitions, p)
		}
		if got := f.AppendTo(nil); !bytes.Equal(got, want.AppendTo(nil)) {
			t.Errorf("v%d:\n got %x\nwant %x", version, got, want.AppendTo(nil))
		}
	}
}

// The first partition with records yields a batch whatever the limits say, and
// only that one (KIP-74).
func TestFetchKeepsItsByteBudget(t *testing.T) {
	s := startServer(t)
	c := dial(t, s)
	c.createTopic("t", 3)
	b := batch(t, 1, 500)
	for p := range int32(3) {
		c.produce("t", p, b)
		c.produce("t", p, b)
	}
	n := len(b)
	for _, row := range []struct {
		maxBytes, partitionMax int
		want                   [3]int
	}{
		{1, 1, [3]int{n, 0, 0}},
		{1 << 20, 1, [3]int{n, 0, 0}},
		{1 << 20, n, [3]int{n, n, n}},
		{2*n + 10, 1 << 20, [3]int{2 * n, 0, 0}},
		{3 * n, n, [3]int{n, n, n}},
		{2 * n, n + 10, [3]int{n + 10, 0, 0}},
		{2*n + 20, n + 10, [3]int{n + 10, n + 10, 0}},
		{1 << 20, 1 << 20, [3]int{2 * n, 2 * n, 2 * n}},
	} {
		req := fetchRequest(11, "t", 0, 0, 1, 2)
		req.MaxBytes = int32(row.maxBytes)
		for i := range req.Topics[0].Partitions {
			req.Topics[0].Partitions[i].PartitionMaxBytes = int32(row.partitionMax)
		}
		var got [3]int
		for i, p := range do[*kmsg.FetchResponse](c, req).Topics[0].Partitions {
			got[i] = len(p.RecordBatches)
		}
		if got != row.want {
			t.Errorf("max %d, per partition %d: got %v, want %v", row.maxBytes, row.partitionMax, got, row.want)
		}
	}
}

// Large reads, which go from the file to the socket, and small ones, which are
// copied, give the same bytes, also when they are mixed in one answer.
func TestFetchBytesAreWhatIsInTheLog(t *testing.T) {
	s := startServer(t)
	c := dial(t, s)
	c.createTopic("t", 4)
	want := map[int32][]byte{}
	for i := range 12 {
		p := int32(i % 4)
		b := batch(t, 2, []int{10, 20_000, 100_000, 300_000}[p])
		c.produce("t", p, b)
		b.SetBase(int64(i/4)*2, 0)
		want[p] = append(want[p], b...)
	}
	req := fetchRequest(12, "t", 0, 0, 1, 2, 3)
	for i := range req.Topics[0].Partitions {
		req.Topics[0].Partitions[i].PartitionMaxBytes = 10 << 20
	}
	epoch := int32(-1)
	for range 3 {
		for _, p := range do[*kmsg.FetchResponse](c, req).Topics[0].Partitions {
			for rest := p.RecordBatches; len(rest) > 0; {
				b, more, err := protocol.SplitBatch(rest)
				if err != nil {
					t.Fatal(err)
				}
				epoch = b.Header().LeaderEpoch
				b.SetBase(b.Header().BaseOffset, 0)
				rest = more
			}
			if !bytes.Equal(p.RecordBatches, want[p.Partition]) {
				t.Fatalf("partition %d: %d bytes, want %d", p.Partition, len(p.RecordBatches), len(want[p.Partition]))
			}
		}
	}
	if epoch < 0 {
		t.Errorf("leader epoch %d", epoch)
	}
	// The same without a socket.
	resp, err := s.Request(t.Context(), req)
	if err != nil {
		t.Fatal(err)
	}
	if n := len(resp.(*kmsg.FetchResponse).Topics[0].Partitions[3].RecordBatches); n != len(want[3]) {
		t.Errorf("in process: %d bytes, want %d", n, len(want[3]))
	}
}

// A poll that finds nothing waits, is woken by the append, and answers within
// milliseconds of it.
func TestLongPollIsWokenByTheAppend(t *testing.T) {
	s := startServer(t)
	c, producer := dial(t, s), dial(t, s)
	c.createTopic("t", 3)
	poll := fetchRequest(12, "t", 0, 0, 1, 2)
	poll.MaxWaitMillis = 60_000
	worst := time.Duration(0)
	for i := range int64(20) {
		poll.Topics[0].Partitions[1].FetchOffset = i
		id := c.send(poll)
		waitFor(t, "the poll to park", func() bool { return s.working() == 1 })
		producer.produce("t", 1, batch(t, 1, 10))
		begin := time.Now()
		resp := c.receive(poll, id).(*kmsg.FetchResponse)
		worst = max(worst, time.Since(begin))
		if len(resp.Topics[0].Partitions[1].RecordBatches) == 0 {
			t.Fatalf("poll %d woke for nothing", i)
		}
	}
	if worst > 2*time.Second {
		t.Errorf("woken after %v", worst)
	}
}

// What a poll waits for, and what not.
func TestLongPollEndsWhenItShould(t *testing.T) {
	s := startServer(t)
	c := dial(t, s)
	c.createTopic("t", 2)
	c.produce("t", 0, batch(t, 5, 100))
	const wait = 150
	for name, row := range map[string]struct {
		change func(*kmsg.FetchRequest)
		waits  bool
	}{
		"records":             {func(*kmsg.FetchRequest) {}, false},
		"nothing new":         {func(r *kmsg.FetchRequest) { r.Topics[0].Partitions[0].FetchOffset = 5 }, true},
		"too little":          {func(r *kmsg.FetchRequest) { r.MinBytes = 100_000 }, true},
		"no minimum":          {func(r *kmsg.FetchRequest) { r.MinBytes = 0; r.Topics[0].Partitions[0].FetchOffset = 5 }, false},
		"out of range":        {func(r *kmsg.FetchRequest) { r.Topics[0].Partitions[0].FetchOffset = 6 }, false},
		"unknown":             {func(r *kmsg.FetchRequest) { r.Topics[0].Topic = "nope" }, false},
		"unknown beside idle": {func(r *kmsg.FetchRequest) { r.Topics[0].Partitions[0].Partition = 9 }, true},
		"nothing asked":       {func(r *kmsg.FetchRequest) { r.Topics = nil }, false},
		"no time":             {func(r *kmsg.FetchRequest) { r.Topics[0].Partitions[0].FetchOffset = 5; r.MaxWaitMillis = 0 }, false},
	} {
		t.Run(name, func(t *testing.T) {
			c := dial(t, s)
			req := fetchRequest(12, "t", 0, 0, 1)
			req.MaxWaitMillis = wait
			row.change(req)
			begin := time.Now()
			do[*kmsg.FetchResponse](c, req)
			if took := time.Since(begin); row.waits != (took >= wait*time.Millisecond) {
				t.Errorf("took %v", took)
			}
		})
	}
}

// A poll on a topic that is deleted ends with an error.
func TestLongPollEndsWhenTheTopicIsDeleted(t *testing.T) {
	s := startServer(t)
	c, admin := dial(t, s), dial(t, s)
	admin.createTopic("t", 1)
	poll := fetchRequest(12, "t", 0, 0)
	poll.MaxWaitMillis = 60_000
	id := c.send(poll)
	waitFor(t, "the poll to park", func() bool { return s.working() == 1 })
	del := kmsg.NewPtrDeleteTopicsRequest()
	del.Version, del.TopicNames, del.TimeoutMillis = 5, []string{"t"}, 5000
	do[*kmsg.DeleteTopicsResponse](admin, del)
	if got := fetched(c.receive(poll, id).(*kmsg.FetchResponse)); got != "t-0 3:0" && got != "t-0 6:0" {
		t.Errorf("got %s", got)
	}
}

// sessionStep is one request of a session.
func sessionStep(c *client, id, epoch int32, req *kmsg.FetchRequest) *kmsg.FetchResponse {
	c.t.Helper()
	req.SessionID, req.SessionEpoch = id, epoch
	return do[*kmsg.FetchResponse](c, req)
}

// A session remembers its partitions and tells only the news (KIP-227).
func TestFetchSession(t *testing.T) {
	s := startServer(t)
	c := dial(t, s)
	c.createTopic("t", 3)
	n := len(batch(t, 1, 10))
	c.produce("t", 0, batch(t, 1, 10))
	first := sessionStep(c, 0, 0, fetchRequest(12, "t", 0, 0, 1))
	id := first.SessionID
	if got, want := fetched(first), fmt.Sprintf("t-0 0:%d, t-1 0:0", n); got != want || id == 0 {
		t.Fatalf("got %s with session %d, want %s", got, id, want)
	}
	step := func(what string, epoch int32, req *kmsg.FetchRequest, want string) *kmsg.FetchResponse {
		t.Helper()
		resp := sessionStep(c, id, epoch, req)
		if got := fetched(resp); got != want {
			t.Errorf("%s: got %q, want %q", what, got, want)
		}
		return resp
	}
	forget := func(partitions ...int32) *kmsg.FetchRequest {
		req := fetchRequest(12, "t", 0)
		req.ForgottenTopics = []kmsg.FetchRequestForgottenTopic{{Topic: "t", Partitions: partitions}}
		return req
	}
	none := func() *kmsg.FetchRequest { return fetchRequest(12, "t", 0) }
	step("position moves", 1, fetchRequest(12, "t", 1, 0), "")
	c.produce("t", 1, batch(t, 1, 10))
	step("records", 2, none(), fmt.Sprintf("t-1 0:%d", n))
	step("a third partition", 3, fetchRequest(12, "t", 0, 2), fmt.Sprintf("t-1 0:%d, t-2 0:0", n))
	step("one is forgotten", 4, forget(1), "")
	step("an error", 5, fetchRequest(12, "t", 99, 0), "t-0 1:0")
	step("the error stays", 6, none(), "t-0 1:0")
	step("the wrong epoch", 6, none(), "error 71")
	step("another version", 7, fetchRequest(13, "t", 0), "error 106")
	step("it goes on", 7, fetchRequest(12, "t", 1, 0), "t-0 0:0")
	resp := step("all are forgotten", 8, forget(0, 2), "")
	if resp.SessionID != 0 {
		t.Errorf("empty session still has id %d", resp.SessionID)
	}
	step("it is gone", 9, none(), "error 70")
	if resp := sessionStep(c, 0, -1, fetchRequest(12, "t", 0, 0)); resp.SessionID != 0 {
		t.Errorf("final epoch gave session %d", resp.SessionID)
	}
}

// Partitions with records go to the end, so that none starves.
func TestFetchSessionIsFair(t *testing.T) {
	s := startServer(t)
	c := dial(t, s)
	c.createTopic("t", 3)
	for p := range int32(3) {
		c.produce("t", p, batch(t, 1, 500))
	}
	req := fetchRequest(12, "t", 0, 0, 1, 2)
	id := sessionStep(c, 0, 0, req).SessionID
	var order []string
	for epoch := range int32(4) {
		req := fetchRequest(12, "t", 0)
		req.MaxBytes = 1
		order = append(order, strings.Fields(fetched(sessionStep(c, id, epoch+1, req)))[0])
	}
	if want := []string{"t-0", "t-1", "t-2", "t-0"}; !reflect.DeepEqual(order, want) {
		t.Errorf("got %v, want %v", order, want)
	}
}

// A full cache gives up what is idle, or what is old and no larger than the new.
func TestFetchSessionsAreBounded(t *testing.T) {
	fs := newFetchSessions(sessionShards)
	now := time.Now()
	create := func(partitions int) *fetchSession {
		req := kmsg.NewPtrFetchRequest()
		req.Version, req.ReplicaID = 12, -1
		return fs.create(make([]fetchRow, partitions), req, now)
	}
	var sessions []*fetchSession
	for range sessionShards {
		s := create(2)
		if s == nil {
			t.Fatal("no room")
		}
		sessions = append(sessions, s)
	}
	if create(5) != nil {
		t.Error("more sessions than slots")
	}
	now = now.Add(sessionIdle + time.Second)
	for _, s := range sessions[1:] {
		fs.touch(s, 2, now)
	}
	for range sessionShards { // one attempt per shard: only the idle one, the old and no larger ones go
		create(1)
	}
	if fs.get(sessions[0].id) != nil {
		t.Error("an idle session stays")
	}
	for _, s := range sessions[1:] {
		if fs.get(s.id) == nil {
			t.Error("a smaller newcomer took the slot of a used session")
		}
	}
	now = now.Add(time.Second)
	for range sessionShards {
		create(3)
	}
	kept := 0
	for _, s := range sessions[1:] {
		if fs.get(s.id) != nil {
			kept++
		}
	}
	if kept != 0 {
		t.Errorf("%d old sessions kept their slots from larger newcomers", kept)
	}
}

// Errors are told per partition, and the leader where it is another one.
func TestFetchErrors(t *testing.T) {
	s := startServer(t)
	c := dial(t, s)
	id := c.createTopic("t", 1)
	for name, row := range map[string]struct {
		change func(*kmsg.FetchRequest)
		code   int16
	}{
		"unknown id":      {func(r *kmsg.FetchRequest) { r.Topics[0].TopicID = [16]byte{9} }, kerr.UnknownTopicID.Code},
		"no partition":    {func(r *kmsg.FetchRequest) { r.Topics[0].Partitions[0].Partition = 5 }, kerr.UnknownTopicOrPartition.Code},
		"later epoch":     {func(r *kmsg.FetchRequest) { r.Topics[0].Partitions[0].CurrentLeaderEpoch = 99 }, kerr.UnknownLeaderEpoch.Code},
		"out of range":    {func(r *kmsg.FetchRequest) { r.Topics[0].Partitions[0].FetchOffset = 1 }, kerr.OffsetOutOfRange.Code},
		"foreign replica": {func(r *kmsg.FetchRequest) { r.ReplicaState.ID = 7 }, kerr.NotLeaderForPartition.Code},
		"unknown epoch":   {func(r *kmsg.FetchRequest) { r.Topics[0].Partitions[0].LastFetchedEpoch = 99 }, kerr.OffsetOutOfRange.Code},
	} {
		req := fetchRequest(17, "t", 0, 0)
		req.Topics[0].TopicID = id
		row.change(req)
		p := do[*kmsg.FetchResponse](c, req).Topics[0].Partitions[0]
		if p.ErrorCode != row.code || p.HighWatermark != -1 || p.LogStartOffset != -1 || p.RecordBatches == nil {
			t.Errorf("%s: %+v", name, p)
		}
		if name == "foreign replica" && p.CurrentLeader.LeaderID != 1 {
			t.Errorf("leader %d", p.CurrentLeader.LeaderID)
		}
	}
	req := fetchRequest(12, "t", 0, 0)
	req.IsolationLevel = 7
	if got := fetched(do[*kmsg.FetchResponse](c, req)); got != "error -1, t-0 -1:0" {
		t.Errorf("isolation 7: %s", got)
	}
}

// A client that does not read its answers costs those, not the server, and is let
// go like one that says nothing.
func TestSlowReaderIsLetGo(t *testing.T) {
	s := startServer(t, "connections.max.idle.ms=1500")
	c := dial(t, s)
	c.createTopic("t", 1)
	for range 30 {
		c.produce("t", 0, batch(t, 1, 900_000))
	}
	slow := dial(t, s)
	slow.conn.(*net.TCPConn).SetReadBuffer(4 << 10)
	req := fetchRequest(12, "t", 0, 0)
	req.Topics[0].Partitions[0].PartitionMaxBytes = 40 << 20
	for range 3 {
		slow.send(req)
	}
	if got := c.produce("t", 0, batch(t, 1, 10)); got != 30 {
		t.Errorf("base offset %d", got)
	}
	waitFor(t, "the slow reader to go", func() bool {
		do[*kmsg.ApiVersionsResponse](c, kmsg.NewPtrApiVersionsRequest()) // this one is not idle
		return s.conns.count() == 1
	})
}

// On files that the operating system doesn't know, and with stores that are in
// memory, everything goes by copies: what a simulated node runs on.
func TestServerRunsInMemory(t *testing.T) {
	stores := func(string, *slog.Logger) (cluster.Stores, error) {
		store := raft.NewInmemStore()
		return cluster.Stores{Log: store, Stable: store, Snapshots: raft.NewInmemSnapshotStore(), Close: func() error { return nil }}, nil
	}
	s := startServerWith(t, Options{Config: testConfig(t, "/data"), FS: vfs.NewMem(), RaftStores: stores})
	c := dial(t, s)
	c.createTopic("t", 1)
	b := batch(t, 1, 800_000)
	c.produce("t", 0, b)
	resp := do[*kmsg.FetchResponse](c, fetchRequest(12, "t", 0, 0))
	got, _, err := protocol.SplitBatch(resp.Topics[0].Partitions[0].RecordBatches)
	if err != nil || got.CheckCRC() != nil || len(got) != len(b) {
		t.Errorf("%d bytes, %v", len(got), err)
	}
}

// Produce and Fetch allocate little, whatever the size of their records.
func TestRequestsKeepTheirAllocationBudget(t *testing.T) {
	if raceEnabled {
		t.Skip("the race detector allocates")
	}
	s := startServer(t)
	c := dial(t, s)
	c.createTopic("t", 1)
	in := make([]byte, 2<<20)
	trip := func(frame []byte) func() {
		return func() {
			c.write(frame)
			if _, err := io.ReadFull(c.conn, in[:4]); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(c.conn, in[:binary.BigEndian.Uint32(in)]); err != nil {
				t.Fatal(err)
			}
		}
	}
	format := kmsg.NewRequestFormatter()
	for _, row := range []struct {
		what   string
		req    kmsg.Request
		budget float64
	}{
		{"small produce", produceRequest(9, "t", 0, -1, batch(t, 1, 100)), 9},
		{"large produce", produceRequest(9, "t", 0, -1, batch(t, 1, 300_000)), 9},
		{"small fetch", fetchRequest(12, "t", 0, 0), 7},
	} {
		if got := testing.AllocsPerRun(200, trip(format.AppendRequest(nil, row.req, 1))); got > row.budget {
			t.Errorf("%s: %v allocations, %v are enough", row.what, got, row.budget)
		}
	}
}

// The partitions in the cache are bounded, whatever the sessions: one that would be too many is not begun, and one that has
// grown beyond the bound is given up.
func TestPartitionsOfFetchSessionsAreBounded(t *testing.T) {
	fs := newFetchSessions(2 * sessionShards)
	now := time.Now()
	request := func(from, to int32) *kmsg.FetchRequest {
		req := kmsg.NewPtrFetchRequest()
		req.Version, req.ReplicaID, req.SessionEpoch = 12, -1, sessionInitial
		topic := kmsg.NewFetchRequestTopic()
		topic.Topic = "t"
		for i := from; i < to; i++ {
			p := kmsg.NewFetchRequestTopicPartition()
			p.Partition = i
			topic.Partitions = append(topic.Partitions, p)
		}
		req.Topics = append(req.Topics, topic)
		return req
	}
	begin := func(req *kmsg.FetchRequest) (*fetch, error) {
		f := &fetch{}
		return f, fs.begin(f, req, now)
	}
	f, err := begin(request(0, sessionPartitions))
	if err != nil || f.session == nil {
		t.Fatalf("no session: %v", err)
	}
	for range sessionShards - 1 { // the other shards
		if f, _ := begin(request(0, 1)); f.session == nil {
			t.Error("no room in an empty shard")
		}
	}
	if f, _ := begin(request(0, 1)); f.session != nil {
		t.Error("a session in a shard that is full")
	}
	more := request(sessionPartitions, sessionPartitions+1)
	more.SessionID, more.SessionEpoch = f.SessionID, 1
	if _, err := begin(more); err != error(kerr.FetchSessionIDNotFound) || fs.get(f.SessionID) != nil {
		t.Errorf("a session that has grown too large: %v", err)
	}
}
