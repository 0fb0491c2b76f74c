package log

import (
	"bytes"
	"fmt"
	"strings"
	"sync"
	"testing"

	"oncelog/internal/vfs"
	"oncelog/protocol"
)

// told is a Replay that keeps what it is told.
type told struct {
	from    int64
	others  []string
	below   []int64 // base offsets of the batches that could be read at Begin
	batches []protocol.Batch
	ends    []Segment
	nils    int

	read, own int64 // bytes read of .log files, and what of that was for below
}

func (r *told) Begin(l *Log, others []string, from int64) error {
	r.from, r.others = from, others
	before := r.read
	defer func() { r.own = r.read - before }()
	for b, err := range l.Batches(l.First()) {
		if err != nil {
			return err
		}
		r.below = append(r.below, b.Header().BaseOffset)
	}
	return nil
}

func (r *told) Batch(_ int64, h *protocol.BatchHeader, b protocol.Batch) error {
	if b == nil {
		r.nils++
	}
	r.batches = append(r.batches, bytes.Clone(b))
	return nil
}

func (r *told) End(s Segment) error {
	r.ends = append(r.ends, s)
	return nil
}

func advance(l *Log) error {
	written, err := l.WriteIndexes()
	if err == nil {
		err = l.Advance(l.End(), written)
	}
	return err
}

// Advance runs beside appends: what they add to the indexes, or begin, is none of its business.
func TestAdvanceBesideAppends(t *testing.T) {
	l, _ := mustOpen(t, newMem(t), Settings{SegmentBytes: 4000, IndexIntervalBytes: 1000}, Recovery{})
	var owner sync.Mutex
	done := make(chan struct{})
	var running sync.WaitGroup
	running.Go(func() {
		for {
			select {
			case <-done:
				return
			default:
			}
			owner.Lock()
			end := l.End()
			written, err := l.WriteIndexes()
			owner.Unlock()
			if err == nil {
				err = l.Advance(end, written)
			}
			if err != nil || l.Durable() < end {
				t.Errorf("%d of %d: %v", l.Durable(), end, err)
				return
			}
		}
	})
	rng := seeded(3)
	for range 5000 {
		owner.Lock()
		mustAppend(t, l, makeBatch(t, l.End(), 1, 1000+l.End(), 70+rng.IntN(300)))
		owner.Unlock()
	}
	close(done)
	running.Wait()
	if l.RecoveryPoint() < l.End()/2 {
		t.Errorf("recovery point %d of %d", l.RecoveryPoint(), l.End())
	}
}

// counted gives a file system that counts the bytes read of .log files.
func counted(m *vfs.Mem, read *int64) vfs.FS {
	return vfs.Inject(m, func(op vfs.Op) error {
		if op.Kind == vfs.OpRead && strings.HasSuffix(op.Name, ExtLog) {
			*read += int64(op.Len)
		}
		return nil
	})
}

