package cluster

import (
	"fmt"
	"unicode/utf8"

	"github.com/twmb/franz-go/pkg/kerr"
)

// Names that mean something to brokers.
const (
	consumerOffsets  = "__consumer_offsets"
	transactionState = "__transaction_state"
	shareGroupState  = "__share_group_state"
	clusterMetadata  = "__cluster_metadata" // no topic here; Kafka forbids the name
)

const maxTopicNameRunes = 249

// IsInternal tells whether a topic of that name is, or would be, an internal one. Metadata flags those, and no client writes to them.
func IsInternal(name string) bool {
	return name == consumerOffsets || name == transactionState || name == shareGroupState
}

// CheckTopicName tells why a name cannot be that of a topic, in Kafka's words: an error that wraps INVALID_TOPIC_EXCEPTION.
func CheckTopicName(name string) error {
	switch {
	case name == "":
		return reject(kerr.InvalidTopicException, "Topic name is invalid: the empty string is not allowed")
	case name == "." || name == "..":
		return reject(kerr.InvalidTopicException, "Topic name is invalid: '%s' is not allowed", name)
	case utf8.RuneCountInString(name) > maxTopicNameRunes:
		return reject(kerr.InvalidTopicException, "Topic name is invalid: the length of '%s' is longer than the max allowed length %d", name, maxTopicNameRunes)
	case !nameChars(name):
		return reject(kerr.InvalidTopicException,
			"Topic name is invalid: '%s' contains one or more characters other than ASCII alphanumerics, '.', '_' and '-'", name)
	}
	return nil
}

func nameChars(name string) bool {
	for i := range len(name) {
		switch c := name[i]; {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9', c == '.', c == '_', c == '-':
		default:
			return false
		}
	}
	return true
}

// rejection is a refusal that a client reads: a code and Kafka's own text.
type rejection struct {
	code *kerr.Error
	text string
}

func (r *rejection) Error() string { return r.text }
func (r *rejection) Unwrap() error { return r.code }

func reject(code *kerr.Error, format string, args ...any) *rejection {
	return &rejection{code, fmt.Sprintf(format, args...)}
}
