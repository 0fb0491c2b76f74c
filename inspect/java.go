package inspect

import (
	"math"
	"slices"
	"strconv"
	"strings"
	"unicode/utf16"
	"unicode/utf8"
)

// What follows prints values as Java does, where that differs from Go.

// javaText is bytes read as UTF-8 in Java's way: each longest part of a sequence that isn't one becomes one U+FFFD.
func javaText(b []byte) string {
	if utf8.Valid(b) {
		return string(b)
	}
	var s strings.Builder
	for len(b) > 0 {
		r, n := utf8.DecodeRune(b)
		if r == utf8.RuneError && n == 1 {
			n = badSequence(b)
		}
		s.WriteRune(r)
		b = b[n:]
	}
	return s.String()
}

// badSequence is how many bytes at the start of b could have begun a character together; at least one.
func badSequence(b []byte) int {
	low, high, length := byte(0x80), byte(0xbf), 0
	switch c := b[0]; {
	case c >= 0xc2 && c <= 0xdf:
		length = 2
	case c >= 0xe0 && c <= 0xef:
		length = 3
		switch c {
		case 0xe0:
			low = 0xa0
		case 0xed: // Java takes a surrogate for one bad sequence
			if len(b) >= 3 && b[1]&0xc0 == 0x80 && b[2]&0xc0 == 0x80 {
				return 3
			}
		}
	case c >= 0xf0 && c <= 0xf4:
		length = 4
		switch c {
		case 0xf0:
			low = 0x90
		case 0xf4:
			high = 0x8f
		}
	}
	n := 1
	for n < length && n < len(b) && b[n] >= low && b[n] <= high {
		low, high = 0x80, 0xbf
		n++
	}
	return n
}

// javaFloat is Double.toString.
func javaFloat(v float64) string {
	switch {
	case math.IsNaN(v):
		return "NaN"
	case math.IsInf(v, 1):
		return "Infinity"
	case math.IsInf(v, -1):
		return "-Infinity"
	}
	if a := math.Abs(v); a != 0 && (a < 1e-3 || a >= 1e7) {
		digits, exponent, _ := strings.Cut(strconv.FormatFloat(v, 'E', -1, 64), "E")
		if !strings.Contains(digits, ".") {
			digits += ".0"
		}
		n, _ := strconv.Atoi(exponent)
		return digits + "E" + strconv.Itoa(n)
	}
	s := strconv.FormatFloat(v, 'f', -1, 64)
	if !strings.Contains(s, ".") {
		s += ".0"
	}
	return s
}

// appendQuoted appends a string as Jackson writes it.
func appendQuoted(dst []byte, s string) []byte {
	const hex = "0123456789ABCDEF"
	dst = append(dst, '"')
	for i := 0; i < len(s); i++ {
		switch c := s[i]; {
		case c == '"' || c == '\\':
			dst = append(dst, '\\', c)
		case c == '\b':
			dst = append(dst, `\b`...)
		case c == '\t':
			dst = append(dst, `\t`...)
		case c == '\n':
			dst = append(dst, `\n`...)
		case c == '\f':
			dst = append(dst, `\f`...)
		case c == '\r':
			dst = append(dst, `\r`...)
		case c < 0x20:
			dst = append(dst, '\\', 'u', '0', '0', hex[c>>4], hex[c&15])
		default:
			dst = append(dst, c)
		}
	}
	return append(dst, '"')
}

// javaMapOrder sorts strings, all different and in the order in which HashMap.computeIfAbsent put them in, as a java.util.HashMap gives them back.
// calls is how often that was called for the last of them. A new key comes first in its bucket, and what is too full grows with the next call.
func javaMapOrder(keys []string, calls int) []string {
	size := len(keys)
	if calls == 1 {
		size--
	}
	buckets := 16
	for size > buckets*3/4 {
		buckets *= 2
	}
	bucket := func(s string) int {
		h := uint32(0)
		for _, c := range utf16.Encode([]rune(s)) {
			h = 31*h + uint32(c)
		}
		return int(h^h>>16) & (buckets - 1)
	}
	sorted := slices.Clone(keys)
	slices.Reverse(sorted)
	slices.SortStableFunc(sorted, func(a, b string) int { return bucket(a) - bucket(b) })
	return sorted
}
