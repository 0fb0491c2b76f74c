package server

import (
	"context"
	"math"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/coordinator"
	"oncelog/groupcoordinator"
)

// DescribeGroups (15), versions 0 to 6.
//
// Behavior
//   - Tells state and members of groups of the classic protocol, in the order of the request. The members' metadata and
//     the protocol are shown for stable groups only, the assignments always.
//   - A group that isn't there, or is of another kind, is Dead.
//
// Version notes: v3 adds the authorized operations; v4 the instance ids; v5 is flexible; v6 says GROUP_ID_NOT_FOUND
// with a message of a group that is Dead, where up to v5 there is no error.

func (s *Server) handleDescribeGroups(r *request) pending {
	req := r.body.(*kmsg.DescribeGroupsRequest)
	names, places := distinct(req.Groups)
	calls := s.eachGroup(names, func(m *groupcoordinator.Machine, to coordinator.Token, group string) coordinator.Output {
		return m.DescribeGroup(to, group, req.Version)
	})
	return calls.pending(func(ctx context.Context) kmsg.Response {
		resp := req.ResponseKind().(*kmsg.DescribeGroupsResponse)
		again, told := newRepeats(), 0 // of names
		for i, group := range req.Groups {
			row := kmsg.NewDescribeGroupsResponseGroup()
			v, err := calls[places[i]].await(ctx)
			if err == nil {
				row = *v.(*kmsg.DescribeGroupsResponseGroup)
				if places[i] < told && !again.take(sizeOfGroup(&row)) {
					row, err = kmsg.NewDescribeGroupsResponseGroup(), errRepeats
					row.ErrorMessage = errorMessage(err)
				}
			}
			told = max(told, places[i]+1)
			if err != nil {
				row.Group, row.ErrorCode = group, s.groupCode(err)
			}
			row.AuthorizedOperations = math.MinInt32
			if req.IncludeAuthorizedOperations && row.ErrorCode == 0 {
				row.AuthorizedOperations = groupOperations
			}
			resp.Groups = append(resp.Groups, row)
		}
		return resp
	})
}

// distinct gives the names, each once, and where each of them is among those.
func distinct(names []string) (once []string, places []int) {
	at := make(map[string]int, len(names))
	places = make([]int, len(names))
	for i, name := range names {
		place, known := at[name]
		if !known {
			place = len(once)
			at[name] = place
			once = append(once, name)
		}
		places[i] = place
	}
	return once, places
}

// groupCall is an operation on one of several groups of a request.
type groupCall struct {
	pending coordinator.Pending
	err     error // of finding the group's coordinator
}

type groupCalls []groupCall

// eachGroup starts an operation on each of several groups, which may live on different shards.
func (s *Server) eachGroup(groups []string, op func(m *groupcoordinator.Machine, to coordinator.Token, group string) coordinator.Output) groupCalls {
	calls := make(groupCalls, len(groups))
	for i, group := range groups {
		shard, err := s.groupShard(group)
		if err != nil {
			calls[i].err = err
			continue
		}
		calls[i].pending = shard.Do(func(m *groupcoordinator.Machine, _ time.Time, to coordinator.Token) coordinator.Output {
			return op(m, to, group)
		})
	}
	return calls
}

func (c *groupCall) ready() bool { return c.err != nil || c.pending.Ready() }

func (c *groupCall) await(ctx context.Context) (any, error) {
	if c.err != nil {
		return nil, c.err
	}
	return c.pending.Await(ctx)
}

// pending is the pending of a response that is made of all the calls.
func (cs groupCalls) pending(finish func(context.Context) kmsg.Response) pending {
	for i := range cs {
		if !cs[i].ready() {
			return await(finish)
		}
	}
	return answer(finish(context.Background()))
}
