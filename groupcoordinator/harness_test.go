package groupcoordinator

import (
	"errors"
	"fmt"
	"io"
	"log/slog"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/coordinator"
)

// harness stands for the shard: it appends to a log in memory, replays, and writes down what was answered. Everything
// is committed at once. After each operation it checks the fold law and the machine's invariants.
type harness struct {
	tb       testing.TB
	m        *Machine
	settings Settings
	now      time.Time
	uuids    int
	log      []logged
	end      int64
	tokens   map[coordinator.Token]string
	failing  bool // the next append fails
	out      strings.Builder
}

type logged struct {
	offset int64
	record coordinator.Record
}

// epoch0 is when every script starts.
var epoch0 = time.UnixMilli(1_700_000_000_000)

var errDisk = fmt.Errorf("disk is full: %w", kerr.NotCoordinator)

func newHarness(tb testing.TB) *harness {
	h := &harness{tb: tb, settings: DefaultSettings(), now: epoch0, tokens: map[coordinator.Token]string{}}
	h.m = h.machine()
	h.m.Recover(h.now)
	return h
}

func (h *harness) machine() *Machine {
	return New(7, 0, Options{
		Settings: h.settings,
		NewUUID:  func() string { h.uuids++; return fmt.Sprintf("u%d", h.uuids) },
		Logger:   slog.New(slog.NewTextHandler(io.Discard, nil)),
	})
}

// token makes a caller that answers are written down for under this name.
func (h *harness) token(name string) coordinator.Token {
	t := coordinator.NewToken()
	h.tokens[t] = name
	return t
}

// apply does what a shard does with an output.
func (h *harness) apply(out coordinator.Output, own coordinator.Token) {
	if !out.Batch.Empty() {
		if h.failing {
			h.failing = false
			h.printf("append fails\n")
			h.refuse(out, own)
			h.check()
			return
		}
		h.append(&out.Batch)
	}
	for _, r := range out.Replies {
		h.answer(r)
	}
	for _, next := range out.Next {
		h.apply(next(h.now), coordinator.Token{})
	}
	h.check()
}

func (h *harness) refuse(out coordinator.Output, own coordinator.Token) {
	before := h.hard(h.m)
	defer func() {
		if after := h.hard(h.m); after != before {
			h.tb.Fatalf("a failed append changed the hard state:\n%s\nto\n%s", before, after)
		}
	}()
	if out.Failed != nil {
		for _, r := range out.Failed(errDisk) {
			h.answer(r)
		}
		return
	}
	for _, r := range out.Replies {
		h.answer(coordinator.Reply{To: r.To, Err: errDisk})
	}
	if _, waits := h.tokens[own]; waits {
		h.answer(coordinator.Reply{To: own, Err: errDisk})
	}
}

func (h *harness) append(b *coordinator.Batch) {
	r := coordinator.Record{Timestamp: millis(h.now), ProducerID: -1, ProducerEpoch: -1, Transactional: b.Transactional}
	if b.Transactional || b.Control {
		r.ProducerID, r.ProducerEpoch = b.ProducerID, b.ProducerEpoch
	}
	if b.Control {
		r.IsMarker, r.Marker = true, b.Marker
		h.replay(r)
	}
	for _, kv := range b.Records {
		r.Key, r.Value = kv.Key, kv.Value
		h.replay(r)
	}
}

func (h *harness) replay(r coordinator.Record) {
	h.printf("%d: %s\n", h.end, describeRecord(r))
	// What is replayed is valid only during the call.
	lent := r
	lent.Key, lent.Value = slices.Clone(r.Key), slices.Clone(r.Value)
	if err := h.m.Replay(h.end, lent); err != nil {
		h.tb.Fatalf("machine refuses its own record: %v", err)
	}
	for _, b := range [][]byte{lent.Key, lent.Value} {
		for i := range b {
			b[i] = 0xcc
		}
	}
	h.log = append(h.log, logged{h.end, r})
	h.end++
}

func (h *harness) answer(r coordinator.Reply) {
	name, ok := h.tokens[r.To]
	if !ok {
		return // nobody, or answered already
	}
	delete(h.tokens, r.To)
	if r.Err != nil {
		known, _ := errors.AsType[*kerr.Error](r.Err)
		h.printf("%s <- error %s\n", name, known.Message)
		return
	}
	h.printf("%s <- %s\n", name, describeAnswer(r.Value))
}

