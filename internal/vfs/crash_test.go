package vfs

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"testing"
)

func seeded(seed int) *rand.Rand { return rand.New(rand.NewPCG(uint64(seed), 1)) }

func mustSync(t *testing.T, f File) {
	t.Helper()
	if err := f.Sync(); err != nil {
		t.Fatal(err)
	}
}

func TestSyncedBytesSurvive(t *testing.T) {
	m := NewMem()
	f := write(t, m, "a", "durable")
	mustSync(t, f)
	if err := m.SyncDir("/"); err != nil {
		t.Fatal(err)
	}
	f.WriteAt(bytes.Repeat([]byte("x"), 5000), 7)
	outcomes := map[string]bool{}
	for seed := range 300 {
		got := read(t, m.CrashClone(seeded(seed)), "a")
		if got[:7] != "durable" {
			t.Fatalf("seed %d lost synced bytes: %.20q", seed, got)
		}
		for _, c := range got[7:] {
			if c != 'x' && c != 0 {
				t.Fatalf("seed %d has a byte that was never written: %q", seed, c)
			}
		}
		outcomes[fmt.Sprint(len(got) == 7, len(got) == 5007, bytes.ContainsRune([]byte(got), 0))] = true
	}
	// Nothing, everything, a part, and everything with holes must all have come up.
	if len(outcomes) < 4 {
		t.Errorf("only %v", outcomes)
	}
	if got := read(t, m.CrashClone(nil), "a"); len(got) != 5007 {
		t.Errorf("a kill lost bytes: %d left", len(got))
	}
}

func TestOverwriteAndTruncateMayBeTorn(t *testing.T) {
	m := NewMem()
	old := string(bytes.Repeat([]byte("o"), 3000))
	f := write(t, m, "a", old)
	mustSync(t, f)
	m.SyncDir("/")
	f.Truncate(1000)
	f.WriteAt(bytes.Repeat([]byte("n"), 500), 1000)
	outcomes := map[string]bool{}
	for seed := range 400 {
		got := read(t, m.CrashClone(seeded(seed)), "a")
		if len(got) < 1000 || len(got) > 3000 || got[:1000] != old[:1000] {
			t.Fatalf("seed %d: %d bytes, or a byte that was durable is gone", seed, len(got))
		}
		tail := []byte(got[1000:])
		outcomes[fmt.Sprint(bytes.ContainsRune(tail, 'n'), bytes.ContainsRune(tail, 'o'))] = true
		if len(got) == 3000 && got == old {
			outcomes["undone"] = true
		}
		if len(got) == 1500 && !bytes.ContainsRune(tail, 'o') {
			outcomes["done"] = true
		}
	}
	if len(outcomes) < 5 {
		t.Errorf("only %v", outcomes)
	}
	mustSync(t, f)
	for seed := range 20 {
		if got := read(t, m.CrashClone(seeded(seed)), "a"); got != old[:1000]+string(bytes.Repeat([]byte("n"), 500)) {
			t.Fatalf("seed %d: synced truncation lost", seed)
		}
	}
}

// Without SyncDir a new name may be missing, with it it is there; a rename gives one of the two names.
func TestDirectoryEntries(t *testing.T) {
	m := NewMem()
	m.MkdirAll("d", 0o755)
	m.SyncDir("/")
	mustSync(t, write(t, m, "d/a", "a"))
	found := map[bool]int{}
	for seed := range 100 {
		_, err := m.CrashClone(seeded(seed)).Stat("d/a")
		found[err == nil]++
	}
	if found[true] == 0 || found[false] == 0 {
		t.Errorf("a new file was there %d times, missing %d times", found[true], found[false])
	}
	m.SyncDir("d")
	m.Rename("d/a", "d/b")
	mustSync(t, write(t, m, "d/c", "c"))
	seen := map[string]int{}
	for seed := range 200 {
		seen[fmt.Sprint(names(t, m.CrashClone(seeded(seed)), "d"))]++
	}
	for _, want := range []string{"[a]", "[b]", "[a c]", "[b c]"} {
		if seen[want] == 0 {
			t.Errorf("never %s", want)
		}
		delete(seen, want)
	}
	if len(seen) != 0 {
		t.Errorf("impossible directories %v", seen)
	}
	m.SyncDir("d")
	m.Remove("d/b")
	seen = map[string]int{}
	for seed := range 50 {
		seen[fmt.Sprint(names(t, m.CrashClone(seeded(seed)), "d"))]++
	}
	if seen["[b c]"] == 0 || seen["[c]"] == 0 || len(seen) != 2 {
		t.Errorf("after a remove: %v", seen)
	}
}

