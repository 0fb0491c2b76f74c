package server

import (
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/cluster"
)

// DescribeCluster (60), versions 0 to 2.
//
// Behavior
//   - Lists the brokers that have the listener that the request came in on, each with its endpoint there, ascending by id.
//   - The brokers' listeners describe brokers (endpoint type 1) only, the controllers' controllers (2): the other one is refused
//     with MISMATCHED_ENDPOINT_TYPE, anything else with UNSUPPORTED_ENDPOINT_TYPE; the cluster id is "" and the controller -1 then.
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
	if err := checkEndpointType(r, req.EndpointType); err != nil {
		resp.ErrorCode, resp.ErrorMessage = errorCode(err), errorMessage(err)
		resp.ControllerID = -1
		return answer(resp)
	}
	im := s.image()
	resp.ClusterID = im.ClusterID
	if r.onController() {
		resp.EndpointType = endpointControllers
	}
	resp.ControllerID = im.ControllerID
	if r.onController() {
		node := kmsg.NewDescribeClusterResponseBroker()
		node.NodeID = s.nodeID
		node.Host, node.Port = splitAddr(r.conn.socket.LocalAddr())
		resp.Brokers = append(resp.Brokers, node)
	} else {
		resp.Brokers = s.describedBrokers(r, im, req.IncludeFencedBrokers)
	}
	if req.IncludeClusterAuthorizedOperations {
		resp.ClusterAuthorizedOperations = clusterOperations
	}
	return answer(resp)
}

func (s *Server) describedBrokers(r *request, im *cluster.Image, fenced bool) (rows []kmsg.DescribeClusterResponseBroker) {
	for _, b := range im.Brokers() {
		if b.Fenced && !fenced {
			continue
		}
		host, port := s.endpoint(r, b)
		if host == "" {
			continue
		}
		node := kmsg.NewDescribeClusterResponseBroker()
		node.NodeID, node.Host, node.Port = b.ID, host, port
		node.Rack, node.IsFenced = b.Rack, b.Fenced
		rows = append(rows, node)
	}
	return rows
}

func checkEndpointType(r *request, wanted int8) error {
	here, names := endpointBrokers, map[int8]string{endpointBrokers: "BROKER", endpointControllers: "CONTROLLER"}
	if r.onController() {
		here = endpointControllers
	}
	switch {
	case wanted == here:
		return nil
	case names[wanted] != "":
		return withMessage(kerr.MismatchedEndpointType,
			"The request was sent to an endpoint of type %s, but we wanted an endpoint of type %s", names[here], names[wanted])
	}
	return withMessage(kerr.UnsupportedEndpointType, "Unsupported endpoint type %d", wanted)
}
