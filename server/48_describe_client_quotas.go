package server

import (
	"fmt"
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/cluster"
)

// DescribeClientQuotas (48), versions 0 and 1.
//
// Behavior
//   - Gives what has been set for the entities that match all components of the filter: a user, client id or address of that name, the
//     default, or any. Strict: and that have no other part.
//   - A type may come once, and addresses with neither users nor client ids: INVALID_REQUEST. A type that does not exist is
//     UNSUPPORTED_VERSION. Entries are null then; on success ErrorMessage is "".
//   - Entities come in a fixed order, limits ascending by name; Kafka's order is that of a hash map.
//
// Version notes
//   - 1: flexible.

// How a component of a filter matches.
const (
	quotaMatchExact   kmsg.QuotasMatchType = 0
	quotaMatchDefault kmsg.QuotasMatchType = 1
	quotaMatchAny     kmsg.QuotasMatchType = 2
)

func (s *Server) handleDescribeClientQuotas(r *request) pending {
	req := r.body.(*kmsg.DescribeClientQuotasRequest)
	resp := req.ResponseKind().(*kmsg.DescribeClientQuotasResponse)
	if err := checkQuotaFilter(req.Components); err != nil {
		resp.ErrorCode, resp.ErrorMessage = errorCode(err), errorMessage(err)
		return answer(resp)
	}
	resp.ErrorMessage = new("")
	resp.Entries = []kmsg.DescribeClientQuotasResponseEntry{}
	for q := range s.image().ClientQuotas() {
		if matchesQuota(q, req) {
			resp.Entries = append(resp.Entries, describedQuota(q))
		}
	}
	return answer(resp)
}

func checkQuotaFilter(components []kmsg.DescribeClientQuotasRequestComponent) error {
	seen := map[string]bool{}
	for _, c := range components {
		switch {
		case c.EntityType == "":
			return withMessage(kerr.InvalidRequest, "Invalid empty entity type.")
		case seen[c.EntityType]:
			return withMessage(kerr.InvalidRequest, "Entity type %s cannot appear more than once in the filter.", c.EntityType)
		case c.EntityType != cluster.QuotaUser && c.EntityType != cluster.QuotaClientID && c.EntityType != cluster.QuotaIP:
			return withMessage(kerr.UnsupportedVersion, "Unsupported entity type %s", c.EntityType)
		}
		seen[c.EntityType] = true
		if err := checkQuotaMatch(c); err != nil {
			return err
		}
	}
	if seen[cluster.QuotaIP] && len(seen) > 1 {
		return withMessage(kerr.InvalidRequest, "Invalid entity filter component combination. "+
			"IP filter component should not be used with user or clientId filter component.")
	}
	return nil
}

func checkQuotaMatch(c kmsg.DescribeClientQuotasRequestComponent) error {
	const also = "Request specified %s, but also specified a match string."
	switch c.MatchType {
	case quotaMatchExact:
		if c.Match == nil {
			return withMessage(kerr.InvalidRequest, "Request specified MATCH_TYPE_EXACT, but set match string to null.")
		}
	case quotaMatchDefault:
		if c.Match != nil {
			return withMessage(kerr.InvalidRequest, also, "MATCH_TYPE_DEFAULT")
		}
	case quotaMatchAny:
		if c.Match != nil {
			return withMessage(kerr.InvalidRequest, also, "MATCH_TYPE_SPECIFIED")
		}
	default:
		return withMessage(kerr.InvalidRequest, "Unknown match type %s", fmt.Sprint(int8(c.MatchType)))
	}
	return nil
}

func matchesQuota(q *cluster.ClientQuota, req *kmsg.DescribeClientQuotasRequest) bool {
	if req.Strict && len(q.Entity) != len(req.Components) {
		return false
	}
	for _, c := range req.Components {
		i := slices.IndexFunc(q.Entity, func(p cluster.QuotaPart) bool { return p.Type == c.EntityType })
		if i < 0 {
			return false
		}
		name := q.Entity[i].Name
		switch c.MatchType {
		case quotaMatchExact:
			if name == nil || *name != *c.Match {
				return false
			}
		case quotaMatchDefault:
			if name != nil {
				return false
			}
		}
	}
	return true
}

func describedQuota(q *cluster.ClientQuota) kmsg.DescribeClientQuotasResponseEntry {
	row := kmsg.NewDescribeClientQuotasResponseEntry()
	for _, p := range q.Entity {
		part := kmsg.NewDescribeClientQuotasResponseEntryEntity()
		part.Type, part.Name = p.Type, p.Name
		row.Entity = append(row.Entity, part)
	}
	for _, key := range slices.Sorted(maps.Keys(q.Limits)) {
		v := kmsg.NewDescribeClientQuotasResponseEntryValue()
		v.Key, v.Value = key, q.Limits[key]
		row.Values = append(row.Values, v)
	}
	return row
}