func TestWriteFileAtomicSurvivesCrash(t *testing.T) {
	m := NewMem()
	if err := WriteFileAtomic(m, "a", []byte("old")); err != nil {
		t.Fatal(err)
	}
	seed := 0
	fsys := Inject(m, func(op Op) error {
		for range 20 {
			seed++
			if got := read(t, m.CrashClone(seeded(seed)), "a"); got != "old" && got != "newer" {
				t.Fatalf("before %v: %q", op.Kind, got)
			}
		}
		return nil
	})
	if err := WriteFileAtomic(fsys, "a", []byte("newer")); err != nil {
		t.Fatal(err)
	}
	if seed == 0 {
		t.Fatal("nothing was tried")
	}
	for seed := range 50 {
		if got := read(t, m.CrashClone(seeded(seed)), "a"); got != "newer" {
			t.Fatalf("lost a durable file: %q", got)
		}
	}
}

// A clone is a file system of its own, everything in it durable, its locks free.
func TestCrashCloneIsIndependent(t *testing.T) {
	m := NewMem()
	if _, err := m.Lock("lock"); err != nil {
		t.Fatal(err)
	}
	m.MkdirAll("d/e", 0o755)
	f := write(t, m, "d/e/a", "abc")
	clone := m.CrashClone(nil)
	f.WriteAt([]byte("x"), 0)
	m.RemoveAll("d")
	if _, err := clone.Lock("lock"); err != nil {
		t.Error(err)
	}
	if got := read(t, clone.CrashClone(seeded(1)), "d/e/a"); got != "abc" {
		t.Errorf("%q", got)
	}
	if _, usable, _ := clone.Usage("/"); usable != 1<<40-3 {
		t.Errorf("usable %d", usable)
	}
	same := func(seed int) string {
		c := m.CrashClone(seeded(seed))
		list, err := c.ReadDir("/")
		return fmt.Sprint(len(list), err)
	}
	for seed := range 20 {
		if first, second := same(seed), same(seed); first != second {
			t.Fatalf("seed %d gave two results", seed)
		}
	}
}

// Any history of operations followed by a sync of everything survives a crash whole.
func TestSyncedTreeSurvives(t *testing.T) {
	for seed := range 60 {
		rng := seeded(seed)
		m := NewMem()
		m.MkdirAll("d", 0o755)
		name := func() string { return fmt.Sprintf("d/%d", rng.IntN(5)) }
		for range 40 {
			switch rng.IntN(5) {
			case 0:
				m.Rename(name(), name())
			case 1:
				m.Remove(name())
			case 2:
				if f, err := m.OpenFile(name(), os.O_RDWR, 0); err == nil {
					f.Truncate(rng.Int64N(50))
					f.Close()
				}
			default:
				f, err := m.OpenFile(name(), os.O_RDWR|os.O_CREATE, 0o644)
				if err != nil {
					t.Fatal(err)
				}
				f.WriteAt(bytes.Repeat([]byte{byte(rng.IntN(256))}, rng.IntN(60)), rng.Int64N(40))
				f.Close()
			}
			m.CrashClone(rng) // must not panic in any state
		}
		for _, n := range names(t, m, "d") {
			f, _ := m.OpenFile("d/"+n, os.O_RDWR, 0)
			mustSync(t, f)
		}
		m.SyncDir("d")
		m.SyncDir("/")
		c := m.CrashClone(rng)
		if got, want := fmt.Sprint(names(t, c, "d")), fmt.Sprint(names(t, m, "d")); got != want {
			t.Fatalf("seed %d: %s, want %s", seed, got, want)
		}
		for _, n := range names(t, m, "d") {
			if read(t, c, "d/"+n) != read(t, m, "d/"+n) {
				t.Fatalf("seed %d: %s differs", seed, n)
			}
		}
	}
}