// advance lets time pass, and the timers fire on their way.
func (h *harness) advance(d time.Duration) {
	until := h.now.Add(d)
	for steps := 0; ; steps++ {
		due := h.m.Deadline()
		if due.IsZero() || due.After(until) {
			break
		}
		if steps > 100000 {
			h.tb.Fatal("the clock does not get on")
		}
		if due.After(h.now) {
			h.now = due
		}
		before := h.out.Len()
		out := h.m.Tick(h.now)
		h.apply(out, coordinator.Token{})
		if h.out.Len() > before {
			text := h.out.String()
			h.out.Reset()
			h.out.WriteString(text[:before])
			h.printf("at %v:\n%s", h.now.Sub(epoch0), text[before:])
		}
	}
	h.now = until
}

// restart loads the log into a new machine, as after a change of the leader.
func (h *harness) restart() {
	var parked []string
	for _, name := range h.tokens {
		parked = append(parked, name)
	}
	slices.Sort(parked)
	h.printf("dropped %v\n", parked)
	clear(h.tokens)
	m := h.machine()
	for _, l := range h.log {
		if err := m.Replay(l.offset, l.record); err != nil {
			h.tb.Fatal(err)
		}
	}
	h.m = m
	h.apply(m.Recover(h.now), coordinator.Token{})
}

// check is the fold law, and what must always hold.
func (h *harness) check() {
	fresh := h.machine()
	for _, l := range h.log {
		if err := fresh.Replay(l.offset, l.record); err != nil {
			h.tb.Fatal(err)
		}
	}
	if got, want := h.hard(h.m), h.hard(fresh); got != want {
		h.tb.Fatalf("the state is not the fold of the log:\n%s\nbut\n%s", got, want)
	}
	h.m.check(h.tb)
}

func (h *harness) printf(format string, args ...any) { fmt.Fprintf(&h.out, format, args...) }

// flush gives what was written down since the last time.
func (h *harness) flush() string {
	defer h.out.Reset()
	if h.out.Len() == 0 {
		return "ok\n"
	}
	return h.out.String()
}

// check fails the test if an invariant of the machine is broken.
func (m *Machine) check(tb testing.TB) {
	timers := map[*timer]bool{}
	for i, t := range m.timers {
		timers[t] = true
		if t.index != i || t.key > t.at || !t.running() {
			tb.Fatalf("timer %d of the heap: %+v", i, t)
		}
	}
	owned := 0
	own := func(t *timer) {
		if t.running() {
			owned++
		}
		if t.running() != timers[t] {
			tb.Fatalf("timer runs: %v, is in the heap: %v", t.running(), timers[t])
		}
	}
	own(&m.sweep)
	for id, g := range m.groups {
		if g.id != id {
			tb.Fatalf("group %q under %q", g.id, id)
		}
		g.check(tb)
		own(&g.joinTimer)
		own(&g.syncTimer)
		for _, t := range g.pendingJoin {
			own(t)
		}
		for _, n := range g.order {
			own(&n.session)
		}
		for p := range g.pending {
			if _, ok := m.open[p][g]; !ok {
				tb.Fatalf("producer %d is not open in %q", p, id)
			}
		}
	}
	if owned != len(m.timers) {
		tb.Fatalf("%d timers run, %d are owned", len(m.timers), owned)
	}
	for p, groups := range m.open {
		for g := range groups {
			if m.groups[g.id] != g || len(g.pending[p]) == 0 {
				tb.Fatalf("producer %d is open in %q for nothing", p, g.id)
			}
		}
	}
}

