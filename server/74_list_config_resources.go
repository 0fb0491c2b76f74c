package server

import (
	"slices"
	"strconv"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// ListConfigResources (74), versions 0 and 1.
//
// Behavior
//   - Names what can have configs: all topics and brokers, loggers by broker, and the groups and client metrics subscriptions that have some.
//   - Types may come in any order and twice, none asks for all. One that does not exist makes the whole UNSUPPORTED_VERSION.
//   - Kinds come in Kafka's order, names ascending.
//
// Version notes
//   - 0 was ListClientMetricsResources: those only, and without types (KIP-1142).

// listedKinds are the kinds of config resources, in the order of the answer.
var listedKinds = []kmsg.ConfigResourceType{
	kmsg.ConfigResourceTypeGroupConfig, kmsg.ConfigResourceTypeClientMetrics, kmsg.ConfigResourceTypeBrokerLogger,
	kmsg.ConfigResourceTypeBroker, kmsg.ConfigResourceTypeTopic,
}

func (s *Server) handleListConfigResources(r *request) pending {
	req := r.body.(*kmsg.ListConfigResourcesRequest)
	resp := req.ResponseKind().(*kmsg.ListConfigResourcesResponse)
	wanted := req.ResourceTypes
	if req.Version == 0 {
		wanted = []int8{int8(kmsg.ConfigResourceTypeClientMetrics)}
	}
	for _, kind := range wanted {
		if !slices.Contains(listedKinds, kmsg.ConfigResourceType(kind)) {
			resp.ErrorCode = kerr.UnsupportedVersion.Code
			return answer(resp)
		}
	}
	for _, kind := range listedKinds {
		if len(wanted) > 0 && !slices.Contains(wanted, int8(kind)) {
			continue
		}
		for _, name := range s.configResources(kind) {
			row := kmsg.NewListConfigResourcesResponseConfigResource()
			row.Name, row.Type = name, int8(kind)
			resp.ConfigResources = append(resp.ConfigResources, row)
		}
	}
	return answer(resp)
}

func (s *Server) configResources(kind kmsg.ConfigResourceType) (names []string) {
	im := s.image()
	switch kind {
	case kmsg.ConfigResourceTypeTopic:
		for t := range im.Topics() {
			names = append(names, t.Name)
		}
	case kmsg.ConfigResourceTypeBroker, kmsg.ConfigResourceTypeBrokerLogger:
		for _, b := range im.Brokers() {
			names = append(names, strconv.Itoa(int(b.ID)))
		}
	default:
		names = slices.Collect(im.ConfigNames(kind))
	}
	return names
}
