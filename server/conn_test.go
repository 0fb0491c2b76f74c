package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"log/slog"
	"net"
	"runtime"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// logLines collects what a server logs.
type logLines struct {
	mu    sync.Mutex
	lines bytes.Buffer
}

func (l *logLines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.lines.Write(b)
}

// take gives the lines of a level since the last time.
func (l *logLines) take(level string) []string {
	l.mu.Lock()
	defer l.mu.Unlock()
	var found []string
	for line := range strings.Lines(l.lines.String()) {
		if strings.Contains(line, "level="+level) {
			found = append(found, line)
		}
	}
	l.lines.Reset()
	return found
}

func startLogged(t *testing.T, settings ...string) (*Server, *logLines) {
	lines := &logLines{}
	s := startServerWith(t, Options{
		Config: testConfig(t, t.TempDir(), settings...),
		Logger: slog.New(slog.NewTextHandler(lines, &slog.HandlerOptions{Level: slog.LevelInfo})),
	})
	lines.take("INFO")
	return s, lines
}

// A peer that does not speak Kafka loses its connection, with one line that says
// why, and nobody else notices.
func TestHostileFramesCloseTheirConnectionOnly(t *testing.T) {
	s, lines := startLogged(t)
	other := dial(t, s)
	header := func(key, version int16, rest ...byte) []byte {
		b := binary.BigEndian.AppendUint32(nil, uint32(8+2+len(rest)))
		b = binary.BigEndian.AppendUint16(b, uint16(key))
		b = binary.BigEndian.AppendUint16(b, uint16(version))
		b = append(b, 0, 0, 0, 1)
		b = append(b, 0xff, 0xff) // null client id
		return append(b, rest...)
	}
	bomb := header(3, 1, 0x7f, 0xff, 0xff, 0xff)
	for name, c := range map[string]struct {
		bytes []byte
		half  bool // the peer stops writing
		want  string
	}{
		"negative size":     {bytes: []byte{0xff, 0xff, 0xff, 0xfe, 1, 2, 3}, want: "-2 bytes"},
		"zero size":         {bytes: []byte{0, 0, 0, 0}, want: "0 bytes"},
		"huge size":         {bytes: []byte{0x7f, 0xff, 0xff, 0xff}, want: "2147483647 bytes"},
		"above the limit":   {bytes: []byte{0x06, 0x40, 0x00, 0x01}, want: "socket.request.max.bytes"},
		"HTTP":              {bytes: []byte("GET / HTTP/1.1\r\nHost: x\r\n\r\n"), want: "HTTP"},
		"HTTP/2":            {bytes: []byte("PRI * HTTP/2.0\r\n"), want: "HTTP"},
		"TLS":               {bytes: []byte{0x16, 3, 1, 0, 0xa5, 1, 0, 0}, want: "TLS"},
		"header too short":  {bytes: []byte{0, 0, 0, 3, 0, 3, 0}, want: "header"},
		"unknown key":       {bytes: header(9999, 0), want: "9999"},
		"negative key":      {bytes: header(-1, 0), want: "-1"},
		"unserved key":      {bytes: header(4, 0), want: "4"},
		"unserved version":  {bytes: header(0, 2), want: "v2"},
		"version too high":  {bytes: header(3, 99, 0), want: "v99"},
		"negative version":  {bytes: header(3, -1), want: "v-1"},
		"array bomb":        {bytes: bomb, want: "unreadable Metadata"},
		"truncated body":    {bytes: header(12, 0, 0, 5, 'g'), want: "unreadable Heartbeat"},
		"truncated request": {bytes: []byte{0, 0, 1, 0, 0, 3, 0, 1}, half: true, want: "4 of 256"},
		"truncated size":    {bytes: []byte{0, 0}, half: true, want: "2 of the 4"},
	} {
		t.Run(name, func(t *testing.T) {
			lines.take("WARN")
			c2 := dial(t, s)
			c2.write(c.bytes)
			if c.half {
				c2.conn.(*net.TCPConn).CloseWrite()
			}
			c2.expectClosedOrReset()
			got := lines.take("WARN")
			if len(got) != 1 || !strings.Contains(got[0], c.want) {
				t.Errorf("logged %q, want one line with %q", got, c.want)
			}
		})
	}
	if resp := do[*kmsg.ApiVersionsResponse](other, kmsg.NewPtrApiVersionsRequest()); resp.ErrorCode != 0 {
		t.Errorf("other connection: error %d", resp.ErrorCode)
	}
	if n := s.memory.inUse(); n != 0 {
		t.Errorf("requests still hold %d bytes", n)
	}
}

