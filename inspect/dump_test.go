package inspect

import (
	"bytes"
	"errors"
	"hash/crc32"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"oncelog/internal/vfs"
)

const goldenDir = "../tests/golden/testdata"

// goldenSets are the directories that Kafka wrote.
func goldenSets(t testing.TB) []string {
	t.Helper()
	entries, err := os.ReadDir(goldenDir)
	if err != nil || len(entries) < 8 {
		t.Fatal(entries, err)
	}
	var sets []string
	for _, e := range entries {
		sets = append(sets, e.Name())
	}
	return sets
}

// dumpSections are the flags of the runs of Kafka's tool that a dump.txt shows, by title.
var dumpSections = map[string]DumpOptions{
	"data logs, indexes, snapshots": {Deep: true, Contents: true},
	"__consumer_offsets":            {Deep: true, Contents: true, Decoder: DecodeOffsets},
	"__transaction_state":           {Deep: true, Contents: true, Decoder: DecodeTransactions},
	"__share_group_state":           {Deep: true, Contents: true, Decoder: DecodeShareGroups},
	"__cluster_metadata":            {Deep: true, Contents: true, Decoder: DecodeMetadata},
}

// TestDumpPrintsKafkasLines: what Kafka's own tool said of the golden directories.
func TestDumpPrintsKafkasLines(t *testing.T) {
	for _, set := range goldenSets(t) {
		t.Run(set, func(t *testing.T) {
			want, err := os.ReadFile(filepath.Join(goldenDir, set, "dump.txt"))
			if err != nil {
				t.Fatal(err)
			}
			t.Chdir(filepath.Join(goldenDir, set, "data"))
			here, _ := os.Getwd()
			compared := 0
			for _, section := range strings.Split(string(want), "== ")[1:] {
				title, lines, _ := strings.Cut(section, "\n")
				options, ok := dumpSections[title]
				if !ok {
					continue
				}
				var files []string
				for _, m := range regexp.MustCompile(`(?m)^Dumping (.*)$`).FindAllStringSubmatch(lines, -1) {
					files = append(files, m[1])
				}
				var out bytes.Buffer
				if err := Dump(vfs.OS, files, options, &out, &out); err != nil {
					t.Fatal(err)
				}
				got := strings.ReplaceAll(out.String(), here+"/", "")
				if got, want := sortComplaints(got), sortComplaints(lines); got != want {
					t.Errorf("%s: %s", title, firstDifference(got, want))
				}
				compared++
			}
			if compared == 0 {
				t.Fatal("nothing compared")
			}
		})
	}
}

// sortComplaints orders the blocks at the end of a dump that say where offsets aren't consecutive: their order is that of a hash
// of the absolute paths, and the golden ones lay elsewhere.
func sortComplaints(dump string) string {
	const title = "Non-consecutive offsets in "
	blocks := strings.Split(dump, title)
	slices.Sort(blocks[1:])
	return strings.Join(blocks, title)
}

func firstDifference(got, want string) string {
	g, w := strings.Split(got, "\n"), strings.Split(want, "\n")
	for i := range min(len(g), len(w)) {
		if g[i] != w[i] {
			return "line " + g[i] + "\nwant " + w[i]
		}
	}
	return "one has more lines than the other"
}

// damaged copies a golden partition into a folder of the test's own and lets change work on it.
func damaged(t *testing.T, partition string, change func(dir string)) {
	t.Helper()
	set, name, _ := strings.Cut(partition, "/")
	dir := t.TempDir()
	if err := os.CopyFS(dir, os.DirFS(filepath.Join(goldenDir, set, "data", name))); err != nil {
		t.Fatal(err)
	}
	change(dir)
	t.Chdir(dir)
}

// edit changes bytes of a file.
func edit(t testing.TB, name string, change func([]byte) []byte) {
	t.Helper()
	data, err := os.ReadFile(name)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(name, change(data), 0o644); err != nil {
		t.Fatal(err)
	}
}

const base0 = "00000000000000000000"

