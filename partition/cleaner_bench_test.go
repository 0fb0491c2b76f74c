package partition

import (
	"context"
	"encoding/hex"
	"fmt"
	"math/rand/v2"
	"testing"
	"time"

	"oncelog/internal/vfs"
	"oncelog/protocol"
)

// BenchmarkCleaning cleans 64 MiB of records of about 200 bytes, of which some stay.
func BenchmarkCleaning(b *testing.B) {
	for _, bb := range []struct {
		codec protocol.Codec
		live  int // percent
	}{{protocol.CodecNone, 1}, {protocol.CodecNone, 50}, {protocol.CodecNone, 100}} {
		b.Run(fmt.Sprintf("%s/live=%d%%", bb.codec, bb.live), func(b *testing.B) {
			const records, perBatch = 300_000, 50
			b.ReportAllocs()
			bytes := int64(0)
			for b.Loop() {
				b.StopTimer()
				n, err := tryOpen(b, vfs.OS, b.TempDir(), topicConfig(b, "cleanup.policy", "compact", "segment.bytes", "16777216", "min.cleanable.dirty.ratio", "0"))
				if err != nil {
					b.Fatal(err)
				}
				n.SetBrokerConfig(brokerConfig(b, "log.cleaner.threads=0"))
				p := n.lead()
				keys, rng := records*bb.live/100, rand.New(rand.NewPCG(1, 1))
				for i := 0; i < records; i += perBatch {
					s := spec{codec: bb.codec, value: value(rng)}
					for k := range perBatch {
						s.keys = append(s.keys, fmt.Sprint("key ", (i+k)%keys))
					}
					if _, err := p.Append(s.request(b)); err != nil {
						b.Fatal(err)
					}
				}
				d, _, err := p.inspectDirty(start)
				if err != nil {
					b.Fatal(err)
				}
				bytes = d.bytes
				b.StartTimer()
				if _, err := n.shared.cleaner.cleanOnce(context.Background(), p, d, start.Add(time.Second)); err != nil {
					b.Fatal(err)
				}
				b.StopTimer()
				n.Abandon()
				b.StartTimer()
			}
			b.SetBytes(bytes)
			b.ReportMetric(b.Elapsed().Seconds()/float64(b.N)*(1<<30)/float64(bytes), "s/GiB")
		})
	}
}

// value is 180 bytes.
func value(rng *rand.Rand) string {
	var b [90]byte
	for i := range b {
		b[i] = byte(rng.Uint32())
	}
	return hex.EncodeToString(b[:])
}
