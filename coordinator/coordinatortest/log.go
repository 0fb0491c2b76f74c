package coordinatortest

import (
	"iter"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"oncelog/coordinator"
	"oncelog/protocol"
)

// Log is a coordinator.Log in memory. The zero value is an empty log that commits what is appended at once.
type Log struct {
	mu      sync.Mutex
	batches []protocol.Batch
	end     int64
	high    int64
	held    bool
	fault   error
	changed chan struct{} // stays closed once deposed
	deposed bool
}

// Append implements coordinator.Log.
func (l *Log) Append(a coordinator.AppendRequest) (lastOffset int64, err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.fault != nil {
		return -1, l.fault
	}
	b := slices.Clone(a.Batch)
	b.SetBase(l.end, 0)
	l.batches = append(l.batches, b)
	l.end = b.Header().LastOffset() + 1
	if !l.held {
		l.commitLocked()
	}
	return l.end - 1, nil
}

// Committed implements coordinator.Log.
func (l *Log) Committed() (highWatermark int64, changed <-chan struct{}) {
	l.mu.Lock()
	defer l.mu.Unlock()
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	return l.high, l.changed
}

// Batches implements coordinator.Log.
func (l *Log) Batches(from int64) iter.Seq2[protocol.Batch, error] {
	l.mu.Lock()
	batches := slices.Clone(l.batches)
	l.mu.Unlock()
	return func(yield func(protocol.Batch, error) bool) {
		for _, b := range batches {
			if b.Header().LastOffset() >= from && !yield(b, nil) {
				return
			}
		}
	}
}

// Hold keeps the high watermark where it is until Commit.
func (l *Log) Hold() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = true
}

// Commit raises the high watermark to the end, and lets it follow from now on.
func (l *Log) Commit() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.held = false
	l.commitLocked()
}

func (l *Log) commitLocked() {
	l.high = l.end
	if l.changed != nil && !l.deposed {
		close(l.changed)
		l.changed = nil
	}
}

// Fail makes all appends fail with err; nil ends that.
func (l *Log) Fail(err error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fault = err
}

// Depose ends the leadership: all appends fail and nothing is committed any more.
func (l *Log) Depose() {
	l.mu.Lock()
	defer l.mu.Unlock()
	l.fault = kerr.NotLeaderForPartition
	l.held = true
	if l.changed == nil {
		l.changed = make(chan struct{})
	}
	if !l.deposed {
		close(l.changed)
	}
	l.deposed = true
}

// Next is the same log as its next leader sees it: with what was committed, and what wasn't too if keep says so.
func (l *Log) Next(keep bool) *Log {
	l.mu.Lock()
	defer l.mu.Unlock()
	next := &Log{}
	for _, b := range l.batches {
		if keep || b.Header().LastOffset() < l.high {
			next.batches = append(next.batches, b)
			next.end = b.Header().LastOffset() + 1
		}
	}
	next.high = next.end
	return next
}

// Put adds a batch as it is, as a test's history.
func (l *Log) Put(b protocol.Batch) {
	_, err := l.Append(coordinator.AppendRequest{Batch: b, Now: time.Now()})
	if err != nil {
		panic(err)
	}
}
