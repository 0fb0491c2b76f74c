package partition

import (
	"fmt"
	"testing"
	"time"

	"github.com/prometheus/client_golang/prometheus"

	"oncelog/internal/vfs"
	"oncelog/protocol"
)

func benchPartition(b *testing.B) (*node, *Partition) {
	b.Helper()
	n, err := tryOpen(b, vfs.OS, b.TempDir(), topicConfig(b, "retention.ms", "-1"))
	if err != nil {
		b.Fatal(err)
	}
	return n, n.lead()
}

// sequenced renews a batch for the next append: as a client's, with the next sequence.
func sequenced(batch protocol.Batch, sent []byte) AppendRequest {
	copy(batch, sent)
	return AppendRequest{Batch: batch, Acks: -1, ExpectEpoch: -1, Now: start}
}

func BenchmarkAppend(b *testing.B) {
	for _, tt := range []struct {
		name string
		spec spec
	}{
		{"one record", spec{}},
		{"100 records", spec{n: 100}},
		{"100 records lz4", spec{n: 100, codec: protocol.CodecLZ4}},
	} {
		b.Run(tt.name, func(b *testing.B) {
			_, p := benchPartition(b)
			sent := tt.spec.build(b)
			batch := make(protocol.Batch, len(sent))
			b.SetBytes(int64(len(sent)))
			b.ReportAllocs()
			for b.Loop() {
				if _, err := p.Append(sequenced(batch, sent)); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

func BenchmarkTransaction(b *testing.B) {
	_, p := benchPartition(b)
	sent := spec{pid: 5, txn: true}.build(b)
	batch := make(protocol.Batch, len(sent))
	b.ReportAllocs()
	for b.Loop() {
		g, _, err := p.Verify(5, 0, 0, false, start)
		if err != nil {
			b.Fatal(err)
		}
		r := sequenced(batch, sent)
		r.Guard, r.Origin = g, OriginCoordinator // its sequence isn't checked
		if _, err := p.Append(r); err != nil {
			b.Fatal(err)
		}
		if _, err := p.WriteMarker(MarkerRequest{ProducerID: 5, Commit: true, ExpectEpoch: -1, Now: start}); err != nil {
			b.Fatal(err)
		}
	}
}

func BenchmarkRead(b *testing.B) {
	for _, isolation := range []Isolation{ReadUncommitted, ReadCommitted} {
		b.Run(fmt.Sprint(isolation), func(b *testing.B) {
			_, p := benchPartition(b)
			for i := range int32(2000) {
				mustProduce(b, p, spec{pid: 5, seq: i, txn: true})
				if i%10 == 9 {
					endTxn(b, p, 5, 0, i%20 == 9)
				}
			}
			end := p.Offsets().End
			b.ReportAllocs()
			for i := int64(0); b.Loop(); i += 97 {
				res, err := p.Read(ReadRequest{Offset: i % end, MaxBytes: 4096, MinOne: true, Isolation: isolation, CurrentLeaderEpoch: -1, LastFetchedEpoch: -1})
				if err != nil {
					b.Fatal(err)
				}
				res.Slice.Release()
			}
		})
	}
}

// BenchmarkOpen opens 1,000 partitions after a clean stop, and leads them.
func BenchmarkOpen(b *testing.B) {
	dir := b.TempDir()
	n, err := tryOpen(b, vfs.OS, dir, topicConfig(b, "retention.ms", "-1"))
	if err != nil {
		b.Fatal(err)
	}
	for i := range int32(1000) {
		p, err := n.Create("t", protocol.UUID{1}, i, n.topic, start)
		if err != nil {
			b.Fatal(err)
		}
		if err := p.Lead(0, []int32{1}, []int32{1}); err != nil {
			b.Fatal(err)
		}
		if _, err := p.Append(spec{pid: 4}.request(b)); err != nil {
			b.Fatal(err)
		}
	}
	n.close()
	var stop time.Duration
	for b.Loop() {
		n, err := tryOpen(b, vfs.OS, dir, n.topic)
		if err != nil {
			b.Fatal(err)
		}
		for p := range n.All() {
			if err := p.Lead(1, []int32{1}, []int32{1}); err != nil {
				b.Fatal(err)
			}
		}
		before := time.Now()
		n.close()
		stop += time.Since(before)
	}
	b.ReportMetric(float64(stop.Milliseconds())/float64(b.N), "ms-stop/op")
}

// BenchmarkScrape gathers the metrics of 10,000 partitions.
func BenchmarkScrape(b *testing.B) {
	registry := prometheus.NewRegistry()
	s, err := OpenSet(Options{FS: vfs.NewMem(), Dir: "/data", NodeID: 1, Config: brokerConfig(b), Registerer: registry}, start)
	if err != nil {
		b.Fatal(err)
	}
	defer s.Abandon()
	cfg := topicConfig(b)
	for i := range int32(10000) {
		if _, err := s.Create("topic", protocol.UUID{1}, i, cfg, start); err != nil {
			b.Fatal(err)
		}
	}
	b.ReportAllocs()
	for b.Loop() {
		if _, err := registry.Gather(); err != nil {
			b.Fatal(err)
		}
	}
}
