package log

import (
	"math"
	"sort"
	"testing"

	"oncelog/internal/vfs"
)

// indexFile is an index whose entries are all in its file. reads counts what is read of it.
func indexFile(t *testing.T, width int, entries []entry) (x *index, reads *int) {
	t.Helper()
	reads = new(int)
	m := newMem(t)
	fsys := vfs.Inject(m, func(op vfs.Op) error {
		if op.Kind == vfs.OpRead {
			*reads++
		}
		return nil
	})
	l, _ := mustOpen(t, fsys, Settings{}, Recovery{})
	x = &l.active().offsets
	if width == timeEntryLen {
		x = &l.active().times
	}
	x.hold = true
	for _, e := range entries {
		if err := x.reserve(); err != nil {
			t.Fatal(err)
		}
		x.add(e)
	}
	if err := x.flush(); err != nil {
		t.Fatal(err)
	}
	return x, reads
}

// spread makes n keys of a function of 0 to 1.
func spread(n int, most float64, f func(float64) float64) []int64 {
	keys := make([]int64, n)
	for i := range keys {
		keys[i] = int64(most * f(float64(i)/float64(n)))
		if i > 0 {
			keys[i] = max(keys[i], keys[i-1]+1)
		}
	}
	return keys
}

// TestIndexFloor: the last entry at or below a target is found however the entries are spread, in a few reads where they are spread evenly, and in no more than
// halving needs and a few where they aren't.
func TestIndexFloor(t *testing.T) {
	const most = 1 << 30
	for name, keys := range map[string][]int64{
		"none":        nil,
		"one":         {7},
		"two":         {7, 9},
		"a block":     spread(blockLen/timeEntryLen, most, func(x float64) float64 { return x }),
		"one more":    spread(blockLen/timeEntryLen+1, most, func(x float64) float64 { return x }),
		"even":        spread(20_000, most, func(x float64) float64 { return x }),
		"late":        spread(20_000, most, func(x float64) float64 { return math.Pow(x, 20) }),
		"early":       spread(20_000, most, func(x float64) float64 { return math.Pow(x, 0.05) }),
		"two heaps":   spread(20_000, most, func(x float64) float64 { return math.Round(x) }),
		"a lone last": append(spread(20_000, 30_000, func(x float64) float64 { return x }), most),
	} {
		for _, width := range []int{offsetEntryLen, timeEntryLen} {
			entries := make([]entry, len(keys))
			for i, k := range keys {
				entries[i] = entry{offset: k, position: k, time: k}
			}
			x, reads := indexFile(t, width, entries)
			by, worst := byOffset, 0
			if width == timeEntryLen {
				by = byTime
			}
			targets := []int64{-1, 0, most / 2, most + 1}
			for i := 0; i < len(keys); i += max(1, len(keys)/300) {
				targets = append(targets, keys[i]-1, keys[i], keys[i]+1)
			}
			for _, target := range targets {
				*reads = 0
				e, i, err := x.floor(by, target)
				want := sort.Search(len(keys), func(i int) bool { return keys[i] > target }) - 1
				if err != nil || i != want || i >= 0 && e.key(by) != keys[i] {
					t.Fatalf("%s: %d is at %d (%+v), want %d; %v", name, target, i, e, want, err)
				}
				worst = max(worst, *reads)
			}
			limit := 3 + interpolations + 6 // halving 20,000 entries down to a block takes 6
			if name == "even" {
				limit = 3
			}
			if worst > limit {
				t.Errorf("%s: %d reads", name, worst)
			}
		}
	}
}

// TestIndexFloorOfDamage: a look-up in an index whose entries don't ascend gives something, and comes to an end.
func TestIndexFloorOfDamage(t *testing.T) {
	rng := seeded(1)
	for _, width := range []int{offsetEntryLen, timeEntryLen} {
		entries := make([]entry, 5000)
		for i := range entries {
			entries[i] = entry{offset: rng.Int64N(math.MaxInt32), position: rng.Int64N(math.MaxInt32), time: rng.Int64() - rng.Int64()}
		}
		x, _ := indexFile(t, width, entries)
		for range 2000 {
			for _, by := range []field{byOffset, byTime} {
				if _, i, err := x.floor(by, rng.Int64()-rng.Int64()); err != nil || i < -1 || i >= len(entries) {
					t.Fatal(i, err)
				}
				if _, i, err := x.floor(by, rng.Int64N(math.MaxInt32)); err != nil || i < -1 || i >= len(entries) {
					t.Fatal(i, err)
				}
			}
		}
	}
}
