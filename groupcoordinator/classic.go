package groupcoordinator

import (
	"bytes"
	"math"
	"slices"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/coordinator"
)

// consumerProtocol is the protocol type of Kafka's consumers, the only one whose subscriptions are looked into.
const consumerProtocol = "consumer"

// stringBytesMax is what a string of a record can hold. Flexible requests can carry longer ones.
const stringBytesMax = math.MaxInt16

// state is the phase that a classic group is in.
type state int8

const (
	stateEmpty               state = iota // no members
	statePreparingRebalance               // collecting JoinGroups
	stateCompletingRebalance              // joined, waiting for the leader's assignment
	stateStable
)

func (s state) String() string {
	return [...]string{"Empty", "PreparingRebalance", "CompletingRebalance", "Stable"}[s]
}

// classic is the soft state of a group of the classic protocol. The zero value, with since -1, is a group without
// members.
//
// Invariants: state is stateEmpty or statePreparingRebalance if there are no members; leader is "" exactly then;
// members and order hold the same; joining is the number of members with a parked join.
type classic struct {
	state    state
	previous state // the state before this one
	since    int64 // milliseconds since 1970 when it came into this state, or noTimestamp

	protocolType string // "" until somebody has joined
	protocol     *string
	generation   int32
	leader       string // member id

	members     map[string]*member // by id
	order       []*member          // by time of joining
	instances   map[string]*member // static members, by instance id
	pendingJoin map[string]*timer  // member ids that were given out and not yet used
	joining     int

	// newMember is that somebody joined since the initial delay was last extended.
	newMember bool
	// joinTimer ends the join phase. While extendable, it starts anew if a member came, for at most delayLeft
	// milliseconds.
	joinTimer  timer
	extendable bool
	delayLeft  int64
	syncTimer  timer // ends the wait for SyncGroup of the members that owe one

	// subscribed are the topics that the members of this generation read, if that is known.
	subscribed        map[string]struct{}
	subscriptionKnown bool
}

// member is one member of a classic group.
type member struct {
	id                     string
	instanceID             *string // nil for a dynamic member
	clientID, clientHost   string
	rebalanceTimeoutMillis int32
	sessionTimeoutMillis   int32
	protocols              []groupProtocol // as the member prefers them
	assignment             []byte

	isNew    bool              // has joined and was never answered
	join     coordinator.Token // the parked JoinGroup
	sync     coordinator.Token // the parked SyncGroup
	owesSync bool              // was told to send SyncGroup and has not
	session  timer
}

// groupProtocol is a way of assignment that a member offers, with what the leader needs to know of it then. It is
// immutable.
type groupProtocol struct {
	name     string
	metadata []byte
}

func (m *member) joinParked() bool { return !m.join.IsZero() }
func (m *member) syncParked() bool { return !m.sync.IsZero() }

// metadata is what the member says under the protocol that was chosen.
func (m *member) metadata(name *string) []byte {
	if name != nil {
		for i := range m.protocols {
			if m.protocols[i].name == *name {
				return m.protocols[i].metadata
			}
		}
	}
	return []byte{}
}

func (m *member) offers(name string) bool {
	return slices.ContainsFunc(m.protocols, func(p groupProtocol) bool { return p.name == name })
}

func sameProtocols(a, b []groupProtocol) bool {
	return slices.EqualFunc(a, b, func(a, b groupProtocol) bool { return a.name == b.name && bytes.Equal(a.metadata, b.metadata) })
}

// moveTo brings the group into another state.
func (g *classic) moveTo(s state, now time.Time) {
	g.previous, g.state = g.state, s
	g.since = millis(now)
}

// checkMember is whether the ids name a member.
func (g *classic) checkMember(memberID string, instanceID *string) *kerr.Error {
	if instanceID != nil {
		m := g.instances[*instanceID]
		if m == nil {
			return kerr.UnknownMemberID
		}
		if m.id != memberID {
			return kerr.FencedInstanceID
		}
	}
	if g.members[memberID] == nil {
		return kerr.UnknownMemberID
	}
	return nil
}

// supports tells whether a member with these protocols fits to those that are there.
func (g *classic) supports(protocolType string, protocols []groupProtocol) bool {
	if g.state == stateEmpty {
		return protocolType != "" && len(protocols) > 0
	}
	return protocolType == g.protocolType &&
		slices.ContainsFunc(protocols, func(p groupProtocol) bool { return g.allOffer(p.name) })
}