// A recovery reads what lies behind the recovery point, once, and tells its owner of it; the indexes come out as they do when all is read.
func TestRecoveryReadsWhatIsBehindThePoint(t *testing.T) {
	m := newMem(t)
	settings := Settings{SegmentBytes: 3 << 20, IndexIntervalBytes: 4096}
	l, _ := mustOpen(t, m, settings, Recovery{})
	rng := seeded(1)
	var batches []protocol.Batch
	add := func(bytes int64) {
		for until := l.Size() + bytes; l.Size() < until; {
			b := makeBatch(t, l.End(), 1+rng.IntN(3), clock.UnixMilli()+rng.Int64N(1<<20), 100+rng.IntN(30_000))
			mustAppend(t, l, b)
			batches = append(batches, b)
		}
	}
	add(5 << 20)
	if err := advance(l); err != nil {
		t.Fatal(err)
	}
	point, size := l.RecoveryPoint(), l.Size()
	if point != l.End()-1 {
		t.Fatalf("recovery point %d of %d", point, l.End())
	}
	add(2 << 20)
	total, end := l.Size(), l.End()
	l.Abandon()
	const slack = 3*copyLen + 4096 // the last batch, the way to it, heads
	indexes := map[int64]string{}
	for _, tt := range []struct{ point, bytes int64 }{{0, total}, {point, total - size}} {
		disk := m.CrashClone(nil)
		var r told
		got, report := mustOpen(t, counted(disk, &r.read), settings, Recovery{RecoveryPoint: tt.point, Replay: &r})
		// Each scanned segment's head and the block at its end are looked at besides.
		if most := tt.bytes + slack + int64(len(report.Scanned))*blockLen; r.read-r.own > most || r.read-r.own < tt.bytes {
			t.Errorf("from %d: read %d bytes, %d lie behind", tt.point, r.read-r.own, tt.bytes)
		}
		if got.End() != end {
			t.Errorf("end %d, want %d", got.End(), end)
		}
		n := len(batches) - len(r.batches)
		if n < 0 || r.nils > 0 || len(r.below) != n || r.from != batches[n].Header().BaseOffset || fmt.Sprint(r.ends[len(r.ends)-1].Next) != fmt.Sprint(end) {
			t.Fatalf("told of %d batches from %d on, %d below, %+v", len(r.batches), r.from, len(r.below), r.ends)
		}
		checkBatches(t, r.batches, batches[n:])
		checkIndexes(t, disk, got, "recovered")
		if err := got.Close(); err != nil {
			t.Fatal(err)
		}
		for _, name := range list(t, disk) {
			if !strings.HasSuffix(name, ExtLog) {
				indexes[tt.point] += fmt.Sprintf("%s %x\n", name, get(t, disk, "/p/"+name))
			}
		}
	}
	if indexes[0] != indexes[point] {
		t.Errorf("indexes\n%s\nwant\n%s", indexes[point], indexes[0])
	}
}

// Where the index doesn't lead to the recovery point the segment is scanned whole.
func TestRecoveryDoesWithoutTheIndex(t *testing.T) {
	settings := Settings{IndexIntervalBytes: 300}
	for name, damage := range map[string]func(m *vfs.Mem){
		"missing":            func(m *vfs.Mem) { m.Remove("/p/" + FileName(0, ExtIndex)) },
		"time index missing": func(m *vfs.Mem) { m.Remove("/p/" + FileName(0, ExtTimeIndex)) },
		"zeros":              func(m *vfs.Mem) { put(t, m, "/p/"+FileName(0, ExtIndex), make([]byte, 80)) },
		"preallocated": func(m *vfs.Mem) {
			put(t, m, "/p/"+FileName(0, ExtIndex), append(get(t, m, "/p/"+FileName(0, ExtIndex)), make([]byte, 80)...))
		},
		"the log is too short": func(m *vfs.Mem) { put(t, m, "/p/"+FileName(0, ExtLog), get(t, m, "/p/"+FileName(0, ExtLog))[:2000]) },
		"a wrong position": func(m *vfs.Mem) {
			b := get(t, m, "/p/"+FileName(0, ExtIndex))
			b[len(b)-1] ^= 1
			put(t, m, "/p/"+FileName(0, ExtIndex), b)
		},
	} {
		t.Run(name, func(t *testing.T) {
			m := newMem(t)
			l, _ := mustOpen(t, m, settings, Recovery{})
			for i := range 40 {
				mustAppend(t, l, makeBatch(t, l.End(), 1, clock.UnixMilli()+int64(i), 150))
			}
			if err := advance(l); err != nil {
				t.Fatal(err)
			}
			point, want := l.RecoveryPoint(), collect(t, l, 0)
			l.Abandon()
			damage(m)
			l, _ = mustOpen(t, m, settings, Recovery{RecoveryPoint: point})
			got := collect(t, l, 0)
			checkBatches(t, got, want[:len(got)])
			checkIndexes(t, m, l, name)
			if short := name == "the log is too short"; short != (len(got) < len(want)) {
				t.Errorf("%d batches of %d", len(got), len(want))
			}
		})
	}
}