func (g *group) check(tb testing.TB) {
	joining := 0
	instances := 0
	for _, n := range g.order {
		if n.joinParked() {
			joining++
		}
		if n.instanceID != nil {
			instances++
			if g.instances[*n.instanceID] != n {
				tb.Fatalf("%q: instance %q is somebody else", g.id, *n.instanceID)
			}
		}
		if g.members[n.id] != n {
			tb.Fatalf("%q: member %q is somebody else", g.id, n.id)
		}
		if !n.session.running() && !n.joinParked() && !n.syncParked() {
			tb.Fatalf("%q: nobody watches over member %q", g.id, n.id)
		}
		if n.syncParked() && g.state != stateCompletingRebalance {
			tb.Fatalf("%q: a sync is parked in %v", g.id, g.state)
		}
		if n.joinParked() && g.state != statePreparingRebalance {
			tb.Fatalf("%q: a join is parked in %v", g.id, g.state)
		}
	}
	switch {
	case joining != g.joining, instances != len(g.instances), len(g.order) != len(g.members):
		tb.Fatalf("%q: %d of %d parked, %d of %d static, %d of %d members", g.id, joining, g.joining, instances, len(g.instances), len(g.order), len(g.members))
	case len(g.order) == 0 && g.state != stateEmpty && g.state != statePreparingRebalance:
		tb.Fatalf("%q: nobody in %v", g.id, g.state)
	case len(g.order) > 0 && g.state == stateEmpty:
		tb.Fatalf("%q: somebody in an empty group", g.id)
	case (g.leader == "") != (len(g.order) == 0), g.leader != "" && g.members[g.leader] == nil:
		tb.Fatalf("%q: leader %q of %d", g.id, g.leader, len(g.order))
	case g.state == statePreparingRebalance && !g.joinTimer.running():
		tb.Fatalf("%q: the join phase never ends", g.id)
	case g.state != statePreparingRebalance && g.joinTimer.running():
		tb.Fatalf("%q: join timer in %v", g.id, g.state)
	}
}

// hard describes the hard state.
func (h *harness) hard(m *Machine) string {
	var b strings.Builder
	for _, id := range m.groupIDs() {
		g := m.groups[id]
		fmt.Fprintf(&b, "group %q kind %d\n", id, g.kind)
		if g.stored != nil {
			fmt.Fprintf(&b, "  stored %s\n", describeStored(g.stored))
		}
		for _, topic := range sortedKeys(g.offsets) {
			for _, p := range sortedKeys(g.offsets[topic]) {
				c := g.offsets[topic][p]
				fmt.Fprintf(&b, "  %s-%d %s\n", topic, p, c.describe())
			}
		}
		for _, producer := range sortedKeys(g.pending) {
			var rows []string
			for tp, c := range g.pending[producer] {
				rows = append(rows, fmt.Sprintf("  pending of %d: %s-%d %s\n", producer, tp.topic, tp.partition, c.describe()))
			}
			slices.Sort(rows)
			b.WriteString(strings.Join(rows, ""))
		}
	}
	return b.String()
}

func (c *commit) describe() string {
	s := fmt.Sprintf("offset %d epoch %d metadata %q at %d record %d", c.offset, c.leaderEpoch, c.metadata, c.commitTime-millis(epoch0), c.recordOffset)
	if c.expireTime != noTimestamp {
		s += fmt.Sprintf(" until %d", c.expireTime-millis(epoch0))
	}
	if c.topicID != [16]byte{} {
		s += fmt.Sprintf(" id %x", c.topicID[15:])
	}
	return s
}

func describeStored(s *storedGroup) string {
	var b strings.Builder
	fmt.Fprintf(&b, "type %q generation %d protocol %s leader %s since %d", s.protocolType, s.generation, quoted(s.protocol), quoted(s.leader), s.since-millis(epoch0))
	for _, n := range s.members {
		fmt.Fprintf(&b, " [%s instance %s client %s%s timeouts %d/%d %s -> %q]", n.id, quoted(n.instanceID), n.clientID, n.clientHost,
			n.sessionTimeoutMillis, n.rebalanceTimeoutMillis, describeSubscription(n.subscription), n.assignment)
	}
	return b.String()
}

func describeSubscription(blob []byte) string {
	if topics, ok := subscribedTopics(blob); ok {
		return "(" + strings.Join(topics, "+") + ")"
	}
	return fmt.Sprintf("%q", blob)
}

func quoted(s *string) string {
	if s == nil {
		return "null"
	}
	return fmt.Sprintf("%q", *s)
}

func describeRecord(r coordinator.Record) string {
	if r.IsMarker {
		verb := "abort"
		if r.Marker.Commit {
			verb = "commit"
		}
		return fmt.Sprintf("%s marker of producer %d epoch %d", verb, r.ProducerID, r.ProducerEpoch)
	}
	within := ""
	if r.Transactional {
		within = fmt.Sprintf(" of producer %d epoch %d", r.ProducerID, r.ProducerEpoch)
	}
	t, _ := keyType(r.Key)
	if t == keyOffsetCommit {
		k, _ := decodeOffsetKey(r.Key)
		key := fmt.Sprintf("offset %s %s-%d%s", k.Group, k.Topic, k.Partition, within)
		if r.Value == nil {
			return key + " tombstone"
		}
		c, _ := decodeCommit(r.Value, 0)
		return fmt.Sprintf("%s v%d %s", key, r.Value[1], c.describe())
	}
	id, _ := groupOfKey(r.Key)
	if r.Value == nil {
		return fmt.Sprintf("group %s tombstone", id)
	}
	s, _ := decodeGroup(r.Value)
	return fmt.Sprintf("group %s v%d %s", id, r.Value[1], describeStored(s))
}

