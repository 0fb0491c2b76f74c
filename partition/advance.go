package partition

import (
	"cmp"
	"math"
	"slices"
	"sync"
	"sync/atomic"
)

// An advancer keeps what a recovery of its set would read again within log.recovery.max.bytes. Rounds begin when a quarter of that has been
// appended, advance the recovery points of those partitions that are furthest behind until a quarter is left, and write them down. So at most half is
// behind when a round begins; clients whose records come while the disk is busy with it wait when they make up a third quarter. The last is for what
// comes together with the record that is one too many, and for coordinators, who never wait.
type advancer struct {
	limit    atomic.Int64 // log.recovery.max.bytes
	appended atomic.Int64 // bytes since the last round began
	running  atomic.Bool  // a round is, or will be
	rounds   crew
	round    func()

	mu    sync.Mutex
	moved sync.Cond // a round begins or ends; its lock is mu
}

func newAdvancer() *advancer {
	a := &advancer{rounds: crew{limit: 1}}
	a.moved.L = &a.mu
	return a
}

func (a *advancer) quarter() int64 { return max(a.limit.Load()/4, 1) }

// note counts what was appended.
func (a *advancer) note(bytes int64) {
	if a.appended.Add(bytes) >= a.quarter() {
		a.soon()
	}
}

// admit waits as long as the disk is too far behind.
func (a *advancer) admit() {
	if !a.full() {
		return
	}
	a.mu.Lock()
	defer a.mu.Unlock()
	for a.full() {
		a.moved.Wait()
	}
}

func (a *advancer) full() bool { return a.running.Load() && a.appended.Load() >= a.quarter() }

// soon has a round begin.
func (a *advancer) soon() {
	if a.running.Load() || a.running.Swap(true) {
		return
	}
	a.rounds.add(func() {
		a.tell(func() { a.appended.Store(0) })
		a.round()
		a.tell(func() { a.running.Store(false) })
		a.note(0) // what came meanwhile
	})
}

// close waits for a round that is going on. There is none any more, and nobody waits.
func (a *advancer) close() {
	a.rounds.close()
	a.tell(func() { a.limit.Store(math.MaxInt64) })
}

// tell does what those who wait are to see.
func (a *advancer) tell(do func()) {
	a.mu.Lock()
	defer a.mu.Unlock()
	do()
	a.moved.Broadcast()
}

// advance is one round.
func (s *Set) advance() {
	type lag struct {
		p      *Partition
		behind int64
	}
	var lags []lag
	rest := int64(0)
	for p := range s.All() {
		p.mu.Lock()
		behind := p.mu.behind
		p.mu.Unlock()
		if behind > 0 && p.Err() == nil {
			lags = append(lags, lag{p, behind})
			rest += behind
		}
	}
	slices.SortFunc(lags, func(a, b lag) int { return cmp.Compare(b.behind, a.behind) })
	n := 0
	for ; n < len(lags) && rest > s.shared.advancer.quarter(); n++ {
		rest -= lags[n].behind
	}
	if n == 0 {
		return
	}
	each(slices.Values(lags[:n]), syncsAtOnce, func(l lag) { _ = l.p.sync(true) }) // it logs its error
	s.logged(s.checkpointPoints)()
}

// withinMax is how many snapshots within segments a partition keeps: the one that the checkpoint of recovery points has, and the one that the next will.
const withinMax = 2

// prepareAdvanceLocked writes what a recovery from the log's end would begin with; written is for Log.Advance.
func (p *Partition) prepareAdvanceLocked(end int64) (written bool, err error) {
	if err := p.loadLocked(); err != nil {
		return false, err
	}
	if written, err = p.log.WriteIndexes(); err != nil {
		return written, err
	}
	p.mu.behind = 0
	n := len(p.mu.snapshots)
	p.snapshotLocked(end)
	if len(p.mu.snapshots) == n {
		return written, nil // there is one
	}
	p.mu.within = append(p.mu.within, end)
	for len(p.mu.within) > withinMax {
		offset := p.mu.within[0]
		p.mu.within = p.mu.within[1:]
		if floorBase(p.log, offset) == offset {
			continue // a segment has begun there
		}
		if err := p.dropSnapshot(offset); err != nil {
			return written, err
		}
	}
	return written, nil
}
