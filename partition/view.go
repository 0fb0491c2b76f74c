package partition

import (
	"context"
	"fmt"
	"slices"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
)

// view is what readers see of a partition, and who waits for it to change. Its lock is held for moments only, and taken
// after the partition's.
type view struct {
	sync.Mutex
	offsets Offsets

	durable    int64 // the log is durable up to there
	err        error // not nil: offline or deleted, for good
	leading    bool
	epochStart int64 // log end when the current epoch began
	replicas   int   // how many are assigned
	isr        int   // how many are in sync
	alone      bool  // this node is the only one in sync: the high watermark is the log end

	watchers []Waiter
	awaiting []awaiting
	moved    chan struct{} // closed at the next move of the high watermark; nil if nobody asked
}

// awaiting is one AwaitHW or AwaitDurable.
type awaiting struct {
	awaited
	done chan struct{}
}

// awaited is an offset that the high watermark, or what is durable, shall reach.
type awaited struct {
	offset  int64
	durable bool
}

func (v *view) reachedLocked(a awaited) bool {
	if a.durable {
		return a.offset <= v.durable
	}
	return a.offset <= v.offsets.HW
}

// wakeLocked tells everybody who waits for a change. No send blocks.
func (v *view) wakeLocked(highWatermarkMoved bool) {
	for _, w := range v.watchers {
		select {
		case w <- struct{}{}:
		default: // it will look anyway
		}
	}
	if highWatermarkMoved && v.moved != nil {
		close(v.moved)
		v.moved = nil
	}
}

// releaseLocked lets go who awaits what has come, or can't come any more.
func (v *view) releaseLocked() {
	v.awaiting = slices.DeleteFunc(v.awaiting, func(a awaiting) bool {
		done := v.reachedLocked(a.awaited) || v.err != nil || !v.leading
		if done {
			close(a.done)
		}
		return done
	})
}

func (v *view) lead(epoch int32, end int64, replicas, isr int, alone bool) {
	v.Lock()
	defer v.Unlock()
	if !v.leading || epoch > v.offsets.LeaderEpoch {
		v.epochStart = end
	}
	v.leading, v.offsets.LeaderEpoch = true, epoch
	v.replicas, v.isr, v.alone = replicas, isr, alone
	v.wakeLocked(false)
}

func (v *view) resign(epoch int32) {
	v.Lock()
	defer v.Unlock()
	if v.leading && v.offsets.LeaderEpoch <= epoch {
		v.leading, v.alone = false, false
		v.wakeLocked(true)
		v.releaseLocked()
	}
}

// close ends everything; the first error stays. It reports whether this was it.
func (v *view) close(err error) bool {
	v.Lock()
	defer v.Unlock()
	if v.err != nil {
		return false
	}
	v.err, v.leading, v.alone = err, false, false
	v.wakeLocked(true)
	v.releaseLocked()
	return true
}

// leader gives the view, if this node leads at the epoch that is asked for (-1: any).
func (v *view) leader(epoch int32) (Offsets, error) {
	v.Lock()
	defer v.Unlock()
	switch {
	case v.err != nil:
		return v.offsets, v.err
	case !v.leading:
		return v.offsets, kerr.NotLeaderForPartition
	case epoch >= 0 && epoch != v.offsets.LeaderEpoch:
		return v.offsets, fmt.Errorf("led at epoch %d, expected %d: %w", v.offsets.LeaderEpoch, epoch, kerr.NotLeaderForPartition)
	}
	return v.offsets, nil
}

// enoughInSync is the answer to acks=-1 before the append.
func (v *view) enoughInSync(minInsyncReplicas int32) error {
	v.Lock()
	defer v.Unlock()
	if need := min(int(minInsyncReplicas), v.replicas); v.isr < need {
		return fmt.Errorf("%d replicas in sync, %d needed: %w", v.isr, need, kerr.NotEnoughReplicas)
	}
	return nil
}

// reader gives the view to a read that comes with a leader epoch, which is checked if check is set.
func (v *view) reader(epoch int32, check, anyReplica bool) (o Offsets, epochStart int64, err error) {
	v.Lock()
	defer v.Unlock()
	o, epochStart = v.offsets, v.epochStart
	switch {
	case v.err != nil:
		err = v.err
	case check && epoch > o.LeaderEpoch:
		err = fmt.Errorf("epoch %d, have %d: %w", epoch, o.LeaderEpoch, kerr.UnknownLeaderEpoch)
	case check && epoch < o.LeaderEpoch:
		err = fmt.Errorf("epoch %d, have %d: %w", epoch, o.LeaderEpoch, kerr.FencedLeaderEpoch)
	case !v.leading && !anyReplica:
		err = kerr.NotLeaderForPartition
	}
	return o, epochStart, err
}

// Watch has the waiter poked at every change of the offsets, the leadership or the state, until Unwatch. Look at the
// partition after Watch: changes before it poke nobody.
func (p *Partition) Watch(w Waiter) {
	p.view.Lock()
	defer p.view.Unlock()
	p.view.watchers = append(p.view.watchers, w)
}

// Unwatch ends Watch. The room for a waiter stays: a long poll comes again.
func (p *Partition) Unwatch(w Waiter) {
	p.view.Lock()
	defer p.view.Unlock()
	if i := slices.Index(p.view.watchers, w); i >= 0 {
		last := len(p.view.watchers) - 1
		p.view.watchers[i], p.view.watchers[last] = p.view.watchers[last], nil
		p.view.watchers = p.view.watchers[:last]
	}
}

// Committed gives the high watermark, and a channel that is closed when it moves or the leadership ends.
func (p *Partition) Committed() (highWatermark int64, changed <-chan struct{}) {
	p.view.Lock()
	defer p.view.Unlock()
	if p.view.moved == nil {
		p.view.moved = make(chan struct{})
		if p.view.err != nil {
			close(p.view.moved)
		}
	}
	return p.view.offsets.HW, p.view.moved
}

// AwaitHW returns when the high watermark has reached the offset. It fails when ctx ends, and with
// NOT_LEADER_OR_FOLLOWER or the partition's own error when it can no longer happen here.
func (p *Partition) AwaitHW(ctx context.Context, offset int64) error {
	return p.await(ctx, awaited{offset: offset})
}

// AwaitDurable returns when everything below the offset is durable, which somebody has to have asked for (Appended.Flush). It
// fails as AwaitHW does.
func (p *Partition) AwaitDurable(ctx context.Context, offset int64) error {
	return p.await(ctx, awaited{offset: offset, durable: true})
}

func (p *Partition) await(ctx context.Context, a awaited) error {
	for {
		done, err := p.view.await(a)
		if done == nil {
			return err
		}
		select {
		case <-done:
		case <-ctx.Done():
			p.view.giveUp(done)
			return ctx.Err()
		}
	}
}

// await gives a channel to wait on, nil if the answer is known.
func (v *view) await(a awaited) (chan struct{}, error) {
	v.Lock()
	defer v.Unlock()
	switch {
	case v.err != nil:
		return nil, v.err
	case !v.leading:
		return nil, kerr.NotLeaderForPartition
	case v.reachedLocked(a):
		return nil, nil
	}
	done := make(chan struct{})
	v.awaiting = append(v.awaiting, awaiting{a, done})
	return done, nil
}

func (v *view) giveUp(done chan struct{}) {
	v.Lock()
	defer v.Unlock()
	v.awaiting = slices.DeleteFunc(v.awaiting, func(a awaiting) bool { return a.done == done })
}
