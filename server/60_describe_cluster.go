package server

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// DescribeCluster (60), versions 0 to 2.
//
// Behavior
//   - Lists the brokers that have the listener that the request came in on, each with its endpoint there, ascending by id.
//   - The brokers' listeners describe brokers only. Endpoint type 2 (controllers) is refused with MISMATCHED_ENDPOINT_TYPE,
//     anything else with UNSUPPORTED_ENDPOINT_TYPE; the cluster id is "" and the controller -1 then.
//   - Without an authorizer everybody may do everything that can be done to a cluster.
//
// Version notes
//   - 1: endpoint type (KIP-919).
//   - 2: fenced brokers are listed when asked for, and marked (KIP-1073). Before, they are left out.

const (
	endpointBrokers     int8 = 1
	endpointControllers int8 = 2
)

// clusterOperations are the operations that an ACL can allow on the cluster, as a bit field.
const clusterOperations = 1<<kmsg.ACLOperationCreate | 1<<kmsg.ACLOperationAlter | 1<<kmsg.ACLOperationDescribe | 1<<kmsg.ACLOperationClusterAction |
	1<<kmsg.ACLOperationDescribeConfigs | 1<<kmsg.ACLOperationAlterConfigs | 1<<kmsg.ACLOperationIdempotentWrite

func (s *Server) handleDescribeCluster(r *request) pending {
	req := r.body.(*kmsg.DescribeClusterRequest)
	resp := req.ResponseKind().(*kmsg.DescribeClusterResponse)
	if err := checkEndpointType(req.EndpointType); err != nil {
		resp.ErrorCode, resp.ErrorMessage = errorCode(err), errorMessage(err)
		resp.ControllerID = -1
		return answer(resp)
	}
	im := s.image()
	resp.ClusterID = im.ClusterID
	resp.ControllerID = im.ControllerID
	for _, b := range im.Brokers() {
		if b.Fenced && !req.IncludeFencedBrokers {
			continue
		}
		host, port := s.endpoint(r, b)
		if host == "" {
			continue
		}
		node := kmsg.NewDescribeClusterResponseBroker()
		node.NodeID, node.Host, node.Port = b.ID, host, port
		node.Rack, node.IsFenced = b.Rack, b.Fenced
		resp.Brokers = append(resp.Brokers, node)
	}
	if req.IncludeClusterAuthorizedOperations {
		resp.ClusterAuthorizedOperations = clusterOperations
	}
	return answer(resp)
}

func checkEndpointType(t int8) error {
	switch t {
	case endpointBrokers:
		return nil
	case endpointControllers:
		return withMessage(kerr.MismatchedEndpointType,
			"The request was sent to an endpoint of type BROKER, but we wanted an endpoint of type CONTROLLER")
	default:
		return withMessage(kerr.UnsupportedEndpointType, "Unsupported endpoint type %d", t)
	}
}
