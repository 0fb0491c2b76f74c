package protocol

import (
	"bytes"
	"encoding/binary"
	"math"
	"strings"
	"testing"
)

func TestCoordinatorPartitionIsJavas(t *testing.T) {
	for _, c := range []struct {
		id   string
		hash int32
		part int32
	}{
		{"", 0, 0}, {"a", 97, 47}, {"my-txn-id", 1405732511, 11}, {"txn-0", 110810509, 9}, {"polygenelubricants", math.MinInt32, 0},
		{"streams-app-1_0", 291085084, 34}, {"é😀", 1996812, 12}, {"test-transactional-id", -635947590, 40}, {"test", 3556498, 48},
	} {
		if h, p := javaHash(c.id), CoordinatorPartition(c.id, 50); h != c.hash || p != c.part {
			t.Errorf("%q: %d, %d; want %d, %d", c.id, h, p, c.hash, c.part)
		}
	}
}

func TestTopicNames(t *testing.T) {
	for _, name := range []string{"a", "A.b_c-9", "...", "__consumer_offsets", strings.Repeat("x", 249)} {
		if err := CheckTopicName(name); err != nil {
			t.Error(err)
		}
	}
	for name, want := range map[string]string{
		"":                       "Topic name is invalid: the empty string is not allowed",
		".":                      "Topic name is invalid: '.' is not allowed",
		"..":                     "Topic name is invalid: '..' is not allowed",
		"a/b":                    "Topic name is invalid: 'a/b' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'",
		strings.Repeat("x", 250): "Topic name is invalid: the length of '" + strings.Repeat("x", 250) + "' is longer than the max allowed length 249",
	} {
		if err := CheckTopicName(name); err == nil || err.Error() != want {
			t.Errorf("%q: %v", name, err)
		}
	}
}

func TestUUIDText(t *testing.T) {
	u, err := ParseUUID("y2Gs4NzATTuy1SFoa2jnJQ")
	if err != nil || u.String() != "y2Gs4NzATTuy1SFoa2jnJQ" || u.IsZero() {
		t.Error(u, err)
	}
	if u, err := ParseUUID("AAAAAAAAAAAAAAAAAAAAAA"); err != nil || !u.IsZero() {
		t.Error(u, err)
	}
	for _, bad := range []string{"", "y2Gs4NzATTuy1SFoa2jnJ", "y2Gs4NzATTuy1SFoa2jnJQ=", strings.Repeat("A", 30), "y2Gs4NzATTuy1SFoa2jn+Q"} {
		if u, err := ParseUUID(bad); err == nil {
			t.Errorf("%q is %v", bad, u)
		}
	}
	for range 1000 {
		if s := NewUUID().String(); len(s) != 22 || s[0] == '-' {
			t.Error(s)
		}
	}
}

func TestVarintsAreJavas(t *testing.T) {
	for _, v := range []int64{0, 1, -1, 63, 64, -64, -65, math.MaxInt32, math.MinInt32, math.MaxInt64, math.MinInt64} {
		b := AppendVarlong(nil, v)
		if got, n := Varlong(b); got != v || n != len(b) || varintLen(v) != n {
			t.Errorf("%d: %d, %d", v, got, n)
		}
		if want := binary.AppendVarint(nil, v); !bytes.Equal(b, want) {
			t.Errorf("%d: %x, want %x", v, b, want)
		}
		if got, n := Varint(AppendVarint(nil, int32(v))); got != int32(v) || n == 0 {
			t.Errorf("%d: %d, %d", v, got, n)
		}
		if _, n := Varlong(b[:len(b)-1]); n != 0 {
			t.Errorf("%d cut: %d", v, n)
		}
	}
	// Java takes a fifth byte whose upper bits are lost, but no sixth.
	if v, n := Uvarint([]byte{0xff, 0xff, 0xff, 0xff, 0x7f}); v != math.MaxUint32 || n != 5 {
		t.Error(v, n)
	}
	if _, n := Uvarint([]byte{0x80, 0x80, 0x80, 0x80, 0x80, 0}); n != -1 {
		t.Error(n)
	}
	if _, n := Varlong(bytes.Repeat([]byte{0x80}, 11)); n != -1 {
		t.Error(n)
	}
}

func TestCodecNames(t *testing.T) {
	for _, c := range allCodecs {
		if got, ok := ParseCodec(c.String()); !ok || got != c {
			t.Error(c, got)
		}
	}
	if c, ok := ParseCodec("uncompressed"); !ok || c != CodecNone {
		t.Error(c)
	}
	if _, ok := ParseCodec("producer"); ok || Codec(5).Valid() || Codec(5).String() != "codec 5" {
		t.Error("codecs that do not exist")
	}
}
