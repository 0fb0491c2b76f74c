package coordinator_test

import (
	"context"
	"errors"
	"iter"
	"testing"
	"testing/synctest"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"oncelog/coordinator"
	"oncelog/protocol"
)

// TestLoadAnswersInProgress: 14 while it loads; afterwards the effects that the state owes come first.
func TestLoadAnswersInProgress(t *testing.T) {
	b := newBench(t)
	b.mustDo(put("a", "1"))
	b.takeEffects()
	b.host.Unload(0, 1)
	slow := &slowLog{Log: b.log.Next(true), open: make(chan struct{})}
	b.host.Load(0, 2, slow)
	if _, err := b.host.Get(0); !errors.Is(err, kerr.CoordinatorLoadInProgress) {
		t.Error(err)
	}
	if _, more := b.host.Shards(); !more {
		t.Error("no shard is loading")
	}
	close(slow.open)
	if err := b.host.AwaitLoaded(t.Context(), 0); err != nil {
		t.Fatal(err)
	}
	if v := b.mustDo(get("a")); v != "1" {
		t.Error(v)
	}
	if e := b.takeEffects(); e != "a=1" {
		t.Errorf("effects %q", e)
	}
	if loaded, more := b.host.Shards(); len(loaded) != 1 || more {
		t.Error(loaded, more)
	}
}

// TestRecoverWaitsForCommit: effects of a loaded state leave when all of the loaded log is committed.
func TestRecoverWaitsForCommit(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		b := newBench(t)
		b.log.Hold()
		b.shard().Do(put("a", "1"))
		b.host.Unload(0, 1)
		b.load(2) // the log's end is above its high watermark still
		synctest.Wait()
		if e := b.takeEffects(); e != "" {
			t.Errorf("effects %q", e)
		}
		b.log.Commit()
		synctest.Wait()
		if e := b.takeEffects(); e != "a=1" {
			t.Errorf("effects %q", e)
		}
		b.host.Close()
	})
}

// TestBadRecordFailsLoad: nobody is served from half a state.
func TestBadRecordFailsLoad(t *testing.T) {
	b := newBench(t)
	b.host.Unload(0, 1)
	b.log.Put(encoded(t, "a", "1"))
	b.log.Put(encoded(t, "poison", "1"))
	b.host.Load(0, 2, b.log)
	ctx, cancel := context.WithTimeout(t.Context(), 50*time.Millisecond)
	defer cancel()
	if err := b.host.AwaitLoaded(ctx, 0); err == nil {
		t.Error("loaded")
	}
	if _, err := b.host.Get(0); !errors.Is(err, kerr.NotCoordinator) {
		t.Error(err)
	}
}

// slowLog lets nobody read before it is opened.
type slowLog struct {
	coordinator.Log
	open chan struct{}
}

func (l *slowLog) Batches(from int64) iter.Seq2[protocol.Batch, error] {
	<-l.open
	return l.Log.Batches(from)
}

// encoded is a plain batch of one record.
func encoded(t *testing.T, k, v string) protocol.Batch {
	t.Helper()
	b, err := protocol.AppendBatch(nil, protocol.BatchSpec{ProducerID: -1, ProducerEpoch: -1, BaseSequence: -1},
		[]protocol.Record{{Key: []byte(k), Value: []byte(v)}})
	if err != nil {
		t.Fatal(err)
	}
	return b
}
