package partition

import (
	"reflect"
	"strings"
	"testing"

	"oncelog/internal/vfs"
	"oncelog/protocol"
)

func TestDirNames(t *testing.T) {
	for name, want := range map[string]struct {
		key
		suffix string
	}{
		"a-0":                   {key{"a", 0}, ""},
		"a-b-1":                 {key{"a-b", 1}, ""},
		"__consumer_offsets-49": {key{"__consumer_offsets", 49}, ""},
		"t.x-3.0123456789abcdef0123456789abcdef-delete": {key{"t.x", 3}, "-delete"},
		"t-3.0123456789abcdef0123456789abcdef-stray":    {key{"t", 3}, "-stray"},
		"t-3.0123456789abcdef0123456789abcdef-future":   {key{"t", 3}, "-future"},
		"a--5": {key{"a-", 5}, ""},
	} {
		topic, index, suffix, ok := parseDirName(name)
		if !ok || topic != want.topic || index != want.index || suffix != want.suffix {
			t.Errorf("%s: %q %d %q %v", name, topic, index, suffix, ok)
		}
	}
	for _, name := range []string{"junk", "x-y-z", "-0", "a-", "a-+1", "a-01", "a- 1", "a-99999999999", "ü-0", "..-0", strings.Repeat("a", 250) + "-0", "a-1.x-gone"} {
		if topic, index, suffix, ok := parseDirName(name); ok {
			t.Errorf("%s: %q %d %q", name, topic, index, suffix)
		}
	}
	long := suffixedName(strings.Repeat("a", 249), 123, deleteSuffix)
	if _, index, suffix, ok := parseDirName(long); len(long) != maxFileName || index != 123 || suffix != deleteSuffix || !ok {
		t.Errorf("%d: %s", len(long), long)
	}
}

func TestOffsetCheckpoint(t *testing.T) {
	offsets := map[key]int64{{"b", 1}: 7, {"a-x", 10}: 0, {"a-x", 9}: 1 << 60}
	const want = "0\n3\na-x 9 1152921504606846976\na-x 10 0\nb 1 7\n"
	if got := string(formatOffsets(offsets)); got != want {
		t.Errorf("%q", got)
	}
	if got, err := parseOffsets([]byte("0\r\n2 \nb  1\t7\na-x 10 0")); err != nil || !reflect.DeepEqual(got, map[key]int64{{"b", 1}: 7, {"a-x", 10}: 0}) {
		t.Error(got, err)
	}
	if got, err := parseOffsets(nil); err != nil || len(got) != 0 {
		t.Error(got, err)
	}
	for _, bad := range []string{"1\n0\n", "0\n", "0\n2\na 1 2\n", "0\n1\na 1\n", "0\n1\na x 1\n", "0\n1\na 1 9223372036854775808\n", "0\n0\na 1 2\n", "x"} {
		if got, err := parseOffsets([]byte(bad)); err == nil {
			t.Errorf("%q: %v", bad, got)
		}
	}
}

func TestEpochs(t *testing.T) {
	var e epochs
	for _, s := range []epochStart{{0, 0}, {2, 10}} {
		e = e.assign(s.epoch, s.start)
	}
	for _, tt := range []struct {
		asked int32
		want  EpochEnd
	}{{0, EpochEnd{0, 10}}, {1, EpochEnd{0, 10}}, {2, EpochEnd{2, 15}}, {3, EpochEnd{-1, -1}}, {-1, EpochEnd{-1, -1}}, {-2, EpochEnd{-2, 0}}} {
		if got := e.end(tt.asked, 15); got != tt.want {
			t.Errorf("epoch %d ends at %+v, want %+v", tt.asked, got, tt.want)
		}
	}
	if got := epochs(nil).end(0, 15); got != (EpochEnd{-1, -1}) {
		t.Error(got)
	}
	// Epoch 4 got no record, so 6 takes its place.
	if got := e.assign(4, 15).assign(6, 15); !reflect.DeepEqual(got, epochs{{0, 0}, {2, 10}, {6, 15}}) {
		t.Error(got)
	}
	if got := e.assign(2, 10); !reflect.DeepEqual(got, e) {
		t.Error(got)
	}
	if got := e.truncate(10); !reflect.DeepEqual(got, epochs{{0, 0}}) {
		t.Error(got)
	}
	for start, want := range map[int64]epochs{0: e, 5: {{0, 5}, {2, 10}}, 10: {{2, 10}}, 12: {{2, 12}}} {
		if got := e.trim(start); !reflect.DeepEqual(got, want) {
			t.Errorf("trimmed to %d: %v, want %v", start, got, want)
		}
	}
	if e.at(9) != 0 || e.at(10) != 2 || e.trim(5).at(4) != -1 {
		t.Error("epoch of an offset")
	}
	if got := string(e.format()); got != "0\n2\n0 0\n2 10\n" {
		t.Errorf("%q", got)
	}
	if got, err := parseEpochs(e.format()); err != nil || !reflect.DeepEqual(got, e) {
		t.Error(got, err)
	}
	for _, bad := range []string{"0\n2\n2 10\n0 0\n", "0\n1\n-1 0\n", "0\n1\n0 -1\n", "0\n2\n0 10\n1 5\n", "0\n1\n0\n", "7\n0\n"} {
		if got, err := parseEpochs([]byte(bad)); err == nil {
			t.Errorf("%q: %v", bad, got)
		}
	}
}

