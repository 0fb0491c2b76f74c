package server

import (
	"context"

	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/coordinator"
	"oncelog/groupcoordinator"
)

// DeleteGroups (42), versions 0 to 3.
//
// Behavior
//   - Deletes groups without members with all their offsets, those of open transactions too. A group with members is
//     NON_EMPTY_GROUP, one that isn't there GROUP_ID_NOT_FOUND.
//   - A group that is named twice has one row.
//
// Version notes: v2 is flexible; v3 adds messages.

func (s *Server) handleDeleteGroups(r *request) pending {
	req := r.body.(*kmsg.DeleteGroupsRequest)
	groups, _ := distinct(req.Groups)
	calls := s.eachGroup(groups, func(m *groupcoordinator.Machine, to coordinator.Token, group string) coordinator.Output {
		return m.DeleteGroup(to, group)
	})
	return calls.pending(func(ctx context.Context) kmsg.Response {
		resp := req.ResponseKind().(*kmsg.DeleteGroupsResponse)
		for i, group := range groups {
			row := kmsg.NewDeleteGroupsResponseGroup()
			v, err := calls[i].await(ctx)
			if err != nil {
				row.Group, row.ErrorCode = group, s.groupCode(err)
			} else {
				row = *v.(*kmsg.DeleteGroupsResponseGroup)
			}
			resp.Groups = append(resp.Groups, row)
		}
		return resp
	})
}
