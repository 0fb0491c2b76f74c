package groupcoordinator

import (
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/coordinator"
)

// stateDead is what a group that doesn't exist is described as.
const stateDead = "Dead"

// DescribeGroup describes a group of the classic protocol; the answer is a *kmsg.DescribeGroupsResponseGroup.
func (m *Machine) DescribeGroup(to coordinator.Token, id string, version int16) coordinator.Output {
	return to.Reply(m.describe(id, version))
}

func (m *Machine) describe(id string, version int16) *kmsg.DescribeGroupsResponseGroup {
	row := new(kmsg.NewDescribeGroupsResponseGroup())
	row.Group = id
	g := m.groups[id]
	if g == nil || g.kind != kindClassic {
		row.State = stateDead
		if version >= 6 {
			row.ErrorCode = kerr.GroupIDNotFound.Code
			message := "Group " + id + " not found."
			if g != nil {
				message = "Group " + id + " is not a classic group."
			}
			row.ErrorMessage = &message
		}
		return row
	}
	row.State = g.state.String()
	row.ProtocolType = g.protocolType
	if g.state == stateStable {
		row.Protocol = value(g.protocol)
	}
	row.Members = make([]kmsg.DescribeGroupsResponseGroupMember, len(g.order))
	for i, n := range g.order {
		d := &row.Members[i]
		d.MemberID, d.InstanceID = n.id, n.instanceID
		d.ClientID, d.ClientHost = n.clientID, n.clientHost
		d.MemberAssignment = n.assignment
		d.ProtocolMetadata = []byte{}
		if g.state == stateStable {
			d.ProtocolMetadata = n.metadata(g.protocol)
		}
	}
	return row
}

// ListGroups lists the groups that are in one of the states and of one of the types; an empty list of either asks for
// all. The answer is a []kmsg.ListGroupsResponseGroup, ascending.
func (m *Machine) ListGroups(to coordinator.Token, states, types []string) coordinator.Output {
	rows := []kmsg.ListGroupsResponseGroup{}
	if len(types) > 0 && !containsFold(types, "classic") {
		return to.Reply(rows)
	}
	for _, id := range m.groupIDs() {
		g := m.groups[id]
		if g.kind != kindClassic || len(states) > 0 && !containsFold(states, g.state.String()) {
			continue
		}
		row := kmsg.NewListGroupsResponseGroup()
		row.Group = id
		row.ProtocolType = g.protocolType
		row.GroupState = g.state.String()
		row.GroupType = "classic"
		rows = append(rows, row)
	}
	return to.Reply(rows)
}

func containsFold(list []string, want string) bool {
	return slices.ContainsFunc(list, func(s string) bool { return strings.EqualFold(s, want) })
}

// DeleteGroup deletes a group without members, and all its offsets; the answer is a *kmsg.DeleteGroupsResponseGroup.
// Offsets of open transactions go too, and don't come back with the commit.
func (m *Machine) DeleteGroup(to coordinator.Token, id string) coordinator.Output {
	row := new(kmsg.NewDeleteGroupsResponseGroup())
	row.Group = id
	if err := m.checkDelete(id); err != nil {
		row.ErrorCode = err.Code
		return to.Reply(row)
	}
	records := m.groups[id].offsetTombstones(func(string) bool { return true })
	m.metrics.deleted(len(records))
	return inBatches(append(records, groupTombstone(id)), to, row)
}

func (m *Machine) checkDelete(id string) *kerr.Error {
	g := m.groups[id]
	switch {
	case g == nil:
		return kerr.GroupIDNotFound
	case g.kind != kindClassic || g.state != stateEmpty:
		return kerr.NonEmptyGroup
	}
	return nil
}

// Summary is the number of groups of the classic protocol by the name of their state, zeros included.
type Summary map[string]int

// Summarize counts groups; the answer is a Summary.
func (m *Machine) Summarize(to coordinator.Token) coordinator.Output {
	s := Summary{}
	for st := stateEmpty; st <= stateStable; st++ {
		s[st.String()] = 0
	}
	for _, g := range m.groups {
		if g.kind == kindClassic {
			s[g.state.String()]++
		}
	}
	return to.Reply(s)
}
