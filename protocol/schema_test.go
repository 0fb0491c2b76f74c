package protocol

import (
	"fmt"
	"os"
	"strings"
	"testing"
)

// render shows a struct in one version like testdata/kafka-4.4-requests.txt: sizes of fixed fields, s and b for strings and bytes, () for arrays, {} for
// structs, T for tags, ? for what may be null.
func render(fields []field, version int16, flexible bool) string {
	out := "{"
	for _, f := range fields {
		if f.tag < 0 && version >= f.from && version <= f.to {
			out += " " + renderField(f, version, flexible)
		}
	}
	if flexible {
		out += " T"
	}
	return out + " }"
}

func renderField(f field, version int16, flexible bool) string {
	null := ""
	if version >= f.null {
		null = "?"
	}
	switch f.kind {
	case 'n':
		return fmt.Sprint(f.size)
	case '{', '?':
		return render(f.fields, version, flexible)
	case '[':
		return "(" + render(f.fields, version, flexible) + " )" + null
	case '(':
		return "(" + renderField(f.fields[0], version, flexible) + " )" + null
	}
	return string(f.kind) + null
}

// TestShapesAreKafkas compares with the schemas of Apache Kafka 4.4 itself, for every request and version it has. Known tags are left out:
// kmsg, which decodes them, knows them in versions before their own too.
func TestShapesAreKafkas(t *testing.T) {
	raw, err := os.ReadFile("testdata/kafka-4.4-requests.txt")
	if err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(raw)) {
		var key, version int16
		if _, err := fmt.Sscan(line, &key, &version); err != nil {
			t.Fatal(err)
		}
		want := line[strings.Index(line, "{") : len(line)-1]
		s := shapeOf(key)
		if s == nil {
			t.Errorf("no request %d", key)
			continue
		}
		if got := render(s.fields, version, version >= s.flexible); got != want {
			t.Errorf("%d v%d\n got %s\nwant %s", key, version, got, want)
		}
	}
}