// expectClosedOrReset is expectClosed for a peer that has sent more than was read.
func (c *client) expectClosedOrReset() {
	c.t.Helper()
	c.conn.SetReadDeadline(time.Now().Add(10 * time.Second))
	n, err := c.conn.Read(make([]byte, 1))
	if ne, ok := err.(net.Error); n > 0 || err == nil || ok && ne.Timeout() {
		c.t.Fatalf("%d bytes, error %v: the connection is still open", n, err)
	}
}

// A size field is no reason to allocate what it claims.
func TestMemoryFollowsWhatArrives(t *testing.T) {
	s := startServer(t)
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	for range 20 {
		c := dial(t, s)
		c.write([]byte{0x06, 0, 0, 0, 0, 3}) // claims 100 MB
	}
	waitFor(t, "20 requests to begin", func() bool { return s.memory.inUse() > 0 && s.conns.count() == 20 })
	runtime.ReadMemStats(&after)
	if grown := after.TotalAlloc - before.TotalAlloc; grown > 4<<20 {
		t.Errorf("%d bytes allocated", grown)
	}
	if held := s.memory.inUse(); held > 20*(readBufferSize+8) {
		t.Errorf("%d bytes held", held)
	}
}

// waitFor waits for what has no notification, for the test's sake.
func waitFor(t testing.TB, what string, ok func() bool) {
	t.Helper()
	for deadline := time.Now().Add(20 * time.Second); !ok(); runtime.Gosched() {
		if time.Now().After(deadline) {
			t.Fatalf("waited for %s", what)
		}
	}
}

// withRow replaces a row of the table for the time of a test.
func withRow(t testing.TB, key int16, handle func(*Server, *request) pending) {
	row := *apiByKey[key]
	old := apiByKey[key]
	row.handle = handle
	apiByKey[key] = &row
	t.Cleanup(func() { apiByKey[key] = old })
}

func heartbeat(group string) *kmsg.HeartbeatRequest {
	req := kmsg.NewPtrHeartbeatRequest()
	req.Version, req.Group = 4, group
	return req
}

// Handlers run in the order of the requests while earlier answers are still
// waited for, and the answers leave in that order, whichever is ready first.
func TestAnswersKeepTheOrderWhileWaitsOverlap(t *testing.T) {
	handled := make(chan string, 10)
	gates := map[string]chan struct{}{"a": make(chan struct{}), "b": make(chan struct{})}
	withRow(t, 12, func(s *Server, r *request) pending {
		req := r.body.(*kmsg.HeartbeatRequest)
		handled <- req.Group
		resp := req.ResponseKind()
		if gate := gates[req.Group]; gate != nil {
			return await(func(context.Context) kmsg.Response { <-gate; return resp })
		}
		return answer(resp)
	})
	s := startServer(t)
	c := dial(t, s)
	var ids []int32
	for _, group := range []string{"a", "b", "c"} {
		ids = append(ids, c.send(heartbeat(group)))
	}
	for _, want := range []string{"a", "b", "c"} {
		if got := <-handled; got != want {
			t.Fatalf("handled %s, want %s", got, want)
		}
	}
	close(gates["b"])
	close(gates["a"])
	for _, id := range ids {
		c.receive(heartbeat(""), id)
	}
	// Nothing is queued any more: the reader answers by itself again.
	do[*kmsg.HeartbeatResponse](c, heartbeat("d"))
}

// A queue that is full stops the reader, not the server.
func TestPipelineIsBounded(t *testing.T) {
	gate := make(chan struct{})
	withRow(t, 12, func(s *Server, r *request) pending {
		resp := r.body.ResponseKind()
		return await(func(context.Context) kmsg.Response { <-gate; return resp })
	})
	s := startServer(t)
	c := dial(t, s)
	const n = 4 * maxPipelined
	for range n {
		c.send(heartbeat("g"))
	}
	other := dial(t, s)
	do[*kmsg.ApiVersionsResponse](other, kmsg.NewPtrApiVersionsRequest())
	close(gate)
	for i := range int32(n) {
		c.receive(heartbeat(""), i+1)
	}
}

