package log

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"slices"
	"strings"
	"syscall"
	"testing"

	"oncelog/internal/vfs"
	"oncelog/protocol"
)

// A version is what one segment holds: its batches, and the transaction index that goes with them.
type version struct {
	base    int64
	batches []protocol.Batch
	index   string
}

// A compaction drives a log through appends and rewritings, and knows what each segment may hold after a crash.
type compaction struct {
	t    *testing.T
	fs   vfs.FS
	log  *Log
	rng  *rand.Rand
	ever map[string]bool

	segments []version // of the log, the last one being appended to
	made     *version  // being rewritten: takes the place of the segments in [made.base, to)
	to       int64
	point    int64 // the owner's checkpoint of the recovery point
}

func newCompaction(t *testing.T, fsys vfs.FS, seed int) *compaction {
	return &compaction{t: t, fs: fsys, rng: seeded(seed), ever: map[string]bool{}, segments: []version{{}}}
}

func (c *compaction) open() error {
	l, _, err := Open(c.fs, "/p", Options{Settings: rewriteSettings}, Recovery{AllowGaps: true}, clock)
	if err != nil {
		return err
	}
	c.log = l
	return nil
}

func (c *compaction) step() error {
	switch k := c.rng.IntN(10); {
	case k < 7:
		b := makeBatch(c.t, c.log.End(), 1+c.rng.IntN(4), clock.UnixMilli()+c.rng.Int64N(1000), 70+c.rng.IntN(300))
		c.ever[string(b)] = true
		a, err := c.log.Append(b, clock)
		if a.Rolled {
			c.segments = append(c.segments, version{base: a.Segment})
		}
		if err == nil {
			last := &c.segments[len(c.segments)-1]
			last.batches = append(slices.Clip(last.batches), b)
		}
		return err
	case k < 8:
		err := c.log.Sync(c.log.End())
		c.point = max(c.point, c.log.RecoveryPoint())
		return err
	default:
		if len(c.segments) < 2 {
			return nil
		}
		return c.rewrite()
	}
}

// rewrite makes one segment of up to three, of whose batches some go; sometimes all.
func (c *compaction) rewrite() error {
	i := c.rng.IntN(len(c.segments) - 1)
	n := 1 + c.rng.IntN(min(3, len(c.segments)-1-i))
	old := c.segments[i : i+n]
	made := version{base: old[0].base}
	share := c.rng.IntN(4)
	for _, v := range old {
		for _, b := range v.batches {
			if c.rng.IntN(3) < share {
				made.batches = append(made.batches, b)
			}
		}
	}
	if c.rng.IntN(2) == 0 {
		made.index = fmt.Sprintf("index %d", c.rng.Uint32())
	}
	c.made, c.to = &made, c.segments[i+n].base
	done, err := c.log.Rewrite(Rewriting{From: made.base, To: c.to, Keep: keepOnly(made.batches), IndexIntervalBytes: 150, BufferBytes: 200,
		Finish: func() ([]byte, bool, error) { return []byte(made.index), made.index != old[0].index, nil }})
	if err == nil {
		if same := n == 1 && len(made.batches) == len(old[0].batches) && made.index == old[0].index; done.Changed == same {
			c.t.Fatalf("%+v", done)
		}
		c.segments = slices.Concat(c.segments[:i], []version{made}, c.segments[i+n:])
		c.made = nil
	}
	return err
}

