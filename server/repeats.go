package server

import (
	"github.com/twmb/franz-go/pkg/kerr"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// repeatsMost is what an answer may take, in bytes, for what it tells again because the request names it again, and for what
// does not exist and is described all the same. Names are short and what they stand for is not: a request of a few MB could
// have an answer of many GB. What exists is always told once.
const repeatsMost = 32 << 20

// repeats is what is left of repeatsMost for one answer.
type repeats struct{ left int }

func newRepeats() *repeats { return &repeats{repeatsMost} }

// take tells whether n bytes more may be told.
func (r *repeats) take(n int) bool {
	r.left -= min(n, r.left+1)
	return r.left >= 0
}

// spent tells whether nothing can be told again.
func (r *repeats) spent() bool { return r.left < 0 }

// errRepeats refuses what is too much.
var errRepeats = withMessage(kerr.InvalidRequest, "The request names too often what takes much to tell.")

// The sizes are about what rows take on the wire.

func sizeOfConfigs(rows []configRow) int {
	n := 0
	for i := range rows {
		c := &rows[i]
		n += 16 + len(c.Name) + sizeOf(c.Value) + sizeOf(c.Documentation)
		for j := range c.ConfigSynonyms {
			n += 8 + len(c.ConfigSynonyms[j].Name) + sizeOf(c.ConfigSynonyms[j].Value)
		}
	}
	return n
}

func sizeOfGroup(g *kmsg.DescribeGroupsResponseGroup) int {
	n := 0
	for i := range g.Members {
		m := &g.Members[i]
		n += 16 + len(m.MemberID) + sizeOf(m.InstanceID) + len(m.ClientID) + len(m.ClientHost) + len(m.ProtocolMetadata) + len(m.MemberAssignment)
	}
	return n
}

func sizeOfOffsets(g *kmsg.OffsetFetchResponseGroup) int {
	n := 0
	for i := range g.Topics {
		n += 32 + len(g.Topics[i].Topic)
		for j := range g.Topics[i].Partitions {
			n += 24 + sizeOf(g.Topics[i].Partitions[j].Metadata)
		}
	}
	return n
}

func sizeOfTransaction(t *kmsg.DescribeTransactionsResponseTransactionState) int {
	n := 0
	for i := range t.Topics {
		n += 8 + len(t.Topics[i].Topic) + 4*len(t.Topics[i].Partitions)
	}
	return n
}

func sizeOf(s *string) int {
	if s == nil {
		return 0
	}
	return len(*s)
}
