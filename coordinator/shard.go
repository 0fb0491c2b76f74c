package coordinator

import (
	"fmt"
	"log/slog"
	"runtime/debug"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"oncelog/protocol"
)

// callerBudget is how many operations the caller of Do works off itself before a goroutine of the shard takes over:
// its own, and the few that its effects may add to an otherwise idle shard.
const callerBudget = 8

// A Tick whose append fails is tried again after tickBackoffMin, then after twice as long up to tickBackoffMax.
const (
	tickBackoffMin = 100 * time.Millisecond
	tickBackoffMax = 10 * time.Second
)

// Shard runs one Machine on one partition, from the time it is loaded until its epoch ends.
type Shard[M Machine] struct {
	Partition int32 // immutable, like Epoch
	Epoch     int32 // leader epoch that the partition was loaded at

	// Immutable.
	log     Log
	codec   protocol.Codec
	logger  *slog.Logger
	effects func(*Shard[M], []any)
	stopped chan struct{} // closed by stop

	watchers sync.WaitGroup // goroutines in watch; only who has set running adds to it

	mu         sync.Mutex
	idle       sync.Cond   // running became false; its lock is mu
	queue      []queued[M] // guarded by mu: from first on, what waits for its turn
	first      int         // guarded by mu
	unanswered calls       // guarded by mu
	running    bool        // guarded by mu: somebody works on the shard and will see what is queued
	closed     error       // guarded by mu: what callers get once the shard has ended

	// Owned by whoever set running.
	machine     M
	end         int64  // one past the last record that the machine has seen
	high        int64  // the newest high watermark that the shard knows of
	uncommitted []held // ascending by end
	watching    bool   // a goroutine waits for the high watermark to move
	timer       *time.Timer
	armed       time.Time // what the timer is set to; zero if it isn't
	backoff     time.Duration
	notBefore   time.Time // no Tick before this, after one whose append failed
}

// queued is one piece of work: an operation, or a wake-up of the shard's own.
type queued[M Machine] struct {
	op   func(m M, now time.Time, to Token) Output
	call *call // of op
	wake wake
}

type wake int8

const (
	wakeRecover wake = iota + 1
	wakeTick
	wakeCommitted
)

// held is what waits for the high watermark to reach end.
type held struct {
	end     int64
	replies []Reply
	effects []any
}

// Do queues op at once, in order; its answer is awaited later. op runs when its turn comes, maybe before Do returns; it
// must not wait for anything. An operation that neither replies nor keeps its token leaves its caller waiting until
// the shard ends.
func (s *Shard[M]) Do(op func(m M, now time.Time, to Token) Output) Pending {
	c := &call{}
	s.mu.Lock()
	if s.closed != nil {
		c.answer(nil, s.closed)
		s.mu.Unlock()
		return Pending{c}
	}
	s.unanswered.add(c)
	if s.enqueueLocked(queued[M]{op: op, call: c}) {
		s.run(callerBudget)
	}
	return Pending{c}
}

// Tell queues an operation that nobody waits for.
func (s *Shard[M]) Tell(op func(m M, now time.Time) Output) {
	s.mu.Lock()
	if s.closed != nil {
		s.mu.Unlock()
		return
	}
	if s.enqueueLocked(queued[M]{op: func(m M, now time.Time, _ Token) Output { return op(m, now) }}) {
		s.run(callerBudget)
	}
}

// wakeUp queues work of the shard's own.
func (s *Shard[M]) wakeUp(w wake) {
	s.mu.Lock()
	if s.closed != nil {
		s.mu.Unlock()
		return
	}
	if s.enqueueLocked(queued[M]{wake: w}) {
		s.run(-1)
	}
}

// enqueueLocked unlocks mu, and tells whether the caller now has to run the shard.
func (s *Shard[M]) enqueueLocked(q queued[M]) bool {
	s.queue = append(s.queue, q)
	run := !s.running
	s.running = true
	s.mu.Unlock()
	return run
}