// check opens a copy of the files as after a crash. What was durable must be there, each segment in the one version or the other, with
// the index that belongs to it.
func (c *compaction) check(m *vfs.Mem, durable int64, what string) {
	c.t.Helper()
	l, report, err := Open(m, "/p", Options{Settings: rewriteSettings}, Recovery{RecoveryPoint: c.point, AllowGaps: true}, clock)
	if err != nil {
		c.t.Fatalf("%s: %v", what, err)
	}
	defer l.Abandon()
	if l.End() < durable {
		c.t.Fatalf("%s: end %d, durable was %d; %+v", what, l.End(), durable, report)
	}
	all := collect(c.t, l, l.Start())
	next := int64(0)
	for _, b := range all {
		h := b.Header()
		if !c.ever[string(b)] || h.BaseOffset < next {
			c.t.Fatalf("%s: batch %+v behind offset %d", what, h, next)
		}
		next = h.LastOffset() + 1
	}
	found := map[int64]version{}
	for _, s := range l.Segments() {
		v := version{base: s.Base, batches: within(all, s.Base, s.Next)}
		if name := "/p/" + FileName(s.Base, ExtTxnIndex); slices.Contains(list(c.t, m), FileName(s.Base, ExtTxnIndex)) {
			v.index = string(get(c.t, m, name))
		}
		found[s.Base] = v
	}
	c.checkSegments(found, durable, fmt.Sprintf("%s: %+v %v", what, report, l.Segments()))
	for _, name := range list(c.t, m) {
		if strings.HasSuffix(name, SuffixCleaned) || strings.HasSuffix(name, SuffixSwap) {
			c.t.Fatalf("%s: %s is left", what, name)
		}
	}
	mustAppend(c.t, l, makeBatch(c.t, l.End(), 1, clock.UnixMilli(), 80))
	want := collect(c.t, l, l.Start())
	if err := l.Close(); err != nil {
		c.t.Fatalf("%s: %v", what, err)
	}
	again, _, err := Open(m, "/p", Options{Settings: rewriteSettings}, Recovery{Clean: true}, clock)
	if err != nil {
		c.t.Fatalf("%s: %v", what, err)
	}
	defer again.Abandon()
	checkBatches(c.t, collect(c.t, again, again.Start()), want)
}

func (v version) equal(w version) bool {
	return v.index == w.index && slices.EqualFunc(v.batches, w.batches, func(a, b protocol.Batch) bool { return string(a) == string(b) })
}

// checkSegments compares segments that were found with those that may be there.
func (c *compaction) checkSegments(found map[int64]version, durable int64, what string) {
	c.t.Helper()
	replaced := false
	if c.made != nil {
		replaced = found[c.made.base].equal(*c.made)
	}
	for _, v := range c.segments {
		got, there := found[v.base]
		inRound := c.made != nil && v.base >= c.made.base && v.base < c.to
		switch {
		case inRound && v.base == c.made.base && replaced, there && got.equal(v):
			// The one version, or the other. Behind what the new one holds old ones may have come back.
			if there && inRound && v.base > c.made.base && replaced && v.base < end(c.made.batches, 0) {
				c.t.Fatalf("%s: old segment %d beside the new one", what, v.base)
			}
		case inRound && replaced && !there:
		case len(v.batches) > 0 && v.batches[len(v.batches)-1].Header().LastOffset() >= durable || len(v.batches) == 0 && v.base >= durable:
			// Its end wasn't durable.
			if len(got.batches) > len(v.batches) || !(version{batches: v.batches[:len(got.batches)]}).equal(version{batches: got.batches}) {
				c.t.Fatalf("%s: segment %d isn't a prefix of what it was", what, v.base)
			}
		default:
			c.t.Fatalf("%s: segment %d (there: %v) has %d batches and index %q, want %d, %q; round %+v", what, v.base, there, len(got.batches), got.index,
				len(v.batches), v.index, c.made)
		}
	}
}

