package inspect

import (
	"fmt"
	"strings"
	"testing"
)

// What follows was printed by Java.

func TestJavaMapOrder(t *testing.T) {
	for n, want := range map[int]string{
		3:  "1 0 2",
		13: "5 12 8 7 3 1 11 9 10 0 6 4 2",
		14: "5 9 0 4 12 8 13 7 3 1 11 10 6 2",
		26: "15 9 16 0 25 8 13 7 14 6 5 22 24 21 20 4 12 18 17 3 1 11 23 19 10 2",
	} {
		var keys []string
		for i := range n {
			keys = append(keys, fmt.Sprintf("/data/topic-%d/00000000000000000000.log", i))
		}
		var got []string
		for _, k := range javaMapOrder(keys, 1+(n-1)%2) { // every second key was put in twice
			number, _, _ := strings.Cut(strings.TrimPrefix(k, "/data/topic-"), "/")
			got = append(got, number)
		}
		if s := strings.Join(got, " "); s != want {
			t.Errorf("%d: %s, want %s", n, s, want)
		}
	}
}

func TestJavaFloat(t *testing.T) {
	for v, want := range map[float64]string{
		0: "0.0", 1: "1.0", 1.5: "1.5", 1e7: "1.0E7", 123456789: "1.23456789E8", 1e-3: "0.001", 9.9e-4: "9.9E-4", 1e300: "1.0E300", -0.5: "-0.5", 100: "100.0",
	} {
		if got := javaFloat(v); got != want {
			t.Errorf("%v: %s, want %s", v, got, want)
		}
	}
}

func TestQuotedAsJackson(t *testing.T) {
	if got, want := string(appendQuoted(nil, "a\"\\/\b\t\n\f\r\x01\x1f\x7fü")), `"a\"\\/\b\t\n\f\r\u0001\u001F`+"\x7fü\""; got != want {
		t.Errorf("%s, want %s", got, want)
	}
}
