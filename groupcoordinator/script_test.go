package groupcoordinator

import (
	"fmt"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/controlmarkers"
	"oncelog/coordinator"
)

// TestScripts runs the scripts of testdata/scripts. Each line of a script's input is one command with key=value
// arguments; "as" names the caller, g is the group ("g" by default). Rewrite the results with -rewrite, then read the
// difference.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		h := newHarness(t)
		datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
			if d.Cmd != "run" {
				t.Fatalf("%s: unknown directive %q", d.Pos, d.Cmd)
			}
			for line := range strings.Lines(d.Input) {
				words := strings.Fields(line)
				if len(words) == 0 || strings.HasPrefix(words[0], "#") {
					continue
				}
				a := args{}
				for _, w := range words[1:] {
					k, v, _ := strings.Cut(w, "=")
					a[k] = v
				}
				h.tb = t
				h.command(words[0], a)
			}
			return h.flush()
		})
	})
}

type args map[string]string

func (a args) text(key, otherwise string) string {
	if v, ok := a[key]; ok {
		return v
	}
	return otherwise
}

func (a args) number(key string, otherwise int64) int64 {
	n, err := strconv.ParseInt(a.text(key, strconv.FormatInt(otherwise, 10)), 10, 64)
	if err != nil {
		panic(err)
	}
	return n
}

// pointer is null unless the key is given.
func (a args) pointer(key string) *string {
	if v, ok := a[key]; ok {
		return &v
	}
	return nil
}

func (a args) list(key string) []string {
	if a[key] == "" {
		return nil
	}
	return strings.Split(a[key], ",")
}

// command runs one line of a script.
func (h *harness) command(name string, a args) {
	var to coordinator.Token
	switch name {
	case "settings", "advance", "restart", "fail-next", "state", "hard":
	default:
		to = h.token(a.text("as", name))
	}
	do := func(out coordinator.Output) { h.apply(out, to) }
	group := a.text("g", "g")
	switch name {
	case "settings":
		h.setting(a)
	case "advance":
		d, err := time.ParseDuration(a.text("by", "0s"))
		if err != nil {
			h.tb.Fatal(err)
		}
		h.advance(d)
	case "restart":
		h.restart()
	case "fail-next":
		h.failing = true
	case "join":
		do(h.m.JoinGroup(h.now, to, Client{ID: a.text("client", "c"), Host: "/127.0.0.1"}, joinOf(group, a)))
	case "sync":
		do(h.m.SyncGroup(h.now, to, syncOf(group, a)))
	case "heartbeat":
		r := kmsg.NewPtrHeartbeatRequest()
		r.Group, r.MemberID, r.InstanceID, r.Generation = group, a["member"], a.pointer("instance"), int32(a.number("gen", 1))
		do(h.m.Heartbeat(h.now, to, r))
	case "leave":
		do(h.m.LeaveGroup(h.now, to, leaveOf(group, a)))
	case "commit":
		do(h.m.OffsetCommit(h.now, to, commitOf(group, a)))
	case "txn-commit":
		do(h.m.TxnOffsetCommit(h.now, to, txnCommitOf(group, a), nil))
	case "marker":
		_, abort := a["abort"]
		do(h.m.WriteMarker(h.now, to, Marker{
			Marker: controlmarkers.Marker{Commit: !abort}, ProducerID: a.number("pid", 1), ProducerEpoch: int16(a.number("epoch", 0)),
		}))
	case "fetch":
		_, stable := a["stable"]
		do(h.m.OffsetFetch(to, fetchOf(group, a), stable))
	case "offset-delete":
		do(h.m.OffsetDelete(to, offsetDeleteOf(group, a)))
	case "delete-group":
		do(h.m.DeleteGroup(to, group))
	case "delete-topic":
		do(h.m.DeleteTopic(to, a["topic"]))
	case "describe":
		do(h.m.DescribeGroup(to, group, int16(a.number("v", 6))))
	case "list":
		do(h.m.ListGroups(to, a.list("states"), a.list("types")))
	case "state":
		h.printf("%s", h.soft())
	case "hard":
		h.printf("%s", h.hard(h.m))
	default:
		h.tb.Fatalf("unknown command %q", name)
	}
}

