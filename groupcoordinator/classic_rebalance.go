package groupcoordinator

import (
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/coordinator"
)

// rebalance makes the members of a group join anew, or looks whether the join phase that is on can end now.
func (m *Machine) rebalance(g *group, now time.Time, why string, out *coordinator.Output) {
	if g.state == statePreparingRebalance {
		m.joinedMaybe(g, now, out)
		return
	}
	m.prepareRebalance(g, now, why, out)
}

// prepareRebalance begins the join phase. The first members of an empty group wait some time for others, so that a
// group that starts does not rebalance with each of them.
func (m *Machine) prepareRebalance(g *group, now time.Time, why string, out *coordinator.Output) {
	if g.state == stateCompletingRebalance {
		m.resetAssignments(g, now, kerr.RebalanceInProgress, out)
	}
	m.timers.stop(&g.syncTimer)
	for _, n := range g.order {
		n.owesSync = false
	}
	first := g.state == stateEmpty
	g.moveTo(statePreparingRebalance, now)
	m.log.Info("preparing to rebalance a group", "group", g.id, "generation", g.generation, "members", len(g.order), "reason", why)
	g.joinTimer.fire = func(now time.Time, out *coordinator.Output) { m.joinTimeOver(g, now, out) }
	g.extendable, g.newMember = first, false
	if first {
		delay := int64(m.settings.InitialRebalanceDelayMillis)
		g.delayLeft = max(g.rebalanceTimeoutMillis()-delay, 0)
		m.timers.start(&g.joinTimer, millis(now)+delay)
		return
	}
	if g.allJoined() {
		m.completeJoin(g, now, out)
		return
	}
	m.timers.start(&g.joinTimer, millis(now)+g.rebalanceTimeoutMillis())
}

// joinedMaybe ends the join phase if all are there. The initial delay always runs to its end.
func (m *Machine) joinedMaybe(g *group, now time.Time, out *coordinator.Output) {
	if g.state == statePreparingRebalance && g.previous != stateEmpty && g.allJoined() {
		m.completeJoin(g, now, out)
	}
}

// joinTimeOver ends the join phase with those who are there, or gives the initial delay some more time if members came
// during the last.
func (m *Machine) joinTimeOver(g *group, now time.Time, out *coordinator.Output) {
	if g.extendable && g.newMember && g.delayLeft > 0 {
		delay := min(int64(m.settings.InitialRebalanceDelayMillis), g.delayLeft)
		g.newMember = false
		g.delayLeft = max(g.delayLeft-int64(m.settings.InitialRebalanceDelayMillis), 0)
		m.timers.start(&g.joinTimer, millis(now)+delay)
		return
	}
	m.completeJoin(g, now, out)
}

// completeJoin ends the join phase: a new generation of those who joined, and of static members, who may be away.
func (m *Machine) completeJoin(g *group, now time.Time, out *coordinator.Output) {
	m.timers.stop(&g.joinTimer)
	for _, n := range slices.Clone(g.order) {
		if !n.joinParked() && n.instanceID == nil {
			m.remove(g, n, out)
		}
	}
	if !g.electLeader() {
		// Only static members are left and none of them is here: wait for them, or for their sessions to end.
		m.timers.start(&g.joinTimer, millis(now)+g.rebalanceTimeoutMillis())
		g.extendable = false
		return
	}
	g.generation++
	m.metrics.rebalanced()
	if len(g.order) == 0 {
		g.protocol = nil
		g.subscribe()
		g.moveTo(stateEmpty, now)
		m.log.Info("group is empty", "group", g.id, "generation", g.generation)
		g.store(out, ownAssignment)
		return
	}
	chosen := g.choose()
	g.protocol = &chosen
	g.subscribe()
	g.moveTo(stateCompletingRebalance, now)
	m.log.Info("group has a new generation", "group", g.id, "generation", g.generation, "members", len(g.order), "protocol", chosen)
	for _, n := range g.order {
		g.answerJoin(n, g.joined(n), out)
		m.touch(now, n)
		n.isNew = false
		n.owesSync = true
	}
	generation := g.generation
	g.syncTimer.fire = func(now time.Time, out *coordinator.Output) { m.syncTimeOver(g, generation, now, out) }
	m.timers.start(&g.syncTimer, millis(now)+g.rebalanceTimeoutMillis())
}

// electLeader makes the first member that joined the leader if the present one did not. It gives false if there are
// members and none of them joined.
func (g *classic) electLeader() bool {
	if g.leader == "" || g.members[g.leader].joinParked() {
		return true
	}
	i := slices.IndexFunc(g.order, (*member).joinParked)
	if i >= 0 {
		g.leader = g.order[i].id
	}
	return i >= 0
}

// joined is the answer to a member that is part of the present generation. The leader gets to know all members.
func (g *classic) joined(n *member) *kmsg.JoinGroupResponse {
	resp := kmsg.NewPtrJoinGroupResponse()
	resp.Generation = g.generation
	protocolType := g.protocolType
	resp.ProtocolType = &protocolType
	resp.Protocol = g.protocol
	resp.LeaderID = g.leader
	resp.MemberID = n.id
	if g.leader == n.id {
		resp.Members = g.roll()
	}
	return resp
}

// roll is what the leader gets to know of all members.
func (g *classic) roll() []kmsg.JoinGroupResponseMember {
	all := make([]kmsg.JoinGroupResponseMember, len(g.order))
	for i, o := range g.order {
		all[i] = kmsg.JoinGroupResponseMember{MemberID: o.id, InstanceID: o.instanceID, ProtocolMetadata: o.metadata(g.protocol)}
	}
	return all
}

// syncTimeOver removes the members that got the new generation and never asked for their assignment.
func (m *Machine) syncTimeOver(g *group, generation int32, now time.Time, out *coordinator.Output) {
	if g.generation != generation || g.owedSyncs() == 0 {
		return
	}
	for _, n := range slices.Clone(g.order) {
		if n.owesSync {
			m.remove(g, n, out)
		}
	}
	m.prepareRebalance(g, now, "members did not ask for their assignment in time", out)
}

// resetAssignments takes all assignments back and answers the parked syncs with an error.
func (m *Machine) resetAssignments(g *group, now time.Time, err *kerr.Error, out *coordinator.Output) {
	for _, n := range g.order {
		n.assignment = []byte{}
		if answerSync(n, refuseSync(err), out) {
			m.touch(now, n)
		}
	}
}

// sessionEnded removes a member that was silent for too long. One whose request is parked is known to be there; its
// session starts anew when it is answered. Only a new member's join does not hold forever: it has no session.
func (m *Machine) sessionEnded(g *group, n *member, now time.Time, out *coordinator.Output) {
	if !n.isNew && (n.joinParked() || n.syncParked()) {
		return
	}
	m.log.Info("removing a member that was not heard of", "group", g.id, "member", n.id)
	m.remove(g, n, out)
	m.rebalance(g, now, "the session of a member ended", out)
}