// describeAnswer draws an answer on one line, with what matters in it.
func describeAnswer(v any) string {
	var b strings.Builder
	errorName := func(code int16) string {
		if err := kerr.TypedErrorForCode(code); err != nil {
			return err.Message
		}
		return "ok"
	}
	switch r := v.(type) {
	case nil:
		return "done"
	case *kmsg.JoinGroupResponse:
		fmt.Fprintf(&b, "join %s generation %d member %s", errorName(r.ErrorCode), r.Generation, r.MemberID)
		if r.ErrorCode == 0 {
			fmt.Fprintf(&b, " type %s protocol %s leader %s", quoted(r.ProtocolType), quoted(r.Protocol), r.LeaderID)
		}
		if r.SkipAssignment {
			b.WriteString(" skip")
		}
		for _, n := range r.Members {
			fmt.Fprintf(&b, " [%s %s %s]", n.MemberID, quoted(n.InstanceID), describeSubscription(n.ProtocolMetadata))
		}
	case *kmsg.SyncGroupResponse:
		fmt.Fprintf(&b, "sync %s", errorName(r.ErrorCode))
		if r.ErrorCode == 0 {
			fmt.Fprintf(&b, " type %s protocol %s assignment %q", quoted(r.ProtocolType), quoted(r.Protocol), r.MemberAssignment)
		}
	case *kmsg.HeartbeatResponse:
		fmt.Fprintf(&b, "heartbeat %s", errorName(r.ErrorCode))
	case *kmsg.LeaveGroupResponse:
		fmt.Fprintf(&b, "leave %s", errorName(r.ErrorCode))
		for _, n := range r.Members {
			fmt.Fprintf(&b, " [%q %s %s]", n.MemberID, quoted(n.InstanceID), errorName(n.ErrorCode))
		}
	case *kmsg.OffsetCommitResponse:
		b.WriteString("commit")
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				fmt.Fprintf(&b, " %s-%d %s", t.Topic, p.Partition, errorName(p.ErrorCode))
			}
		}
	case *kmsg.TxnOffsetCommitResponse:
		b.WriteString("commit")
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				fmt.Fprintf(&b, " %s-%d %s", t.Topic, p.Partition, errorName(p.ErrorCode))
			}
		}
	case *kmsg.OffsetFetchResponseGroup:
		fmt.Fprintf(&b, "fetch %s", errorName(r.ErrorCode))
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				fmt.Fprintf(&b, " %s-%d: %s %d/%d %s", t.Topic, p.Partition, errorName(p.ErrorCode), p.Offset, p.LeaderEpoch, quoted(p.Metadata))
			}
		}
	case *kmsg.OffsetDeleteResponse:
		fmt.Fprintf(&b, "delete %s", errorName(r.ErrorCode))
		for _, t := range r.Topics {
			for _, p := range t.Partitions {
				fmt.Fprintf(&b, " %s-%d %s", t.Topic, p.Partition, errorName(p.ErrorCode))
			}
		}
	case *kmsg.DeleteGroupsResponseGroup:
		fmt.Fprintf(&b, "delete %s", errorName(r.ErrorCode))
	case *kmsg.DescribeGroupsResponseGroup:
		fmt.Fprintf(&b, "%s %s message %s type %q protocol %q", errorName(r.ErrorCode), r.State, quoted(r.ErrorMessage), r.ProtocolType, r.Protocol)
		for _, n := range r.Members {
			fmt.Fprintf(&b, "\n  [%s %s %s%s %q -> %q]", n.MemberID, quoted(n.InstanceID), n.ClientID, n.ClientHost, n.ProtocolMetadata, n.MemberAssignment)
		}
	case []kmsg.ListGroupsResponseGroup:
		for _, g := range r {
			fmt.Fprintf(&b, "[%s %q %s %s]", g.Group, g.ProtocolType, g.GroupState, g.GroupType)
		}
	default:
		fmt.Fprintf(&b, "%+v", r)
	}
	return b.String()
}