// Power is lost before each single operation on the disk, in several ways each.
func TestRewriteCrashAtEveryOperation(t *testing.T) {
	eachSeed(t, 12, func(t *testing.T, seed int) {
		m := newMem(t)
		var c *compaction
		crashes := 0
		fsys := vfs.Inject(m, func(op vfs.Op) error {
			if !op.Kind.Changes() || c.log == nil {
				return nil
			}
			for range 3 {
				crashes++
				c.check(m.CrashClone(seeded(seed*100_000+crashes)), c.point, fmt.Sprintf("seed %d, crash %d before %v %s", seed, crashes, op.Kind, op.Name))
			}
			return nil
		})
		c = newCompaction(t, fsys, seed)
		if err := c.open(); err != nil {
			t.Fatal(err)
		}
		for range 50 {
			if err := c.step(); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		c.log.Abandon()
		if crashes == 0 {
			t.Fatal("no crash")
		}
	})
}

// The process dies at each operation; nothing that had returned is lost, whatever was synced. Recovery itself is interrupted, too.
func TestRewriteKill(t *testing.T) {
	eachSeed(t, 12, func(t *testing.T, seed int) {
		m := newMem(t)
		var c *compaction
		n := 0
		fsys := vfs.Inject(m, func(op vfs.Op) error {
			if !op.Kind.Changes() || c.log == nil {
				return nil
			}
			n++
			what := fmt.Sprintf("seed %d, kill %d before %v %s", seed, n, op.Kind, op.Name)
			clone := m.CrashClone(nil)
			if c.made != nil {
				c.interruptRecovery(clone, what)
			}
			if op.Kind != vfs.OpWrite && op.Kind != vfs.OpTruncate && op.Kind != vfs.OpCreate {
				c.check(clone, c.log.End(), what)
			}
			return nil
		})
		c = newCompaction(t, fsys, seed)
		if err := c.open(); err != nil {
			t.Fatal(err)
		}
		for range 40 {
			if err := c.step(); err != nil {
				t.Fatalf("seed %d: %v", seed, err)
			}
		}
		c.log.Abandon()
	})
}

// interruptRecovery loses power while the log is opened.
func (c *compaction) interruptRecovery(m *vfs.Mem, what string) {
	c.t.Helper()
	n := 0
	clone := m.CrashClone(nil)
	fsys := vfs.Inject(clone, func(op vfs.Op) error {
		if !op.Kind.Changes() {
			return nil
		}
		n++
		c.check(clone.CrashClone(seeded(n)), c.point, fmt.Sprintf("%s, recovery %d before %v %s", what, n, op.Kind, op.Name))
		return nil
	})
	l, _, err := Open(fsys, "/p", Options{Settings: rewriteSettings}, Recovery{RecoveryPoint: c.point, AllowGaps: true}, clock)
	if err != nil {
		c.t.Fatalf("%s: %v", what, err)
	}
	l.Abandon()
}

// Each operation on the disk fails once: the rewriting is given up and the log goes on, or it says that it failed; what it had is there
// after a restart.
func TestRewriteEveryFaultOnce(t *testing.T) {
	faults := []error{syscall.EIO, syscall.ENOSPC, &vfs.Partial{N: 17, Err: syscall.ENOSPC}}
	eachSeed(t, 5, func(t *testing.T, seed int) {
		total := 0
		for at := 1; at == 1 || at <= total; at++ {
			m := newMem(t)
			count := 0
			var failedOp vfs.Op
			c := newCompaction(t, nil, seed)
			c.fs = vfs.Inject(m, func(op vfs.Op) error {
				if c.log == nil {
					return nil
				}
				count++
				if count == at {
					failedOp = op
					return faults[at%len(faults)]
				}
				return nil
			})
			if err := c.open(); err != nil {
				t.Fatal(err)
			}
			for range 40 {
				err := c.step()
				if failed := c.log.Failed(); (failed != nil) != errors.Is(err, ErrFailed) {
					t.Fatalf("seed %d, fault %d (%v %s): step says %v, log says %v", seed, at, failedOp.Kind, failedOp.Name, err, failed)
				}
				if c.log.Failed() != nil {
					break
				}
				if err != nil && c.made != nil {
					if open := c.log.Segments(); len(open) != len(c.segments) {
						t.Fatalf("%v: %v", err, open)
					}
				}
				c.made = nil
			}
			c.log.Abandon()
			c.check(m.CrashClone(nil), c.log.End(), fmt.Sprintf("seed %d, fault %d (%v %s)", seed, at, failedOp.Kind, failedOp.Name))
			total = max(total, count)
		}
		if total < 100 {
			t.Fatalf("only %d operations", total)
		}
	})
}
