package cluster

import (
	"fmt"

	"github.com/twmb/franz-go/pkg/kerr"

	"oncelog/protocol"
)

// Names that mean something to brokers.
const (
	ConsumerOffsets  = "__consumer_offsets"
	TransactionState = "__transaction_state"
	shareGroupState  = "__share_group_state"
	clusterMetadata  = "__cluster_metadata" // no topic here; Kafka forbids the name
)

// IsInternal tells whether a topic of that name is, or would be, an internal one. Metadata flags those, and no client writes to them.
func IsInternal(name string) bool {
	return name == ConsumerOffsets || name == TransactionState || name == shareGroupState
}

// CheckTopicName tells why a name cannot be that of a topic, in Kafka's words: an error that wraps INVALID_TOPIC_EXCEPTION.
func CheckTopicName(name string) error {
	if err := protocol.CheckTopicName(name); err != nil {
		return reject(kerr.InvalidTopicException, "%s", err.Error())
	}
	return nil
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
