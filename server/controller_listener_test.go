package server

import (
	"fmt"
	"net"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// A controller's listener serves what Kafka's tools ask a controller for, and closes the connection to whoever came by mistake.
func TestControllerListener(t *testing.T) {
	s := startServer(t, "listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0", "controller.listener.names=CONTROLLER")
	address := s.Addrs()["CONTROLLER"].String()
	dialController := func() *client {
		conn, err := net.Dial("tcp", address)
		if err != nil {
			t.Fatal(err)
		}
		t.Cleanup(func() { conn.Close() })
		return &client{t: t, conn: conn}
	}
	c := dialController()
	// Those of a controller of Apache Kafka 4.4, without what controllers and brokers say to each other.
	want := "[17 18 19 20 29 30 31 32 33 36 37 38 39 40 41 43 44 45 46 49 50 51 55 57 60 64]"
	var keys []int16
	for _, k := range do[*kmsg.ApiVersionsResponse](c, kmsg.NewPtrApiVersionsRequest()).ApiKeys {
		keys = append(keys, k.ApiKey)
	}
	if got := fmt.Sprint(keys); got != want {
		t.Errorf("serves %s, want %s", got, want)
	}
	cluster := kmsg.NewPtrDescribeClusterRequest()
	cluster.Version, cluster.EndpointType = 1, endpointControllers
	resp := do[*kmsg.DescribeClusterResponse](c, cluster)
	if resp.EndpointType != endpointControllers || resp.ControllerID != 1 || len(resp.Brokers) != 1 ||
		fmt.Sprintf("%s:%d", resp.Brokers[0].Host, resp.Brokers[0].Port) != address {
		t.Errorf("%+v, want the controller at %s", resp, address)
	}
	cluster.EndpointType = endpointBrokers
	resp = do[*kmsg.DescribeClusterResponse](c, cluster)
	if resp.ErrorMessage == nil || *resp.ErrorMessage != "The request was sent to an endpoint of type CONTROLLER, but we wanted an endpoint of type BROKER" {
		t.Errorf("%+v", resp)
	}
	quorum := kmsg.NewPtrDescribeQuorumRequest()
	quorum.Version, quorum.Topics = 2, []kmsg.DescribeQuorumRequestTopic{{Topic: metadataTopic, Partitions: []kmsg.DescribeQuorumRequestTopicPartition{{}}}}
	described := do[*kmsg.DescribeQuorumResponse](c, quorum)
	if l := described.Nodes[0].Listeners; len(l) != 1 || l[0].Name != "CONTROLLER" || fmt.Sprintf("%s:%d", l[0].Host, l[0].Port) != address {
		t.Errorf("%+v, want the listener at %s", described.Nodes, address)
	}
	if got := c.alter(kmsg.ConfigResourceTypeBroker, "", "log.retention.ms=7777"); got != "0 null" {
		t.Errorf("a setting is refused: %s", got)
	}
	c.send(kmsg.NewPtrMetadataRequest())
	c.expectClosedOrReset()
	produce := dialController()
	produce.send(produceRequest(9, "t", 0, -1, batch(t, 1, 10)))
	produce.expectClosedOrReset()
}
