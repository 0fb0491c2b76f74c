package log

import (
	"strconv"
	"strings"
)

// The extensions of a partition directory's files. Log owns the first three; the others are its owner's, whose
// names follow the same rule.
const (
	ExtLog       = ".log"
	ExtIndex     = ".index"
	ExtTimeIndex = ".timeindex"
	ExtTxnIndex  = ".txnindex"
	ExtSnapshot  = ".snapshot"
)

// The second extensions: a file that waits for its deletion, one that compaction is writing, and one that
// compaction finished and that is to take its originals' place.
const (
	SuffixDeleted = ".deleted"
	SuffixCleaned = ".cleaned"
	SuffixSwap    = ".swap"
)

// nameDigits is the length of the offset in a file name: any int64, zero-padded.
const nameDigits = 20

// FileName is the name of the file that belongs to an offset, as Kafka builds it: 20 digits and the extension.
func FileName(offset int64, ext string) string {
	var b [nameDigits + 32]byte
	return string(appendFileName(b[:0], offset, ext))
}

func appendFileName(dst []byte, offset int64, ext string) []byte {
	start := len(dst)
	dst = append(dst, "00000000000000000000"...)
	for i := start + nameDigits - 1; offset > 0; i-- {
		dst[i] = byte('0' + offset%10)
		offset /= 10
	}
	return append(dst, ext...)
}

// ParseFileName takes such a name apart. The extension comes back whole, with a second one (".log.deleted")
// where there is one; ok is false for a name of any other form.
func ParseFileName(name string) (offset int64, ext string, ok bool) {
	if len(name) <= nameDigits || name[nameDigits] != '.' {
		return 0, "", false
	}
	digits := name[:nameDigits]
	if strings.Trim(digits, "0123456789") != "" {
		return 0, "", false
	}
	offset, err := strconv.ParseInt(digits, 10, 64)
	if err != nil {
		return 0, "", false
	}
	return offset, name[nameDigits:], true
}