// TestDumpTellsDamage: what Kafka 4.4's tool says of damaged files, seen with it.
func TestDumpTellsDamage(t *testing.T) {
	for name, tt := range map[string]struct {
		partition string
		file      string
		change    func([]byte) []byte
		dump      string
		options   DumpOptions
		out, err  string // parts of what is printed; <dir> is where
		fails     bool
	}{
		"torn tail": {"plain/codecs-1", base0 + ".log", func(b []byte) []byte { return append(b, b[:70]...) }, base0 + ".log", DumpOptions{},
			"Found 70 invalid bytes at the end of " + base0 + ".log\n", "", false},
		"flipped bit": {"plain/codecs-1", base0 + ".log", func(b []byte) []byte { b[75] ^= 1; return b }, base0 + ".log", DumpOptions{},
			" isvalid: false\n", "", false},
		"impossible length": {"plain/codecs-1", base0 + ".log", func(b []byte) []byte { copy(b[8:], "\x00\x00\x00\x05"); return b }, base0 + ".log", DumpOptions{},
			"Log starting offset: 0\n", "", true},
		"index entry with another offset": {"plain/segments-0", base0 + ".index", func(b []byte) []byte { b[3]++; return b }, base0 + ".index",
			DumpOptions{VerifyOnly: true}, "Dumping " + base0 + ".index\n", "Mismatches in :<dir>/" + base0 + ".index\n  Index offset: ", false},
		"index of an odd size": {"plain/segments-0", base0 + ".index", func(b []byte) []byte { return b[:len(b)-1] }, base0 + ".index",
			DumpOptions{SanityOnly: true}, "", "", true},
		"index position behind the end": {"plain/segments-0", base0 + ".index", func(b []byte) []byte { b[4] = 0x7f; return b }, base0 + ".index",
			DumpOptions{}, "", "", true},
		"time index entry with another timestamp": {"plain/segments-0", base0 + ".timeindex", func(b []byte) []byte { b[7]++; return b }, base0 + ".timeindex",
			DumpOptions{VerifyOnly: true}, "", "Found timestamp mismatch in :<dir>/" + base0 + ".timeindex\n  Index timestamp: ", false},
		"time index entry without its batch": {"plain/segments-0", base0 + ".timeindex", func(b []byte) []byte { b[11]--; return b }, base0 + ".timeindex",
			DumpOptions{VerifyOnly: true}, "", "The following indexed offsets are not found in :<dir>/" + base0 + ".timeindex\nIndexed offset: ", false},
		"snapshot": {"txn/txn-1", "00000000000000000003.snapshot", func(b []byte) []byte { b[12]++; return b }, "00000000000000000003.snapshot",
			DumpOptions{}, "Dumping 00000000000000000003.snapshot\n", "Snapshot is corrupt (CRC is no longer valid). Stored crc: 1268391487. Computed crc: 734738944\n", false},
		"something else": {"txn/txn-1", "partition.metadata", func(b []byte) []byte { return b }, "partition.metadata",
			DumpOptions{}, "Dumping partition.metadata\n", "Ignoring unknown file partition.metadata\n", false},
	} {
		t.Run(name, func(t *testing.T) {
			damaged(t, tt.partition, func(dir string) { edit(t, filepath.Join(dir, tt.file), tt.change) })
			var out, complaints bytes.Buffer
			err := Dump(vfs.OS, []string{tt.dump}, tt.options, &out, &complaints)
			if tt.fails != errors.Is(err, ErrDump) {
				t.Error(err)
			}
			here, _ := os.Getwd()
			if !strings.Contains(out.String(), tt.out) || !strings.Contains(complaints.String(), strings.ReplaceAll(tt.err, "<dir>", here)) {
				t.Errorf("%s%s", out.String(), complaints.String())
			}
		})
	}
}

// TestBadText: Java's replacement of what is no UTF-8, seen with it.
func TestBadText(t *testing.T) {
	for in, want := range map[string]string{
		"plain":            "plain",
		"\xff\xfe":         "��",
		"a\xc3":            "a�",
		"\xe2\x82x":        "�x",
		"\xe2\x28\xa1":     "�(�",
		"\xf0\x9f\x98":     "�",
		"\xf0\x80\x80\x80": "����",
		"\xed\xa0\x80":     "�",
		"\xc0\x80":         "��",
		"\xf4\x90\x80\x80": "����",
		"ü\xfcü":           "ü�ü",
	} {
		if got := javaText([]byte(in)); got != want {
			t.Errorf("%q: %q, want %q", in, got, want)
		}
	}
}

func FuzzSchema(f *testing.F) {
	files, _ := filepath.Glob(goldenDir + "/coordinators/data/__*/*.log")
	for _, name := range files {
		data, err := os.ReadFile(name)
		if err != nil {
			f.Fatal(err)
		}
		s := newScanner(bytes.NewReader(data), int64(len(data)))
		for b, _, err := s.next(); err == nil; b, _, err = s.next() {
			rr := b.Records(1 << 20)
			for rr.Next() {
				f.Add(bytes.Clone(rr.Record().Key), bytes.Clone(rr.Record().Value))
			}
			rr.Close()
		}
	}
	f.Add([]byte{}, []byte("\x01\x02\x00\x04foo\x00"))
	f.Fuzz(func(t *testing.T, key, value []byte) {
		for _, family := range families {
			if r, err := decodeCoordinatorRecord(family, key, value); err == nil {
				appendJSON(nil, r.key)
				appendJSON(nil, r.value)
			}
		}
		if _, _, o, err := decodeMetadataRecord(value); err == nil {
			appendJSON(nil, o)
		}
	})
}

func checksum(b []byte) uint32 { return crc32.Checksum(b, crc32.MakeTable(crc32.Castagnoli)) }