// run works off the queue. After budget pieces of work (never if negative) it leaves the rest to a goroutine.
func (s *Shard[M]) run(budget int) {
	for {
		s.mu.Lock()
		if s.first == len(s.queue) {
			s.restLocked()
			s.mu.Unlock()
			return
		}
		if budget == 0 {
			s.mu.Unlock()
			go s.run(-1) // wait sees it through running
			return
		}
		q := s.queue[s.first]
		s.queue[s.first] = queued[M]{}
		s.first++
		s.mu.Unlock()
		budget--
		s.step(q)
	}
}

// restLocked leaves the shard to the next one who has work for it.
func (s *Shard[M]) restLocked() {
	s.queue, s.first = s.queue[:0], 0
	if cap(s.queue) > 1024 {
		s.queue = nil
	}
	if s.closed != nil && s.timer != nil {
		s.timer.Stop()
	}
	s.running = false
	s.idle.Broadcast()
}

// step does one piece of work. A panic ends the shard.
func (s *Shard[M]) step(q queued[M]) {
	defer func() {
		if p := recover(); p != nil {
			s.fail(fmt.Errorf("panic: %v", p), slog.String("stack", string(debug.Stack())))
		}
	}()
	now := time.Now()
	switch {
	case q.op != nil:
		s.apply(q.op(s.machine, now, Token{q.call}), q.call, now)
	case q.wake == wakeRecover:
		s.apply(s.machine.Recover(now), nil, now)
	case q.wake == wakeTick:
		s.tick(now)
	case q.wake == wakeCommitted:
		s.watching = false
	}
	s.release()
	s.arm(now)
}

// tick runs what is due, unless the last try failed just now.
func (s *Shard[M]) tick(now time.Time) {
	s.armed = time.Time{}
	if now.Before(s.notBefore) {
		return
	}
	if s.apply(s.machine.Tick(now), nil, now) {
		s.backoff, s.notBefore = 0, time.Time{}
		return
	}
	s.backoff = min(max(2*s.backoff, tickBackoffMin), tickBackoffMax)
	s.notBefore = now.Add(s.backoff)
}

// apply appends and replays what was decided, and holds the rest until it is committed. It tells whether the append went well.
func (s *Shard[M]) apply(out Output, own *call, now time.Time) bool {
	if !out.Batch.Empty() {
		if err := s.append(&out.Batch, now); err != nil {
			s.refuse(&out, own, err)
			return false
		}
	}
	if len(out.Replies)+len(out.Effects) > 0 {
		s.hold(out.Replies, out.Effects)
	}
	for _, next := range out.Next {
		s.apply(next(now), nil, now)
	}
	return true
}

// append writes b and folds it into the machine.
func (s *Shard[M]) append(b *Batch, now time.Time) error {
	encoded, err := b.encode(s.codec, now)
	if err != nil {
		return err
	}
	last, err := s.log.Append(AppendRequest{Batch: encoded, Guard: b.Guard, TransactionVersion: b.TransactionVersion, Now: now})
	if err != nil {
		return appendError(err)
	}
	s.end = last + 1
	if err := b.replay(s.machine, last, now); err != nil {
		panic(fmt.Sprintf("machine refuses what it wrote at offset %d: %v", last, err))
	}
	return nil
}

// refuse gives the answers of an operation whose append failed.
func (s *Shard[M]) refuse(out *Output, own *call, err error) {
	if out.Failed != nil {
		s.hold(out.Failed(err), nil)
		return
	}
	replies := make([]Reply, 0, len(out.Replies)+1)
	for _, r := range out.Replies {
		replies = append(replies, Reply{To: r.To, Err: err})
	}
	if own != nil {
		replies = append(replies, Reply{To: Token{own}, Err: err})
	}
	s.hold(replies, nil)
}

// hold queues replies and effects of an operation that could see all records before end.
func (s *Shard[M]) hold(replies []Reply, effects []any) {
	s.uncommitted = append(s.uncommitted, held{s.end, replies, effects})
}

