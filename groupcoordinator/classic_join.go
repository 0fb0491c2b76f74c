package groupcoordinator

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/coordinator"
)

// Client is who sends a request, as members show it.
type Client struct {
	ID   string
	Host string // as Kafka writes addresses: "/127.0.0.1"
}

// joinRequest is a JoinGroup on its way through the machine.
type joinRequest struct {
	*kmsg.JoinGroupRequest
	client    Client
	to        coordinator.Token
	protocols []groupProtocol
}

// JoinGroup lets a client join a group; the answer is a *kmsg.JoinGroupResponse, at once or when the join phase ends.
// The machine keeps the protocols' metadata.
func (m *Machine) JoinGroup(now time.Time, to coordinator.Token, c Client, r *kmsg.JoinGroupRequest) coordinator.Output {
	j := &joinRequest{JoinGroupRequest: r, client: c, to: to}
	if err := m.checkJoin(j); err != nil {
		return to.Reply(refuseJoin(r.MemberID, err))
	}
	for _, p := range r.Protocols {
		j.protocols = append(j.protocols, groupProtocol{p.Name, p.Metadata})
	}
	g := m.groups[r.Group]
	if g == nil {
		return m.createAndJoin(now, j)
	}
	var out coordinator.Output
	m.join(g, now, j, &out)
	return out
}

// checkJoin is what can be said before the group is looked at, and whether there may be such a group.
func (m *Machine) checkJoin(j *joinRequest) *kerr.Error {
	switch g := m.groups[j.Group]; {
	case j.Group == "":
		return kerr.InvalidGroupID
	case j.SessionTimeoutMillis < m.settings.SessionTimeoutMinMillis || j.SessionTimeoutMillis > m.settings.SessionTimeoutMaxMillis:
		return kerr.InvalidSessionTimeout
	case !j.storable():
		return kerr.InvalidRequest
	case g == nil && j.MemberID != "":
		return kerr.UnknownMemberID
	case g != nil && g.kind != kindClassic:
		return kerr.InconsistentGroupProtocol
	}
	return nil
}

// storable tells whether all strings of the request, and the member ids made from them, fit into a record.
func (j *joinRequest) storable() bool {
	const most = stringBytesMax - 37
	for i := range j.Protocols {
		if len(j.Protocols[i].Name) > most {
			return false
		}
	}
	return len(j.Group) <= most && len(value(j.InstanceID)) <= most && len(j.ProtocolType) <= most && len(j.client.ID) <= most
}

// createAndJoin makes the group first, on disk too: it stays also if the join is refused then.
func (m *Machine) createAndJoin(now time.Time, j *joinRequest) coordinator.Output {
	fresh := storedGroup{since: millis(now)}
	m.armSweep(now)
	return coordinator.Output{
		Batch: coordinator.Batch{Records: []coordinator.KeyValue{fresh.record(j.Group)}},
		Next: []coordinator.Step{func(now time.Time) coordinator.Output {
			var out coordinator.Output
			m.join(m.groups[j.Group], now, j, &out)
			return out
		}},
	}
}

func (m *Machine) join(g *group, now time.Time, j *joinRequest, out *coordinator.Output) {
	refuse := func(err *kerr.Error) { j.reply(refuseJoin(j.MemberID, err), out) }
	known := g.members[j.MemberID]
	if g.full(known, m.settings.MaxSize) {
		if known != nil {
			m.remove(g, known, out)
			m.joinedMaybe(g, now, out)
		}
		j.reply(refuseJoin("", kerr.GroupMaxSizeReached), out) // the one refusal that forgets who asked
		return
	}
	if !g.supports(j.ProtocolType, j.protocols) {
		refuse(kerr.InconsistentGroupProtocol)
		return
	}
	if j.MemberID == "" {
		m.joinNew(g, now, j, out)
		return
	}
	if _, pending := g.pendingJoin[j.MemberID]; pending {
		if j.InstanceID != nil {
			refuse(kerr.UnknownMemberID) // only dynamic members are given an id first
			return
		}
		m.admit(g, now, j, j.MemberID, out)
		return
	}
	if err := g.checkMember(j.MemberID, j.InstanceID); err != nil {
		refuse(err)
		return
	}
	m.joinAgain(g, now, j, known, out)
}

// full tells whether the group has no place for the sender. In the join phase those who wait count: members that
// are not coming back must not keep others out.
func (g *classic) full(known *member, most int32) bool {
	switch g.state {
	case statePreparingRebalance:
		return g.joining >= int(most) && (known == nil || !known.joinParked())
	case stateCompletingRebalance, stateStable:
		return len(g.members) >= int(most) && known == nil
	default:
		return false
	}
}

// joinNew is the join of a client that has no member id yet.
func (m *Machine) joinNew(g *group, now time.Time, j *joinRequest, out *coordinator.Output) {
	if j.InstanceID != nil {
		id := *j.InstanceID + "-" + m.newUUID()
		if old := g.instances[*j.InstanceID]; old != nil {
			m.replace(g, now, j, old, id, out)
			return
		}
		m.admit(g, now, j, id, out)
		return
	}
	id := j.client.ID + "-" + m.newUUID()
	if j.Version < 4 {
		m.admit(g, now, j, id, out)
		return
	}
	// A client that lost the answer to its first join would be a member twice. So it gets an id, and is a member when
	// it comes back with it (KIP-394).
	t := &timer{fire: func(now time.Time, out *coordinator.Output) { m.pendingOver(g, id, now, out) }}
	if g.pendingJoin == nil {
		g.pendingJoin = map[string]*timer{}
	}
	g.pendingJoin[id] = t
	m.timers.start(t, millis(now)+int64(j.SessionTimeoutMillis))
	j.reply(refuseJoin(id, kerr.MemberIDRequired), out)
}

