package server

import (
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/cluster"
)

// DescribeUserScramCredentials (50), version 0.
//
// Behavior
//   - Gives the mechanisms that users can log in with, and their iterations. Null or no users ask for all.
//   - A user without credentials is RESOURCE_NOT_FOUND, one that is named twice DUPLICATE_RESOURCE, once.
//   - ErrorMessage is "" on success.
//   - Users come in the order of the request, or ascending; Kafka's order is that of a hash map.

func (s *Server) handleDescribeUserSCRAMCredentials(r *request) pending {
	req := r.body.(*kmsg.DescribeUserSCRAMCredentialsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeUserSCRAMCredentialsResponse)
	resp.ErrorMessage = new("")
	im := s.image()
	if len(req.Users) == 0 {
		for u := range im.ScramUsers() {
			resp.Results = append(resp.Results, describedUser(u))
		}
		return answer(resp)
	}
	times := map[string]int{}
	for _, u := range req.Users {
		times[u.Name]++
	}
	for _, u := range req.Users {
		if times[u.Name] == 0 {
			continue // had its answer
		}
		var err error
		user := im.ScramUser(u.Name)
		switch {
		case times[u.Name] > 1:
			err = withMessage(kerr.DuplicateResource, "Cannot describe SCRAM credentials for the same user twice in a single request: %s", u.Name)
		case user == nil:
			err = withMessage(kerr.ResourceNotFound, "Attempt to describe a user credential that does not exist: %s", u.Name)
		default:
			resp.Results = append(resp.Results, describedUser(user))
		}
		times[u.Name] = 0
		if err != nil {
			row := kmsg.NewDescribeUserSCRAMCredentialsResponseResult()
			row.User, row.ErrorCode, row.ErrorMessage = u.Name, errorCode(err), errorMessage(err)
			resp.Results = append(resp.Results, row)
		}
	}
	return answer(resp)
}

func describedUser(u *cluster.ScramUser) kmsg.DescribeUserSCRAMCredentialsResponseResult {
	row := kmsg.NewDescribeUserSCRAMCredentialsResponseResult()
	row.User, row.ErrorMessage = u.Name, new("")
	for _, mechanism := range slices.Sorted(maps.Keys(u.Credentials)) {
		c := kmsg.NewDescribeUserSCRAMCredentialsResponseResultCredentialInfo()
		c.Mechanism, c.Iterations = mechanism, u.Credentials[mechanism].Iterations
		row.CredentialInfos = append(row.CredentialInfos, c)
	}
	return row
}