// release lets go what is committed by now.
func (s *Shard[M]) release() {
	if len(s.uncommitted) == 0 {
		return
	}
	var moved <-chan struct{}
	if s.uncommitted[len(s.uncommitted)-1].end > s.high {
		s.high, moved = s.log.Committed()
	}
	n := 0
	for n < len(s.uncommitted) && s.uncommitted[n].end <= s.high {
		s.deliver(&s.uncommitted[n])
		s.uncommitted[n] = held{}
		n++
	}
	if n == len(s.uncommitted) {
		s.uncommitted = s.uncommitted[:0]
		return
	}
	s.uncommitted = s.uncommitted[n:]
	if s.watching {
		return
	}
	if s.lost(moved) {
		s.stop()
		return
	}
	s.watching = true
	s.watchers.Go(func() { s.watch(moved) })
}

// lost tells whether the log is no longer led: nothing will be committed any more, and its channel is closed for good.
func (s *Shard[M]) lost(moved <-chan struct{}) bool {
	for range 2 {
		select {
		case <-moved:
		default:
			return false
		}
		var high int64
		if high, moved = s.log.Committed(); high > s.high {
			return false // closed because of that; watch comes back at once
		}
	}
	return true
}

// watch wakes the shard when the high watermark has moved. stop ends it.
func (s *Shard[M]) watch(moved <-chan struct{}) {
	select {
	case <-moved:
		s.wakeUp(wakeCommitted)
	case <-s.stopped:
	}
}

// deliver answers callers and hands out effects, unless the shard has ended.
func (s *Shard[M]) deliver(h *held) {
	s.mu.Lock()
	ended := s.closed != nil
	if !ended {
		for _, r := range h.replies {
			if r.To.c != nil {
				s.unanswered.remove(r.To.c)
			}
		}
	}
	s.mu.Unlock()
	if ended {
		return
	}
	for _, r := range h.replies {
		if r.To.c != nil {
			r.To.c.answer(r.Value, r.Err)
		}
	}
	if len(h.effects) > 0 {
		s.effects(s, h.effects)
	}
}

// arm sets the timer to what the machine waits for. A timer that is due earlier stays: deadlines move away with nearly
// every operation, and one Tick for nothing costs less.
func (s *Shard[M]) arm(now time.Time) {
	due := s.machine.Deadline()
	if due.IsZero() {
		return
	}
	if due.Before(s.notBefore) {
		due = s.notBefore
	}
	if !s.armed.IsZero() && !due.Before(s.armed) {
		return
	}
	s.armed = due
	if s.timer == nil {
		s.timer = time.AfterFunc(due.Sub(now), func() { s.wakeUp(wakeTick) })
		return
	}
	s.timer.Reset(due.Sub(now))
}

// fail ends a shard that can't go on.
func (s *Shard[M]) fail(err error, facts ...any) {
	s.logger.Error("coordinator partition went offline", append([]any{slog.Any("error", err)}, facts...)...)
	s.stop()
}

// stop ends the shard and answers whoever waits. What runs just now runs to its end, unheard.
func (s *Shard[M]) stop() {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed != nil {
		return
	}
	s.closed = fmt.Errorf("partition %d, epoch %d: %w", s.Partition, s.Epoch, kerr.NotCoordinator)
	close(s.stopped)
	clear(s.queue)
	s.queue, s.first = s.queue[:0], 0
	for c := s.unanswered.head; c != nil; c = c.next {
		c.answer(nil, s.closed)
	}
	s.unanswered.head = nil
	if !s.running && s.timer != nil {
		s.timer.Stop()
	}
}

// wait returns when nobody works on a stopped shard.
func (s *Shard[M]) wait() {
	s.mu.Lock()
	for s.running {
		s.idle.Wait()
	}
	s.mu.Unlock()
	s.watchers.Wait()
}

// Ended tells whether the shard has lost its partition: nothing will be heard of it any more.
func (s *Shard[M]) Ended() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.closed != nil
}

// rested tells whether nobody works on the shard just now.
func (s *Shard[M]) rested() bool {
	s.mu.Lock()
	defer s.mu.Unlock()
	return !s.running
}