// pendingOver forgets an id that nobody came back with.
func (m *Machine) pendingOver(g *group, id string, now time.Time, out *coordinator.Output) {
	delete(g.pendingJoin, id)
	m.joinedMaybe(g, now, out)
}

// admit makes the sender a member, and parks its join.
func (m *Machine) admit(g *group, now time.Time, j *joinRequest, id string, out *coordinator.Output) {
	n := &member{
		id:         id,
		instanceID: j.InstanceID,
		clientID:   j.client.ID,
		clientHost: j.client.Host,
		assignment: []byte{},
		isNew:      true,
	}
	n.update(j)
	if len(g.members) == 0 {
		g.protocolType = j.ProtocolType
	}
	if g.state == statePreparingRebalance && g.previous == stateEmpty {
		g.newMember = true
	}
	m.add(g, n)
	g.park(n, j.to, out)
	m.timers.start(&n.session, millis(now)+newMemberJoinTimeoutMillis)
	m.rebalance(g, now, "a member joins", out)
}

// update takes over what a member says of itself with each join.
func (n *member) update(j *joinRequest) {
	n.sessionTimeoutMillis = j.SessionTimeoutMillis
	n.rebalanceTimeoutMillis = j.RebalanceTimeoutMillis
	if j.Version < 1 {
		n.rebalanceTimeoutMillis = j.SessionTimeoutMillis
	}
	n.protocols = j.protocols
}

// joinAgain is the join of a member.
func (m *Machine) joinAgain(g *group, now time.Time, j *joinRequest, n *member, out *coordinator.Output) {
	same := sameProtocols(n.protocols, j.protocols)
	switch {
	case g.state == stateEmpty:
		j.reply(refuseJoin(j.MemberID, kerr.UnknownMemberID), out)
	case g.state == stateCompletingRebalance && same:
		// It lost the answer to its join of this generation.
		j.reply(g.joined(n), out)
	case g.state == stateStable && same && g.leader != n.id:
		j.reply(g.joined(n), out)
	default:
		n.update(j)
		g.park(n, j.to, out)
		m.rebalance(g, now, "a member joins again", out)
	}
}

// replace gives a static member's place to the sender, which has the same instance id and so is the same instance
// started anew (KIP-345). The old member id is fenced. A stable group whose protocol stays the same goes on without a
// rebalance.
func (m *Machine) replace(g *group, now time.Time, j *joinRequest, old *member, id string, out *coordinator.Output) {
	wasLeader := g.leader
	n := *old
	n.id, n.isNew, n.join, n.sync, n.session = id, false, coordinator.Token{}, coordinator.Token{}, timer{}
	m.put(g, old, &n, kerr.FencedInstanceID, out)
	m.touch(now, &n)
	n.update(j)
	if g.state == stateStable && g.protocol != nil && g.choose() == *g.protocol {
		m.storeReplaced(g, now, j, old, &n, wasLeader, out)
		return
	}
	g.park(&n, j.to, out)
	m.rebalance(g, now, "a static member came back", out)
}

// put gives the place of member old to n, and answers what old has parked with err.
func (m *Machine) put(g *group, old, n *member, err *kerr.Error, out *coordinator.Output) {
	g.answerJoin(old, refuseJoin(old.id, err), out)
	answerSync(old, refuseSync(err), out)
	m.timers.stop(&old.session)
	n.session.fire = func(now time.Time, out *coordinator.Output) { m.sessionEnded(g, n, now, out) }
	delete(g.members, old.id)
	g.members[n.id] = n
	for i := range g.order {
		if g.order[i] == old {
			g.order[i] = n
		}
	}
	g.instances[*n.instanceID] = n
	if g.leader == old.id {
		g.leader = n.id
	}
}

// storeReplaced writes the replacement down and answers with the present generation.
func (m *Machine) storeReplaced(g *group, now time.Time, j *joinRequest, old, n *member, wasLeader string, out *coordinator.Output) {
	resp := g.joined(n)
	resp.Members = nil
	if j.Version < 9 {
		// The client would compute an assignment if it found itself to be the leader.
		resp.LeaderID = wasLeader
	} else if g.leader == n.id {
		resp.SkipAssignment = true
		resp.Members = g.roll()
	}
	g.store(out, ownAssignment)
	j.reply(resp, out)
	replies := out.Replies
	out.Failed = func(err error) []coordinator.Reply {
		// Nothing of it is on disk: the old member is the member.
		var ignored coordinator.Output
		m.put(g, n, old, kerr.FencedInstanceID, &ignored)
		m.touch(now, old)
		for i := range replies {
			if replies[i].To == j.to {
				replies[i] = coordinator.Reply{To: j.to, Err: err}
			}
		}
		return replies
	}
}

func (j *joinRequest) reply(resp *kmsg.JoinGroupResponse, out *coordinator.Output) {
	out.Replies = append(out.Replies, coordinator.Reply{To: j.to, Value: resp})
}
