//lint:file-ignore ST1005 Kafka's own words, which clients see

package protocol

import (
	"errors"
	"fmt"
)

// MaxTopicNameLen is the most characters a topic's name can have.
const MaxTopicNameLen = 249

// CheckTopicName says in Kafka's words why name cannot be a topic's name; nil if it can.
func CheckTopicName(name string) error {
	const invalid = "Topic name is invalid: "
	switch {
	case name == "":
		return errors.New(invalid + "the empty string is not allowed")
	case name == "." || name == "..":
		return errors.New(invalid + "'" + name + "' is not allowed")
	case utf16Len(name) > MaxTopicNameLen:
		return fmt.Errorf(invalid+"the length of '%s' is longer than the max allowed length %d", name, MaxTopicNameLen)
	}
	for i := range len(name) {
		if !legalTopicByte(name[i]) {
			return fmt.Errorf(invalid+"'%s' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'", name)
		}
	}
	return nil
}

func legalTopicByte(c byte) bool {
	return c >= 'a' && c <= 'z' || c >= 'A' && c <= 'Z' || c >= '0' && c <= '9' || c == '.' || c == '_' || c == '-'
}

// utf16Len is Java's idea of a string's length.
func utf16Len(s string) int {
	n := 0
	for _, r := range s {
		n++
		if r > 0xffff {
			n++
		}
	}
	return n
}