// Requests that arrive together are answered together.
func TestReadyAnswersShareAWrite(t *testing.T) {
	var c conn
	server, peer := net.Pipe()
	defer peer.Close()
	writes := make(chan int, 10)
	c.server = &Server{metrics: newMetrics(discardRegistry{}, nil), conns: connections{draining: make(chan struct{})}}
	c.server.memory = newMemory(1 << 20)
	c.server.loggers = newLoggers(slog.DiscardHandler)
	c.server.network = c.server.loggers.of(logNetwork)
	c.listener = &listener{name: "PLAINTEXT"}
	c.ctx, c.cancel = context.WithCancel(context.Background())
	c.socket = countingConn{server, writes}
	c.frames = frameReader{conn: server, memory: c.server.memory, maxBytes: 1 << 20, active: func(int) {}, first: true}
	withRow(t, 12, func(s *Server, r *request) pending { return answer(r.body.ResponseKind()) })
	var in []byte
	format := kmsg.NewRequestFormatter()
	for i := range int32(5) {
		in = append(in, format.AppendRequest(nil, heartbeat("g"), i)...)
	}
	done := make(chan struct{})
	go func() { defer close(done); c.run() }()
	go peer.Write(in)
	buf := make([]byte, 1<<10)
	if n, err := peer.Read(buf); err != nil || n != 5*(4+4+1+4+2+1) {
		t.Fatalf("first write has %d bytes, %v", n, err)
	}
	peer.Close()
	<-done
	if n := len(writes); n != 1 {
		t.Errorf("%d writes", n)
	}
}

type countingConn struct {
	net.Conn
	writes chan int
}

func (c countingConn) Write(b []byte) (int, error) {
	c.writes <- len(b)
	return c.Conn.Write(b)
}

// A panic costs its connection, which is told so, and nothing else.
func TestPanicIsAnsweredAndClosesItsConnection(t *testing.T) {
	for name, handle := range map[string]func(*Server, *request) pending{
		"ordered part": func(*Server, *request) pending { panic("broken") },
		"pending":      func(*Server, *request) pending { return await(func(context.Context) kmsg.Response { panic("broken") }) },
	} {
		t.Run(name, func(t *testing.T) {
			s, lines := startLogged(t)
			withRow(t, 12, handle)
			c := dial(t, s)
			resp := do[*kmsg.HeartbeatResponse](c, heartbeat("g"))
			if resp.ErrorCode != kerr.UnknownServerError.Code {
				t.Errorf("error %d", resp.ErrorCode)
			}
			c.expectClosed()
			got := lines.take("ERROR")
			if len(got) != 1 || !strings.Contains(got[0], "conn_test.go") {
				t.Errorf("logged %q, want one line with a stack", got)
			}
			do[*kmsg.ApiVersionsResponse](dial(t, s), kmsg.NewPtrApiVersionsRequest())
		})
	}
}

// refusal answers each thing that a request names.
func TestRefusalNamesEverything(t *testing.T) {
	offsets := kmsg.NewPtrListOffsetsRequest()
	offsets.Version = 7
	topic := kmsg.NewListOffsetsRequestTopic()
	topic.Topic = "t"
	topic.Partitions = append(topic.Partitions, kmsg.NewListOffsetsRequestTopicPartition(), kmsg.NewListOffsetsRequestTopicPartition())
	topic.Partitions[1].Partition = 1
	offsets.Topics = append(offsets.Topics, topic)
	resp := refusal(offsets, kerr.UnknownServerError).(*kmsg.ListOffsetsResponse)
	if got := fmt.Sprintf("%s-%d: %d", resp.Topics[0].Topic, resp.Topics[0].Partitions[1].Partition, resp.Topics[0].Partitions[1].ErrorCode); got != "t-1: -1" {
		t.Errorf("got %s", got)
	}
	producers := kmsg.NewPtrDescribeProducersRequest()
	producers.Topics = append(producers.Topics, kmsg.DescribeProducersRequestTopic{Topic: "t", Partitions: []int32{4}})
	described := refusal(producers, kerr.UnknownServerError).(*kmsg.DescribeProducersResponse)
	if got := described.Topics[0].Partitions[0]; got.Partition != 4 || got.ErrorCode != -1 {
		t.Errorf("got %+v", got)
	}
	produce := produceRequest(9, "t", 2, 0, nil)
	if refusal(produce, kerr.UnknownServerError) != nil {
		t.Error("acks=0 has an answer")
	}
	// Every row of the table has a refusal that can be encoded.
	for _, row := range apiByKey {
		if row == nil {
			continue
		}
		for version := row.min; version <= row.max; version++ {
			req := kmsg.RequestForKey(row.key)
			req.SetVersion(version)
			if d, ok := req.(interface{ Default() }); ok {
				d.Default()
			}
			refusal(req, kerr.UnknownServerError)
		}
	}
}