func (g *classic) allOffer(name string) bool {
	return !slices.ContainsFunc(g.order, func(m *member) bool { return !m.offers(name) })
}

// choose is the protocol that all members offer and most prefer; of those with as many votes the one that was voted for
// first.
func (g *classic) choose() string {
	votes := map[string]int{}
	best := ""
	var candidates []string
	for _, p := range g.order[0].protocols {
		if g.allOffer(p.name) {
			candidates = append(candidates, p.name)
		}
	}
	for _, m := range g.order {
		for _, p := range m.protocols {
			if slices.Contains(candidates, p.name) {
				votes[p.name]++
				break
			}
		}
	}
	for _, name := range candidates {
		if votes[name] > votes[best] {
			best = name
		}
	}
	return best
}

// rebalanceTimeoutMillis is the longest that a member asks for.
func (g *classic) rebalanceTimeoutMillis() int64 {
	var longest int32
	for _, m := range g.order {
		longest = max(longest, m.rebalanceTimeoutMillis)
	}
	return int64(longest)
}

// allJoined tells whether the join phase has nobody to wait for.
func (g *classic) allJoined() bool { return g.joining == len(g.members) && len(g.pendingJoin) == 0 }

func (g *classic) owedSyncs() int {
	n := 0
	for _, m := range g.order {
		if m.owesSync {
			n++
		}
	}
	return n
}

// add puts a new member into the group.
func (m *Machine) add(g *group, n *member) {
	if g.members == nil {
		g.members = map[string]*member{}
	}
	if id, ok := g.pendingJoin[n.id]; ok {
		m.timers.stop(id)
		delete(g.pendingJoin, n.id)
	}
	g.members[n.id] = n
	g.order = append(g.order, n)
	if n.instanceID != nil {
		if g.instances == nil {
			g.instances = map[string]*member{}
		}
		g.instances[*n.instanceID] = n
	}
	if g.leader == "" {
		g.leader = n.id
	}
	n.session.fire = func(now time.Time, out *coordinator.Output) { m.sessionEnded(g, n, now, out) }
}

// remove takes a member out of the group. Whatever it has parked is answered with UNKNOWN_MEMBER_ID, so that a client
// that is still there starts anew.
func (m *Machine) remove(g *group, gone *member, out *coordinator.Output) {
	g.answerJoin(gone, refuseJoin("", kerr.UnknownMemberID), out)
	answerSync(gone, refuseSync(kerr.UnknownMemberID), out)
	m.timers.stop(&gone.session)
	delete(g.members, gone.id)
	g.order = slices.DeleteFunc(g.order, func(o *member) bool { return o == gone })
	if gone.instanceID != nil && g.instances[*gone.instanceID] == gone {
		delete(g.instances, *gone.instanceID)
	}
	if g.leader == gone.id {
		g.leader = ""
		if len(g.order) > 0 {
			g.leader = g.order[0].id
		}
	}
}

// touch notes a sign of life of a member.
func (m *Machine) touch(now time.Time, alive *member) {
	m.timers.start(&alive.session, millis(now)+int64(alive.sessionTimeoutMillis))
}

// stopTimers ends all that a group waits for.
func (m *Machine) stopTimers(g *group) {
	m.timers.stop(&g.joinTimer)
	m.timers.stop(&g.syncTimer)
	for _, t := range g.pendingJoin {
		m.timers.stop(t)
	}
	for _, o := range g.order {
		m.timers.stop(&o.session)
	}
}

// park keeps the join of a member until the join phase ends. An earlier one that is still parked is answered: its
// client gave up on it or lost it, and must not wait forever (in Kafka it does).
func (g *classic) park(n *member, to coordinator.Token, out *coordinator.Output) {
	g.answerJoin(n, refuseJoin(n.id, kerr.RebalanceInProgress), out)
	n.join = to
	g.joining++
}

// answerJoin answers a member's parked join, if it has one.
func (g *classic) answerJoin(n *member, resp *kmsg.JoinGroupResponse, out *coordinator.Output) bool {
	if !n.joinParked() {
		return false
	}
	out.Replies = append(out.Replies, coordinator.Reply{To: n.join, Value: resp})
	n.join = coordinator.Token{}
	g.joining--
	return true
}

