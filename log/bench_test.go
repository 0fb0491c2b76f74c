package log

import (
	"errors"
	"fmt"
	"testing"

	"oncelog/internal/vfs"
	"oncelog/protocol"
)

// benchLog is a log on the disk, closed when the benchmark is over.
func benchLog(b *testing.B) *Log {
	b.Helper()
	l, _, err := Open(vfs.OS, b.TempDir(), Options{Settings: Settings{IndexIntervalBytes: 4096}}, Recovery{}, clock)
	if err != nil {
		b.Fatal(err)
	}
	b.Cleanup(l.Abandon)
	return l
}

// reportPerGiB tells the time that a GiB takes, given the bytes of each round.
func reportPerGiB(b *testing.B, bytes int64) {
	b.ReportMetric(b.Elapsed().Seconds()/float64(b.N)*(1<<30)/float64(bytes), "s/GiB")
}

func BenchmarkAppend(b *testing.B) {
	const most = 1 << 30 // that lies on the disk at a time
	for _, size := range []int{100, 1 << 10, 16 << 10, 128 << 10, 1 << 20} {
		b.Run(fmt.Sprintf("batch=%d", size), func(b *testing.B) {
			l := benchLog(b)
			batch := makeBatch(b, 0, 10, 1000, size)
			b.SetBytes(int64(len(batch)))
			b.ReportAllocs()
			for b.Loop() {
				batch.SetBase(l.End(), 1)
				if _, err := l.Append(batch, clock); err != nil {
					b.Fatal(err)
				}
				if l.Size() > most {
					b.StopTimer()
					if _, err := l.TruncateTo(0, clock); err != nil {
						b.Fatal(err)
					}
					b.StartTimer()
				}
			}
		})
	}
}

// BenchmarkRead reads 64 MiB of batches of 1 KiB: all in their order, or a few KiB from anywhere.
func BenchmarkRead(b *testing.B) {
	l := benchLog(b)
	for l.Size() < 64<<20 {
		mustAppend(b, l, makeBatch(b, l.End(), 1, 1000, 1000))
	}
	for name, tt := range map[string]struct {
		bytes int
		from  func(next int64) int64
	}{
		"sequential": {1 << 20, func(next int64) int64 { return next % l.End() }},
		"random":     {4 << 10, func() func(int64) int64 { rng := seeded(1); return func(int64) int64 { return rng.Int64N(l.End()) } }()},
	} {
		b.Run(name, func(b *testing.B) {
			buf, next, total := make([]byte, tt.bytes), int64(0), int64(0)
			b.ReportAllocs()
			for b.Loop() {
				s, err := l.Read(tt.from(next), tt.bytes, true, l.End())
				if err != nil {
					b.Fatal(err)
				}
				if _, err := s.ReadAt(buf[:s.Len], 0); err != nil {
					b.Fatal(err)
				}
				next, total = next+int64(s.Len/1000), total+int64(s.Len)
				s.Release()
			}
			b.SetBytes(total / int64(b.N))
		})
	}
}

// BenchmarkIndexLookup finds entries by offset and by timestamp, among 65,536 of the last segment, and of one that is closed.
func BenchmarkIndexLookup(b *testing.B) {
	const entries = 1 << 16
	l := benchLog(b)
	for l.active().offsets.entries() < entries {
		mustAppend(b, l, makeBatch(b, l.End(), 1, 1000+l.End(), 4200))
	}
	active := l.active()
	for _, where := range []string{"last", "closed"} {
		if where == "closed" {
			if _, _, err := l.Roll(clock); err != nil {
				b.Fatal(err)
			}
		}
		for _, tt := range []struct {
			name  string
			x     *index
			by    field
			first int64
		}{{"offset", &active.offsets, byOffset, 0}, {"time", &active.times, byTime, 1000}} {
			b.Run(where+"/"+tt.name, func(b *testing.B) {
				rng := seeded(1)
				b.ReportAllocs()
				for b.Loop() {
					if _, _, err := tt.x.floor(tt.by, tt.first+rng.Int64N(active.next.Load())); err != nil {
						b.Fatal(err)
					}
				}
			})
		}
	}
}

// BenchmarkRecover opens a log of 256 MiB in two segments that was not closed, of which nothing is known to be on the disk.
func BenchmarkRecover(b *testing.B) {
	for _, size := range []int{1 << 10, 16 << 10} {
		b.Run(fmt.Sprintf("batch=%d", size), func(b *testing.B) {
			dir, options := b.TempDir(), Options{Settings: Settings{IndexIntervalBytes: 4096, SegmentBytes: 128 << 20}}
			l, _, err := Open(vfs.OS, dir, options, Recovery{}, clock)
			if err != nil {
				b.Fatal(err)
			}
			for l.Size() < 256<<20 {
				mustAppend(b, l, makeBatch(b, l.End(), 10, 1000+l.End(), size))
			}
			bytes, end := l.Size(), l.End()
			l.Abandon()
			b.SetBytes(bytes)
			b.ReportAllocs()
			for b.Loop() {
				l, _, err := Open(vfs.OS, dir, options, Recovery{}, clock)
				if err != nil || l.End() != end {
					b.Fatal(err)
				}
				l.Abandon()
			}
			reportPerGiB(b, bytes)
		})
	}
}

func BenchmarkRewrite(b *testing.B) {
	for _, live := range []int{0, 50, 100} {
		b.Run(fmt.Sprintf("live=%d%%", live), func(b *testing.B) {
			dir := b.TempDir()
			l, _, err := Open(vfs.OS, dir, Options{}, Recovery{}, clock)
			if err != nil {
				b.Fatal(err)
			}
			defer l.Abandon()
			const size = 64 << 20
			for l.Size() < size {
				mustAppend(b, l, makeBatch(b, l.End(), 10, clock.UnixMilli(), 16<<10))
			}
			if _, _, err := l.Roll(clock); err != nil {
				b.Fatal(err)
			}
			b.SetBytes(l.Size())
			b.ReportAllocs()
			for b.Loop() {
				n := 0
				stop := errors.New("not this time")
				_, err := l.Rewrite(Rewriting{From: 0, To: l.End(), IndexIntervalBytes: 4096, BufferBytes: 256 << 10,
					Keep: func(batch protocol.Batch) (protocol.Batch, error) {
						if n++; n%100 < live || live == 100 && n > 1 {
							return batch, nil
						}
						return nil, nil
					}, Finish: func() ([]byte, bool, error) { return nil, false, stop }})
				if err != nil && !errors.Is(err, stop) {
					b.Fatal(err)
				}
			}
			reportPerGiB(b, l.Size())
		})
	}
}