// max.connections makes others wait, max.connections.per.ip turns them away.
func TestConnectionLimits(t *testing.T) {
	s := startServer(t, "max.connections=2")
	first, second := dial(t, s), dial(t, s)
	do[*kmsg.ApiVersionsResponse](first, kmsg.NewPtrApiVersionsRequest())
	do[*kmsg.ApiVersionsResponse](second, kmsg.NewPtrApiVersionsRequest())
	third := dial(t, s)
	id := third.send(kmsg.NewPtrApiVersionsRequest())
	if n := s.conns.count(); n != 2 {
		t.Errorf("%d connections", n)
	}
	first.conn.Close()
	third.receive(kmsg.NewPtrApiVersionsRequest(), id)

	s = startServer(t, "max.connections.per.ip=1")
	only := dial(t, s)
	do[*kmsg.ApiVersionsResponse](only, kmsg.NewPtrApiVersionsRequest())
	dial(t, s).expectClosedOrReset()
	only.conn.Close()
	waitFor(t, "the connection to go", func() bool { return s.conns.count() == 0 })
	do[*kmsg.ApiVersionsResponse](dial(t, s), kmsg.NewPtrApiVersionsRequest())

	s = startServer(t, "max.connections.per.ip=0", "max.connections.per.ip.overrides=10.0.0.1:7,127.0.0.1:1")
	do[*kmsg.ApiVersionsResponse](dial(t, s), kmsg.NewPtrApiVersionsRequest())
	dial(t, s).expectClosedOrReset()
	s = startServer(t, "max.connections.per.ip.overrides=127.0.0.1:0")
	dial(t, s).expectClosedOrReset()
}

// Who says nothing for connections.max.idle.ms is closed; who waits for an answer
// is not idle.
func TestIdleConnectionsAreClosed(t *testing.T) {
	gate := make(chan struct{})
	withRow(t, 12, func(s *Server, r *request) pending {
		resp := r.body.ResponseKind()
		return await(func(context.Context) kmsg.Response { <-gate; return resp })
	})
	s := startServer(t, "connections.max.idle.ms=100")
	waiting := dial(t, s)
	id := waiting.send(heartbeat("g"))
	idle := dial(t, s)
	idle.expectClosed()
	close(gate)
	waiting.receive(heartbeat("g"), id)
	waiting.expectClosed()
}

// A stop answers what has been asked and lets long polls go.
func TestStopAnswersWhatIsInFlight(t *testing.T) {
	s, err := New(Options{Config: testConfig(t, t.TempDir()), Logger: testLog(t)})
	if err != nil {
		t.Fatal(err)
	}
	if err := s.Start(t.Context()); err != nil {
		t.Fatal(err)
	}
	c := dial(t, s)
	c.createTopic("t", 1)
	poll := fetchRequest(12, "t", 0, 0)
	poll.MaxWaitMillis = 60_000
	id := c.send(poll)
	waitFor(t, "the poll to arrive", func() bool { return s.working() == 1 })
	begin := time.Now()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	stopped := make(chan error, 1)
	go func() { stopped <- s.Stop(ctx) }()
	if resp := c.receive(poll, id).(*kmsg.FetchResponse); resp.ErrorCode != 0 {
		t.Errorf("error %d", resp.ErrorCode)
	}
	c.expectClosed()
	if err := <-stopped; err != nil {
		t.Error(err)
	}
	if took := time.Since(begin); took > 5*time.Second {
		t.Errorf("took %v", took)
	}
}

// working is the number of requests that are handled or waited for.
func (s *Server) working() (n int32) {
	s.conns.mu.Lock()
	defer s.conns.mu.Unlock()
	for c := range s.conns.open {
		n += c.working.Load()
	}
	return n
}
