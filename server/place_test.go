package server

import (
	"context"
	"testing"
	"testing/synctest"
	"time"
)

// What large requests have together is bounded, until one of them takes long: that one keeps nobody out any more, and gives nothing back later.
func TestLargeRequestsKeepOthersOutForATime(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		room := newMemory(largeTogether)
		slow, quick, third := &place{room: room}, &place{room: room}, &place{room: room}
		enter := func(p *place, size int) <-chan time.Time {
			entered := make(chan time.Time, 1)
			go func() {
				if err := p.enter(t.Context(), size); err != nil {
					t.Error(err)
				}
				entered <- time.Now()
			}()
			synctest.Wait()
			return entered
		}
		<-enter(slow, largeTogether)
		<-enter(third, largeMin-1) // not large
		began, entered := time.Now(), enter(quick, largeMin)
		if len(entered) > 0 {
			t.Error("two had places at a time")
		}
		if took := (<-entered).Sub(began); took < slowStart || took > time.Second {
			t.Errorf("the slow one kept others out for %v", took)
		}
		slow.leave()
		if got := room.inUse(); got != largeMin {
			t.Errorf("%d bytes in use, the quick one has %d", got, largeMin)
		}
		<-enter(slow, largeMin) // its timer was of use before
		quick.leave()
		slow.leave()
		third.leave()
		ctx, cancel := context.WithCancel(t.Context())
		<-enter(quick, largeTogether)
		cancel()
		if third.enter(ctx, largeMin) == nil {
			t.Error("a place for one that has gone")
		}
		quick.leave()
		if got := room.inUse(); got != 0 {
			t.Errorf("%d bytes in use at the end", got)
		}
	})
}
