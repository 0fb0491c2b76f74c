package server

import (
	"testing"
	"testing/synctest"
	"time"
)

// TestWakefulWhileRequestsCome: a row of requests that come soon enough after each other begins it, no more of them end it, and a request that waited for
// a disk does for longer.
func TestWakefulWhileRequestsCome(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var w wakeful
		now := time.Hour
		row := func(apart time.Duration) {
			for range wakefulRow {
				now += apart
				w.request(now)
			}
		}
		row(wakefulNap)
		row(wakefulNap)
		if w.watching.Load() {
			t.Error("begun by requests that are far apart")
		}
		row(wakefulNap / 10)
		if !w.watching.Load() {
			t.Error("not begun by requests that come one after the other")
		}
		time.Sleep(wakefulNap)
		synctest.Wait()
		if w.watching.Load() {
			t.Error("not ended without requests")
		}
		row(wakefulNap / 10)
		w.waited()
		time.Sleep(wakefulNap + wakefulPause/2)
		synctest.Wait()
		if !w.watching.Load() || w.blocked.Load() {
			t.Error("no pause after a wait for the disk")
		}
		time.Sleep(wakefulPause)
		synctest.Wait()
		if w.watching.Load() {
			t.Error("not ended after the pause")
		}
	})
}
