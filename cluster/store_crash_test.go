package cluster

import (
	"bytes"
	"fmt"
	"log/slog"
	"math/rand/v2"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/hashicorp/raft"
)

// contents is what a store has: its entries, and its stable values.
func contents(t *testing.T, s *store) string {
	t.Helper()
	var b strings.Builder
	fmt.Fprintln(&b, bounds(t, s))
	for i := s.first; i > 0 && i <= s.last; i++ {
		var l raft.Log
		if err := s.GetLog(i, &l); err != nil {
			t.Fatal(err)
		}
		fmt.Fprintf(&b, "%d %d %x\n", l.Index, l.Term, l.Data)
	}
	for _, key := range []string{"term", "vote"} {
		fmt.Fprintf(&b, "%s %x\n", key, onDisk(t, s, key))
	}
	return b.String()
}

// torn gives a file as a loss of power within a transaction of bbolt could leave it: of its pages but the two at the front, which are written and synced
// last, some sectors are there and others are not; or all are, and some of those two.
func torn(before, after []byte, rng *rand.Rand) (file []byte, data bool) {
	const sector = 512
	front := 2 * os.Getpagesize()
	file = append([]byte(nil), before...)
	if rng.IntN(2) == 0 || len(after) < len(before) {
		file = file[:min(len(before), len(after))]
	}
	file = append(file, make([]byte, max(0, len(after)-len(file)))...)
	data = rng.IntN(2) == 0
	for at := 0; at < len(after); at += sector {
		end := min(at+sector, len(after))
		if at >= front && (data || rng.IntN(2) == 0) || at < front && data && rng.IntN(2) == 0 {
			copy(file[at:end], after[at:end])
		}
	}
	return file, data
}

// TestStoreSurvivesPowerFailures: whenever power is lost within an operation, the store is as it was before, or as the operation leaves it; and it goes on.
func TestStoreSurvivesPowerFailures(t *testing.T) {
	dir := t.TempDir()
	name, crashed := filepath.Join(dir, "a.db"), filepath.Join(dir, "crashed.db")
	rng := rand.New(rand.NewPCG(1, 9))
	s := mustStore(t, name, false)
	defer s.close()
	read := func() []byte {
		t.Helper()
		data, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		return data
	}
	next, tries := uint64(1), map[string]int{}
	for step := range 60 {
		before, was := read(), contents(t, s)
		var err error
		switch k := rng.IntN(6); {
		case k < 3:
			logs := entries(next, next+rng.Uint64N(4))
			for _, l := range logs {
				l.Data = bytes.Repeat(l.Data, 1+rng.IntN(900))
			}
			if err = s.StoreLogs(logs); err == nil {
				next += uint64(len(logs))
			}
		case k == 3:
			err = s.DeleteRange(s.first, s.first+rng.Uint64N(3))
		case k == 4 && s.last > 0:
			err = s.DeleteRange(s.last, s.last+5)
			next = max(1, s.last+1)
		default:
			err = s.SetUint64([]byte([]string{"term", "vote"}[rng.IntN(2)]), rng.Uint64())
		}
		if err != nil {
			t.Fatal(step, err)
		}
		if s.last == 0 {
			next = max(next, 1)
		}
		after, is := read(), contents(t, s)
		for range 8 {
			file, written := torn(before, after, rng)
			if err := os.WriteFile(crashed, file, 0o644); err != nil {
				t.Fatal(err)
			}
			c, err := openStore(crashed, false, slog.New(slog.DiscardHandler))
			if err != nil {
				t.Fatalf("step %d: %v", step, err)
			}
			got := contents(t, c)
			switch {
			case got == was:
				tries["before"]++
			case got == is && written:
				tries["after"]++
			default:
				t.Fatalf("step %d: store has\n%s\nwas\n%s\nis\n%s", step, got, was, is)
			}
			last := c.last
			if err := c.StoreLogs(entries(max(last, next)+1, max(last, next)+1)); err != nil {
				t.Fatalf("step %d: %v", step, err)
			}
			if err := c.close(); err != nil {
				t.Fatal(err)
			}
		}
	}
	if tries["before"] < 50 || tries["after"] < 50 {
		t.Error(tries)
	}
}