// answerSync answers a member's parked sync, if it has one.
func answerSync(n *member, resp *kmsg.SyncGroupResponse, out *coordinator.Output) bool {
	if !n.syncParked() {
		return false
	}
	out.Replies = append(out.Replies, coordinator.Reply{To: n.sync, Value: resp})
	n.sync = coordinator.Token{}
	return true
}

// refuseJoin is a JoinGroup answer that only says no.
func refuseJoin(memberID string, err *kerr.Error) *kmsg.JoinGroupResponse {
	resp := kmsg.NewPtrJoinGroupResponse()
	resp.ErrorCode = err.Code
	resp.Generation = -1
	resp.MemberID = memberID
	return resp
}

func refuseSync(err *kerr.Error) *kmsg.SyncGroupResponse {
	resp := kmsg.NewPtrSyncGroupResponse()
	resp.ErrorCode = err.Code
	resp.MemberAssignment = []byte{}
	return resp
}

// subscribe works out the topics that the members read, from what they say under the chosen protocol.
func (g *classic) subscribe() {
	g.subscribed, g.subscriptionKnown = nil, len(g.members) == 0 && g.protocolType != ""
	if len(g.members) == 0 || g.protocolType != consumerProtocol || g.protocol == nil {
		return
	}
	all := map[string]struct{}{}
	for _, m := range g.order {
		topics, ok := subscribedTopics(m.metadata(g.protocol))
		if !ok {
			return
		}
		for _, t := range topics {
			if _, ok := all[t]; !ok {
				all[strings.Clone(t)] = struct{}{}
			}
		}
	}
	g.subscribed, g.subscriptionKnown = all, true
}

// subscribedTo tells whether the group reads a topic, as far as is known: consumers whose topics are not known may read
// any.
func (g *classic) subscribedTo(topic string) bool {
	if g.subscriptionKnown {
		_, ok := g.subscribed[topic]
		return ok
	}
	return g.protocolType == consumerProtocol
}

// toStore is the group as a record has it, with the assignments that are given.
func (g *classic) toStore(assignment func(*member) []byte) *storedGroup {
	s := &storedGroup{
		protocolType: g.protocolType,
		generation:   g.generation,
		protocol:     g.protocol,
		since:        g.since,
		members:      make([]storedMember, len(g.order)),
	}
	if g.leader != "" {
		leader := g.leader
		s.leader = &leader
	}
	for i, m := range g.order {
		s.members[i] = storedMember{
			id:                     m.id,
			instanceID:             m.instanceID,
			clientID:               m.clientID,
			clientHost:             m.clientHost,
			rebalanceTimeoutMillis: m.rebalanceTimeoutMillis,
			sessionTimeoutMillis:   m.sessionTimeoutMillis,
			subscription:           m.metadata(g.protocol),
			assignment:             assignment(m),
		}
	}
	return s
}

// store appends the group's record to out.
func (g *group) store(out *coordinator.Output, assignment func(*member) []byte) {
	out.Batch.Records = append(out.Batch.Records, g.toStore(assignment).record(g.id))
}

func ownAssignment(m *member) []byte { return m.assignment }

// recoverClassic gives a group the soft state that follows from its record: Stable if it has members, who get a full
// session timeout to show that they live.
func (m *Machine) recoverClassic(g *group, now time.Time, out *coordinator.Output) {
	s := g.stored
	g.classic = classic{
		since:        s.since,
		protocolType: s.protocolType,
		protocol:     s.protocol,
		generation:   s.generation,
	}
	for i := range s.members {
		sm := &s.members[i]
		n := &member{
			id:                     sm.id,
			instanceID:             sm.instanceID,
			clientID:               sm.clientID,
			clientHost:             sm.clientHost,
			rebalanceTimeoutMillis: sm.rebalanceTimeoutMillis,
			sessionTimeoutMillis:   sm.sessionTimeoutMillis,
			protocols:              []groupProtocol{{value(s.protocol), sm.subscription}},
			assignment:             sm.assignment,
		}
		m.add(g, n)
		m.touch(now, n)
	}
	if len(g.order) > 0 {
		g.state = stateStable
		if s.leader != nil && g.members[*s.leader] != nil {
			g.leader = *s.leader
		}
	}
	g.subscribe()
	if len(g.order) > int(m.settings.MaxSize) {
		m.prepareRebalance(g, now, "it is larger than group.max.size", out)
	}
}