func TestMetadataFile(t *testing.T) {
	m := vfs.NewMem()
	if err := m.MkdirAll("/d", 0o755); err != nil {
		t.Fatal(err)
	}
	id, err := protocol.ParseUUID("whpOCHxeThqC7Pnv0oz0EA")
	if err != nil {
		t.Fatal(err)
	}
	if err := writeMetadata(m, "/d", id); err != nil {
		t.Fatal(err)
	}
	if got := string(readFile(t, m, "/d/partition.metadata")); got != "version: 0\ntopic_id: whpOCHxeThqC7Pnv0oz0EA" {
		t.Errorf("%q", got)
	}
	if got, err := readMetadata(m, "/d"); err != nil || got != id {
		t.Error(got, err)
	}
	for _, bad := range []string{"", "version: 0", "topic_id: whpOCHxeThqC7Pnv0oz0EA", "version: -1\ntopic_id: whpOCHxeThqC7Pnv0oz0EA",
		"version: 0\ntopic_id: AAAAAAAAAAAAAAAAAAAAAA", "version: 0\ntopic_id: x"} {
		if got, err := parseMetadata([]byte(bad)); err == nil {
			t.Errorf("%q: %v", bad, got)
		}
	}
}

func TestProperties(t *testing.T) {
	p, err := parseProperties([]byte("#\n#Mon Nov 30 19:10:53 UTC 2026\nnode.id=1\ndirectory.id=vcw55m5R2UdN5tSUCxprIQ\n! x\nversion = 1\ncluster.id:ok\\=rF\n"))
	if err != nil || p.NodeID != 1 || p.ClusterID != "ok=rF" || p.DirectoryID.String() != "vcw55m5R2UdN5tSUCxprIQ" {
		t.Fatal(p, err)
	}
	again, err := parseProperties(p.format())
	if err != nil || again.DirectoryID != p.DirectoryID || again.NodeID != 1 {
		t.Fatal(again, err)
	}
	for _, bad := range []string{"", "version=0\nbroker.id=1\ncluster.id=x", "version=1\nnode.id=1", "version=1\ncluster.id=x", "version=1\ncluster.id=x\nnode.id=-1",
		"version=1\ncluster.id=x\nnode.id=1\ndirectory.id=AAAAAAAAAAAAAAAAAAAAAQ", "version=1\ncluster.id=x\nnode.id=1\ndirectory.id=?"} {
		if p, err := parseProperties([]byte(bad)); err == nil {
			t.Errorf("%q: %+v", bad, p)
		}
	}
}

func TestEnsureProperties(t *testing.T) {
	m := vfs.NewMem()
	if err := m.MkdirAll("/d", 0o755); err != nil {
		t.Fatal(err)
	}
	first, err := ensureProperties(m, "/d", 4)
	if err != nil || first.NodeID != 4 || first.ClusterID == "" || first.DirectoryID.IsZero() {
		t.Fatal(first, err)
	}
	if again, err := ensureProperties(m, "/d", 4); err != nil || again != first {
		t.Fatal(again, err)
	}
	if _, err := ensureProperties(m, "/d", 5); err == nil || !strings.Contains(err.Error(), "node.id is 4, the node's settings say 5") {
		t.Fatal(err)
	}
	overwrite(t, m, "/d/meta.properties", []byte("version=1\nnode.id=4\ncluster.id=c\n"))
	given, err := ensureProperties(m, "/d", 4)
	if err != nil || given.ClusterID != "c" || given.DirectoryID.IsZero() {
		t.Fatal(given, err)
	}
	if again, err := ensureProperties(m, "/d", 4); err != nil || again != given {
		t.Fatal(again, err)
	}
}

func FuzzCheckpoint(f *testing.F) {
	f.Add([]byte("0\n2\nb 1 7\na-x 10 0\n"))
	f.Add([]byte("0\n2\n0 0\n2 10\n"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if offsets, err := parseOffsets(data); err == nil {
			if again, err := parseOffsets(formatOffsets(offsets)); err != nil || !reflect.DeepEqual(again, offsets) && len(offsets) > 0 {
				t.Errorf("%v became %v, %v", offsets, again, err)
			}
		}
		if e, err := parseEpochs(data); err == nil && len(e) > 0 {
			if again, err := parseEpochs(e.format()); err != nil || !reflect.DeepEqual(again, e) {
				t.Errorf("%v became %v, %v", e, again, err)
			}
		}
	})
}

func FuzzProperties(f *testing.F) {
	f.Add([]byte("version=1\nnode.id=4\ncluster.id=c\ndirectory.id=vcw55m5R2UdN5tSUCxprIQ\n"))
	f.Add([]byte("version: 0\ntopic_id: whpOCHxeThqC7Pnv0oz0EA"))
	f.Fuzz(func(t *testing.T, data []byte) {
		if p, err := parseProperties(data); err == nil && (p.ClusterID == "" || p.NodeID < 0) {
			t.Errorf("%+v", p)
		}
		if id, err := parseMetadata(data); err == nil && id.IsZero() {
			t.Error("no id")
		}
	})
}