func (h *harness) setting(a args) {
	s := &h.m.settings
	s.MaxSize = int32(a.number("max-size", int64(s.MaxSize)))
	s.InitialRebalanceDelayMillis = int32(a.number("delay", int64(s.InitialRebalanceDelayMillis)))
	s.RetentionMillis = a.number("retention", s.RetentionMillis)
	s.RetentionCheckMillis = a.number("check", s.RetentionCheckMillis)
	s.MetadataMaxBytes = int32(a.number("metadata", int64(s.MetadataMaxBytes)))
	h.settings = *s
	if h.m.sweep.running() {
		h.m.timers.stop(&h.m.sweep)
		h.m.armSweep(h.now)
	}
}

// subscription is a consumer's subscription to topics that are joined by plus signs; what begins with ! is taken as it
// is.
func subscription(topics string) []byte {
	if raw, ok := strings.CutPrefix(topics, "!"); ok {
		return []byte(raw)
	}
	v := kmsg.NewConsumerMemberMetadata()
	v.Version = 1
	v.Topics = strings.Split(topics, "+")
	return v.AppendTo(nil)
}

func joinOf(group string, a args) *kmsg.JoinGroupRequest {
	r := kmsg.NewPtrJoinGroupRequest()
	r.Version = int16(a.number("v", 9))
	r.Group, r.MemberID, r.InstanceID = group, a["member"], a.pointer("instance")
	r.SessionTimeoutMillis = int32(a.number("session", 10000))
	r.RebalanceTimeoutMillis = int32(a.number("rebalance", 60000))
	r.ProtocolType = a.text("type", consumerProtocol)
	for _, p := range strings.Split(a.text("protocols", "range:t"), ",") {
		if name, topics, ok := strings.Cut(p, ":"); ok {
			r.Protocols = append(r.Protocols, kmsg.JoinGroupRequestProtocol{Name: name, Metadata: subscription(topics)})
		}
	}
	return r
}

func syncOf(group string, a args) *kmsg.SyncGroupRequest {
	r := kmsg.NewPtrSyncGroupRequest()
	r.Version = 5
	r.Group, r.MemberID, r.InstanceID, r.Generation = group, a["member"], a.pointer("instance"), int32(a.number("gen", 1))
	r.ProtocolType, r.Protocol = a.pointer("type"), a.pointer("protocol")
	for _, pair := range a.list("assign") {
		id, what, _ := strings.Cut(pair, ":")
		r.GroupAssignment = append(r.GroupAssignment, kmsg.SyncGroupRequestGroupAssignment{MemberID: id, MemberAssignment: []byte(what)})
	}
	return r
}

func leaveOf(group string, a args) *kmsg.LeaveGroupRequest {
	r := kmsg.NewPtrLeaveGroupRequest()
	r.Version = int16(a.number("v", 5))
	r.Group, r.MemberID = group, a["member"]
	if r.Version < 3 {
		return r
	}
	for _, one := range strings.Split(a.text("members", a.text("member", "")), ",") {
		id, instance, static := strings.Cut(one, "/")
		m := kmsg.NewLeaveGroupRequestMember()
		m.MemberID = id
		if static {
			m.InstanceID = &instance
		}
		r.Members = append(r.Members, m)
	}
	return r
}

// offsetArg is topic/partition:offset:metadata, with the epoch 5; the topic's id ends in its name's first byte.
type offsetArg struct {
	topic     string
	partition int32
	offset    int64
	metadata  *string
}

func (a args) offsets() []offsetArg {
	var all []offsetArg
	for _, s := range a.list("o") {
		var o offsetArg
		place, rest, _ := strings.Cut(s, ":")
		topic, p, _ := strings.Cut(place, "/")
		o.topic = topic
		n, _ := strconv.Atoi(p)
		o.partition = int32(n)
		number, metadata, ok := strings.Cut(rest, ":")
		o.offset, _ = strconv.ParseInt(number, 10, 64)
		if ok {
			o.metadata = &metadata
		}
		all = append(all, o)
	}
	return all
}

func idOf(topic string) (id [16]byte) {
	if topic != "" {
		id[15] = topic[0]
	}
	return id
}

