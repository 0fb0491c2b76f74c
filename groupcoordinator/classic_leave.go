package groupcoordinator

import (
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/coordinator"
)

// LeaveGroup takes members out of a group; the answer is a *kmsg.LeaveGroupResponse.
func (m *Machine) LeaveGroup(now time.Time, to coordinator.Token, r *kmsg.LeaveGroupRequest) coordinator.Output {
	resp := kmsg.NewPtrLeaveGroupResponse()
	resp.Version = r.Version
	if r.Group == "" {
		resp.ErrorCode = kerr.InvalidGroupID.Code
		return to.Reply(resp)
	}
	leaving := r.Members
	if r.Version < 3 {
		leaving = []kmsg.LeaveGroupRequestMember{{MemberID: r.MemberID}}
	}
	var out coordinator.Output
	g := m.groups[r.Group]
	gone := false
	for i := range leaving {
		l := &leaving[i]
		err := m.leave(g, l, &out)
		row := kmsg.NewLeaveGroupResponseMember()
		row.MemberID, row.InstanceID = l.MemberID, l.InstanceID
		if err != nil {
			row.ErrorCode = err.Code
		} else {
			gone = true
		}
		resp.Members = append(resp.Members, row)
	}
	if r.Version < 3 {
		resp.ErrorCode, resp.Members = resp.Members[0].ErrorCode, nil
	}
	if gone && g.state != stateEmpty {
		m.rebalance(g, now, "members leave", &out)
	}
	out.Replies = append(out.Replies, coordinator.Reply{To: to, Value: resp})
	return out
}

// leave takes one member out. A member id of "" with an instance id is an operator's removal of a static member,
// whoever it is now.
func (m *Machine) leave(g *group, l *kmsg.LeaveGroupRequestMember, out *coordinator.Output) *kerr.Error {
	if g == nil || g.kind != kindClassic {
		return kerr.UnknownMemberID
	}
	if l.MemberID == "" {
		if l.InstanceID == nil || g.instances[*l.InstanceID] == nil {
			return kerr.UnknownMemberID
		}
		m.remove(g, g.instances[*l.InstanceID], out)
		return nil
	}
	if t, ok := g.pendingJoin[l.MemberID]; ok {
		m.timers.stop(t)
		delete(g.pendingJoin, l.MemberID)
		return nil
	}
	if err := g.checkMember(l.MemberID, l.InstanceID); err != nil {
		return err
	}
	m.log.Info("a member leaves a group", "group", g.id, "member", l.MemberID, "reason", value(l.Reason))
	m.remove(g, g.members[l.MemberID], out)
	return nil
}
