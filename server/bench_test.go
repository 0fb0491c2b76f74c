package server

import (
	"fmt"
	"io"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// roundTrips sends the same request over and over and reads the answers as bytes.
func roundTrips(b *testing.B, c *client, req kmsg.Request, inFlight int) {
	b.Helper()
	frame := kmsg.NewRequestFormatter(kmsg.FormatterClientID("bench")).AppendRequest(nil, req, 1)
	in := make([]byte, 1<<20)
	receive := func() {
		if _, err := io.ReadFull(c.conn, in[:4]); err != nil {
			b.Fatal(err)
		}
		for n := int(in[0])<<24 | int(in[1])<<16 | int(in[2])<<8 | int(in[3]); n > 0; {
			m, err := c.conn.Read(in[:min(n, len(in))])
			if err != nil {
				b.Fatal(err)
			}
			n -= m
		}
	}
	b.ReportAllocs()
	b.ResetTimer()
	sent := 0
	for i := range b.N {
		for ; sent < min(i+inFlight, b.N); sent++ {
			if _, err := c.conn.Write(frame); err != nil {
				b.Fatal(err)
			}
		}
		receive()
	}
}

func BenchmarkProduce(b *testing.B) {
	for _, size := range []int{100, 16 << 10, 500 << 10} {
		for _, inFlight := range []int{1, 5} {
			b.Run(fmt.Sprintf("size=%d/inflight=%d", size, inFlight), func(b *testing.B) {
				s := startServer(b)
				c := dial(b, s)
				c.createTopic("t", 1, "retention.bytes=100000000")
				b.SetBytes(int64(size))
				roundTrips(b, c, produceRequest(9, "t", 0, -1, batch(b, 1, size)), inFlight)
			})
		}
	}
}

func BenchmarkFetch(b *testing.B) {
	for _, size := range []int{100, 8 << 10, 16 << 10, 32 << 10, 64 << 10, 256 << 10, 900 << 10} {
		b.Run(fmt.Sprintf("size=%d", size), func(b *testing.B) {
			s := startServer(b)
			c := dial(b, s)
			c.createTopic("t", 1)
			c.produce("t", 0, batch(b, 1, size))
			b.SetBytes(int64(size))
			roundTrips(b, c, fetchRequest(12, "t", 0, 0), 1)
		})
	}
}

// BenchmarkIdleSession is a poll of many partitions of which none has anything.
func BenchmarkIdleSession(b *testing.B) {
	s := startServer(b)
	c := dial(b, s)
	c.createTopic("t", 1000)
	var all []int32
	for p := range int32(1000) {
		all = append(all, p)
	}
	b.ReportAllocs()
	b.ResetTimer()
	id := sessionStep(c, 0, 0, fetchRequest(12, "t", 0, all...)).SessionID
	for i := range b.N {
		sessionStep(c, id, int32(i)+1, fetchRequest(12, "t", 0))
	}
}

func BenchmarkApiVersions(b *testing.B) {
	s := startServer(b)
	c := dial(b, s)
	roundTrips(b, c, kmsg.NewPtrApiVersionsRequest(), 1)
}