func commitOf(group string, a args) *kmsg.OffsetCommitRequest {
	r := kmsg.NewPtrOffsetCommitRequest()
	r.Version = int16(a.number("v", 10))
	r.Group, r.MemberID, r.InstanceID, r.Generation = group, a["member"], a.pointer("instance"), int32(a.number("gen", -1))
	r.RetentionTimeMillis = a.number("retention", -1)
	for _, o := range a.offsets() {
		t := kmsg.NewOffsetCommitRequestTopic()
		t.Topic, t.TopicID = o.topic, idOf(o.topic)
		t.Partitions = []kmsg.OffsetCommitRequestTopicPartition{{Partition: o.partition, Offset: o.offset, LeaderEpoch: 5, Metadata: o.metadata}}
		r.Topics = append(r.Topics, t)
	}
	return r
}

func txnCommitOf(group string, a args) *kmsg.TxnOffsetCommitRequest {
	r := kmsg.NewPtrTxnOffsetCommitRequest()
	r.Version = int16(a.number("v", 6))
	r.Group, r.MemberID, r.InstanceID, r.Generation = group, a["member"], a.pointer("instance"), int32(a.number("gen", -1))
	r.ProducerID, r.ProducerEpoch = a.number("pid", 1), int16(a.number("epoch", 0))
	for _, o := range a.offsets() {
		t := kmsg.NewTxnOffsetCommitRequestTopic()
		t.Topic, t.TopicID = o.topic, idOf(o.topic)
		t.Partitions = []kmsg.TxnOffsetCommitRequestTopicPartition{{Partition: o.partition, Offset: o.offset, LeaderEpoch: 5, Metadata: o.metadata}}
		r.Topics = append(r.Topics, t)
	}
	return r
}

func fetchOf(group string, a args) *kmsg.OffsetFetchRequestGroup {
	r := kmsg.NewOffsetFetchRequestGroup()
	r.Group = group
	for _, o := range a.offsets() {
		r.Topics = append(r.Topics, kmsg.OffsetFetchRequestGroupTopic{Topic: o.topic, Partitions: []int32{o.partition}})
	}
	return &r
}

func offsetDeleteOf(group string, a args) *kmsg.OffsetDeleteRequest {
	r := kmsg.NewPtrOffsetDeleteRequest()
	r.Group = group
	for _, o := range a.offsets() {
		t := kmsg.NewOffsetDeleteRequestTopic()
		t.Topic = o.topic
		t.Partitions = []kmsg.OffsetDeleteRequestTopicPartition{{Partition: o.partition}}
		r.Topics = append(r.Topics, t)
	}
	return r
}

// soft describes the soft state.
func (h *harness) soft() string {
	var b strings.Builder
	for _, id := range h.m.groupIDs() {
		g := h.m.groups[id]
		fmt.Fprintf(&b, "group %s %v generation %d type %q protocol %s leader %s since %d\n", id, g.state, g.generation, g.protocolType, quoted(g.protocol), g.leader, g.since-millis(epoch0))
		for _, id := range sortedKeys(g.pendingJoin) {
			fmt.Fprintf(&b, "  expected %s until %d\n", id, g.pendingJoin[id].at-millis(epoch0))
		}
		for _, n := range g.order {
			fmt.Fprintf(&b, "  member %s instance %s", n.id, quoted(n.instanceID))
			for _, p := range n.protocols {
				fmt.Fprintf(&b, " %s%s", p.name, describeSubscription(p.metadata))
			}
			fmt.Fprintf(&b, " assignment %q", n.assignment)
			for what, is := range map[string]bool{" joining": n.joinParked(), " syncing": n.syncParked()} {
				if is {
					b.WriteString(what)
				}
			}
			if n.owesSync {
				b.WriteString(" owes a sync")
			}
			if n.session.running() {
				fmt.Fprintf(&b, " until %d", n.session.at-millis(epoch0))
			}
			b.WriteString("\n")
		}
		if g.joinTimer.running() {
			fmt.Fprintf(&b, "  join phase until %d\n", g.joinTimer.at-millis(epoch0))
		}
		if g.syncTimer.running() {
			fmt.Fprintf(&b, "  syncs until %d\n", g.syncTimer.at-millis(epoch0))
		}
	}
	return b.String()
}
