package groupcoordinator

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/coordinator"
)

// SyncGroup gives a member its assignment, once the leader has sent all of them; the answer is a
// *kmsg.SyncGroupResponse. The machine keeps the assignments.
func (m *Machine) SyncGroup(now time.Time, to coordinator.Token, r *kmsg.SyncGroupRequest) coordinator.Output {
	g, err := m.checkSync(r)
	if err != nil {
		return to.Reply(refuseSync(err))
	}
	n := g.members[r.MemberID]
	n.owesSync = false
	if g.owedSyncs() == 0 {
		m.timers.stop(&g.syncTimer)
	}
	if g.state == stateStable {
		m.touch(now, n)
		return to.Reply(g.synced(n))
	}
	var out coordinator.Output
	// One that is still parked belongs to a connection that the client gave up.
	answerSync(n, refuseSync(kerr.RebalanceInProgress), &out)
	n.sync = to
	if g.leader == n.id {
		m.assign(g, now, r, &out)
	}
	return out
}

func (m *Machine) checkSync(r *kmsg.SyncGroupRequest) (*group, *kerr.Error) {
	g, err := m.checkSender(r.Group, r.MemberID, r.InstanceID, r.Generation)
	switch {
	case err != nil:
		return nil, err
	case r.ProtocolType != nil && *r.ProtocolType != g.protocolType,
		r.Protocol != nil && (g.protocol == nil || *r.Protocol != *g.protocol):
		return nil, kerr.InconsistentGroupProtocol
	case g.state == statePreparingRebalance:
		return nil, kerr.RebalanceInProgress
	}
	return g, nil
}

// checkSender is whether the sender of a request is a member of a classic group, in its present generation.
func (m *Machine) checkSender(group, memberID string, instanceID *string, generation int32) (*group, *kerr.Error) {
	if group == "" {
		return nil, kerr.InvalidGroupID
	}
	g := m.groups[group]
	if g == nil || g.kind != kindClassic {
		return nil, kerr.UnknownMemberID
	}
	if err := g.checkMember(memberID, instanceID); err != nil {
		return nil, err
	}
	if generation != g.generation {
		return nil, kerr.IllegalGeneration
	}
	return g, nil
}

// assign stores the leader's assignments. Only when they are stored do the members get them.
func (m *Machine) assign(g *group, now time.Time, r *kmsg.SyncGroupRequest, out *coordinator.Output) {
	assignments := make(map[string][]byte, len(r.GroupAssignment))
	for i := range r.GroupAssignment {
		assignments[r.GroupAssignment[i].MemberID] = r.GroupAssignment[i].MemberAssignment
	}
	assignment := func(n *member) []byte {
		if a := assignments[n.id]; a != nil {
			return a
		}
		return []byte{}
	}
	g.store(out, assignment)
	out.Next = []coordinator.Step{func(now time.Time) coordinator.Output {
		var stable coordinator.Output
		m.becomeStable(g, now, &stable)
		return stable
	}}
	replies := out.Replies
	out.Failed = func(err error) []coordinator.Reply { return append(replies, m.assignFailed(g, now, err)...) }
}

// becomeStable gives the members the assignments that were just stored.
func (m *Machine) becomeStable(g *group, now time.Time, out *coordinator.Output) {
	g.moveTo(stateStable, now)
	m.log.Info("group is stable", "group", g.id, "generation", g.generation, "members", len(g.order))
	for i, n := range g.order {
		n.assignment = g.stored.members[i].assignment
		if answerSync(n, g.synced(n), out) {
			m.touch(now, n)
		}
	}
}

// assignFailed tells the members that the assignments are lost, and makes them join again.
func (m *Machine) assignFailed(g *group, now time.Time, err error) []coordinator.Reply {
	var replies []coordinator.Reply
	for _, n := range g.order {
		if n.syncParked() {
			replies = append(replies, coordinator.Reply{To: n.sync, Err: err})
			n.sync = coordinator.Token{}
			m.touch(now, n)
		}
	}
	var rest coordinator.Output
	m.prepareRebalance(g, now, "the assignments could not be stored: "+err.Error(), &rest)
	return append(replies, rest.Replies...)
}

func (g *classic) synced(n *member) *kmsg.SyncGroupResponse {
	resp := kmsg.NewPtrSyncGroupResponse()
	protocolType := g.protocolType
	resp.ProtocolType = &protocolType
	resp.Protocol = g.protocol
	resp.MemberAssignment = n.assignment
	return resp
}

// Heartbeat tells that a member lives, and tells the member whether its group does; the answer is a
// *kmsg.HeartbeatResponse.
func (m *Machine) Heartbeat(now time.Time, to coordinator.Token, r *kmsg.HeartbeatRequest) coordinator.Output {
	resp := kmsg.NewPtrHeartbeatResponse()
	resp.Version = r.Version
	g, err := m.checkSender(r.Group, r.MemberID, r.InstanceID, r.Generation)
	if err != nil {
		resp.ErrorCode = err.Code
		return to.Reply(resp)
	}
	m.touch(now, g.members[r.MemberID])
	if g.state == statePreparingRebalance {
		resp.ErrorCode = kerr.RebalanceInProgress.Code
	}
	return to.Reply(resp)
}
