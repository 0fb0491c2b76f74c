package server

import (
	"bytes"
	"context"
	"encoding/binary"
	"fmt"
	"io"
	"net"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/internal/vfs"
)

// callCounts are the calls of the operating system that requests are about.
type callCounts struct {
	reads, writes         atomic.Int64 // of sockets; a read that has to wait counts once
	fileReads, fileWrites atomic.Int64
	otherFileCalls        atomic.Int64
}

func (n *callCounts) String() string {
	return fmt.Sprintf("socket %d/%d file %d/%d other %d", n.reads.Load(), n.writes.Load(), n.fileReads.Load(), n.fileWrites.Load(), n.otherFileCalls.Load())
}

func (n *callCounts) reset() {
	for _, v := range []*atomic.Int64{&n.reads, &n.writes, &n.fileReads, &n.fileWrites, &n.otherFileCalls} {
		v.Store(0)
	}
}

// inject counts what is done with partitions' files.
func (n *callCounts) inject(op vfs.Op) error {
	if !strings.Contains(op.Name, "-0/") || strings.Contains(op.Name, "checkpoint") {
		return nil // the metadata's, and what is written now and then
	}
	switch op.Kind {
	case vfs.OpRead:
		n.fileReads.Add(1)
	case vfs.OpWrite:
		n.fileWrites.Add(1)
	default:
		n.otherFileCalls.Add(1)
	}
	return nil
}

type countedListener struct {
	net.Listener
	counts *callCounts
}

func (l countedListener) Accept() (net.Conn, error) {
	conn, err := l.Listener.Accept()
	return countedConn{conn, l.counts}, err
}

type countedConn struct {
	net.Conn
	counts *callCounts
}

func (c countedConn) Read(b []byte) (int, error) {
	n, err := c.Conn.Read(b)
	c.counts.reads.Add(1)
	return n, err
}

func (c countedConn) Write(b []byte) (int, error) {
	c.counts.writes.Add(1)
	return c.Conn.Write(b)
}

// A request is read by one call, answered by one, and takes one more for the file that it is about. Those that come together share what is for
// the socket.
func TestRequestsTakeFewSystemCalls(t *testing.T) {
	var counts callCounts
	s := startServerWith(t, Options{
		Config: testConfig(t, t.TempDir(), "offsets.topic.num.partitions=1"),
		FS:     vfs.Inject(vfs.OS, counts.inject),
		Listen: func(ctx context.Context, network, address string) (net.Listener, error) {
			l, err := new(net.ListenConfig).Listen(ctx, network, address)
			return countedListener{l, &counts}, err
		},
	})
	c := dial(t, s)
	c.createTopic("t", 1)
	c.findCoordinator()
	commit := kmsg.NewPtrOffsetCommitRequest()
	commit.Version, commit.Group, commit.Generation = 8, "g", -1
	commit.Topics = []kmsg.OffsetCommitRequestTopic{{Topic: "t", Partitions: []kmsg.OffsetCommitRequestTopicPartition{{Offset: 1}}}}
	beat := kmsg.NewPtrHeartbeatRequest()
	beat.Version, beat.Group, beat.MemberID = 4, "g", "m"
	produce := produceRequest(9, "t", 0, -1, batch(t, 1, 100))
	const last = 17 // of what is produced below; what is further back has to be searched for
	poll := fetchRequest(12, "t", last, 0)
	in := make([]byte, 64<<10)
	trip := func(frame []byte, answers int) {
		c.write(frame)
		for range answers {
			if _, err := io.ReadFull(c.conn, in[:4]); err != nil {
				t.Fatal(err)
			}
			if _, err := io.ReadFull(c.conn, in[:binary.BigEndian.Uint32(in)]); err != nil {
				t.Fatal(err)
			}
		}
	}
	for _, row := range []struct {
		what  string
		req   kmsg.Request
		times int
		want  string
	}{
		{"produce", produce, 1, "socket 1/1 file 0/1 other 0"},
		{"produces together", produce, 8, "socket 1/1 file 0/8 other 0"},
		{"fetch", poll, 1, "socket 1/1 file 1/0 other 0"},
		{"fetches together", poll, 8, "socket 1/1 file 8/0 other 0"},
		{"commit", commit, 1, "socket 1/1 file 0/1 other 0"},
		{"commits together", commit, 8, "socket 1/1 file 0/8 other 0"},
		{"heartbeat", beat, 1, "socket 1/1 file 0/0 other 0"},
		{"heartbeats together", beat, 8, "socket 1/1 file 0/0 other 0"},
	} {
		frames := bytes.Repeat(kmsg.NewRequestFormatter().AppendRequest(nil, row.req, 1), row.times)
		trip(frames, row.times) // opens what is needed
		counts.reset()
		trip(frames, row.times)
		if got := counts.String(); got != row.want {
			t.Errorf("%s: %s, want %s", row.what, got, row.want)
		}
	}
}
