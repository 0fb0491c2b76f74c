package server

import (
	"encoding/hex"
	"fmt"
	"net"
	"slices"
	"strconv"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func apiVersions(version int16) *kmsg.ApiVersionsRequest {
	req := kmsg.NewPtrApiVersionsRequest()
	req.Version, req.ClientSoftwareName, req.ClientSoftwareVersion = version, "test", "1.0"
	return req
}

// What is advertised is what the table has, ascending; Produce from 0 on for
// librdkafka's sake.
func TestApiVersionsIsTheTable(t *testing.T) {
	s := startServer(t)
	c := dial(t, s)
	for version := range int16(6) {
		resp := do[*kmsg.ApiVersionsResponse](c, apiVersions(version))
		if resp.ErrorCode != 0 || len(resp.ApiKeys) != len(apis)-2 { // without those of telemetry
			t.Fatalf("v%d: error %d, %d keys", version, resp.ErrorCode, len(resp.ApiKeys))
		}
		for i, k := range resp.ApiKeys {
			if i > 0 && k.ApiKey <= resp.ApiKeys[i-1].ApiKey {
				t.Errorf("key %d follows %d", k.ApiKey, resp.ApiKeys[i-1].ApiKey)
			}
			row := apiOf(k.ApiKey)
			if k.MaxVersion != row.max || k.MinVersion != row.min && k.ApiKey != 0 || k.ApiKey == 0 && k.MinVersion != 0 {
				t.Errorf("key %d: %d to %d", k.ApiKey, k.MinVersion, k.MaxVersion)
			}
		}
		if version < 3 {
			continue
		}
		names := map[string]int16{}
		for _, f := range resp.SupportedFeatures {
			names[f.Name] = f.MaxVersion
		}
		if want := map[bool]int{true: 2, false: 1}[version >= 4]; len(names) != want || names["metadata.version"] != 33 {
			t.Errorf("v%d supports %v", version, names)
		}
		finalized := map[string]int16{}
		for _, f := range resp.FinalizedFeatures {
			finalized[f.Name] = f.MaxVersionLevel
		}
		if finalized["metadata.version"] != 33 || finalized["transaction.version"] != 2 || resp.FinalizedFeaturesEpoch < 0 {
			t.Errorf("v%d: finalized %v at %d", version, finalized, resp.FinalizedFeaturesEpoch)
		}
	}
}

// notYet are the APIs of Apache Kafka that are not served yet.
var notYet = []int16{68, 69, 76, 77, 78, 79, 80, 81, 83, 84, 85, 86, 87, 88, 89, 90, 91, 92, 93, 94}

// The list equals that of Apache Kafka, line by line.
func TestApiVersionsAreKafkas(t *testing.T) {
	var want, got []string
	for _, k := range kafkaAPIs {
		switch {
		case k[0] == 71 || k[0] == 72: // not listed unless client metrics are wanted
		case slices.Contains(notYet, k[0]):
		case k[0] == 0:
			want = append(want, "Produce 0 13\n")
		default:
			want = append(want, fmt.Sprintln(kmsg.NameForKey(k[0]), k[1], k[2]))
		}
	}
	for _, k := range do[*kmsg.ApiVersionsResponse](dial(t, startServer(t)), apiVersions(4)).ApiKeys {
		got = append(got, fmt.Sprintln(kmsg.NameForKey(k.ApiKey), k.MinVersion, k.MaxVersion))
	}
	if !slices.Equal(got, want) {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
}

// A version that is not served is answered in the form of v0, and the connection
// goes on.
func TestApiVersionsAnswersEveryVersion(t *testing.T) {
	s := startServer(t)
	c := dial(t, s)
	for _, version := range []uint16{6, 99, 0x7fff, 0xffff} {
		c.write([]byte{0, 0, 0, 13, 0, 18, byte(version >> 8), byte(version), 0, 0, 0, 9, 0, 1, 'x', 0, 0})
		correlation, body := c.frame()
		if got := hex.EncodeToString(body); correlation != 9 || got != "0023"+"00000001"+"0012"+"0000"+"0005" {
			t.Errorf("v%d: %d %s", version, correlation, got)
		}
	}
	if resp := do[*kmsg.ApiVersionsResponse](c, apiVersions(3)); resp.ErrorCode != 0 {
		t.Errorf("error %d", resp.ErrorCode)
	}
}

func TestApiVersionsChecksWhoAsks(t *testing.T) {
	s := startServer(t)
	c := dial(t, s)
	for _, row := range []struct {
		name, version string
		want          int16
	}{
		{"apache-kafka-java", "4.4.0", 0}, {"x", "1", 0}, {"a.b-c", "v-1", 0},
		{"", "1", 42}, {"x", "", 42}, {"a b", "1", 42}, {"a_b", "1", 42}, {"-a", "1", 42}, {"a", "1.", 42}, {"é", "1", 42},
	} {
		req := apiVersions(3)
		req.ClientSoftwareName, req.ClientSoftwareVersion = row.name, row.version
		if resp := do[*kmsg.ApiVersionsResponse](c, req); resp.ErrorCode != row.want || row.want != 0 && len(resp.ApiKeys) > 0 {
			t.Errorf("%q %q: error %d, %d keys", row.name, row.version, resp.ErrorCode, len(resp.ApiKeys))
		}
	}
	own, other := s.image().ClusterID, "other"
	for _, row := range []struct {
		cluster *string
		node    int32
		want    *kerr.Error
	}{
		{nil, -1, nil}, {&own, 1, nil}, {&own, 2, kerr.RebootstrapRequired}, {&other, 1, kerr.RebootstrapRequired},
		{&own, -1, kerr.InvalidRequest}, {nil, 1, kerr.InvalidRequest},
	} {
		req := apiVersions(5)
		req.ClusterID, req.NodeID = row.cluster, row.node
		want := int16(0)
		if row.want != nil {
			want = row.want.Code
		}
		if resp := do[*kmsg.ApiVersionsResponse](c, req); resp.ErrorCode != want {
			t.Errorf("cluster %v, node %d: error %d, want %d", row.cluster, row.node, resp.ErrorCode, want)
		}
	}
}

// A client is told the address that it came by, unless another is advertised.
func TestEndpointIsWhatTheClientReaches(t *testing.T) {
	metadata := func(c *client) kmsg.MetadataResponseBroker {
		req := kmsg.NewPtrMetadataRequest()
		req.Version, req.Topics = 12, []kmsg.MetadataRequestTopic{}
		return do[*kmsg.MetadataResponse](c, req).Brokers[0]
	}
	s := startServer(t, "listeners=PLAINTEXT://0.0.0.0:0")
	_, port := splitAddr(s.Addrs()["PLAINTEXT"])
	conn, err := net.Dial("tcp", net.JoinHostPort("127.0.0.1", strconv.Itoa(int(port))))
	if err != nil {
		t.Fatal(err)
	}
	defer conn.Close()
	if b := metadata(&client{t: t, conn: conn}); b.Host != "127.0.0.1" || b.Port != port {
		t.Errorf("got %s:%d, the client reached 127.0.0.1:%d", b.Host, b.Port, port)
	}
	s = startServer(t, "advertised.listeners=PLAINTEXT://broker.example:7777")
	if b := metadata(dial(t, s)); b.Host != "broker.example" || b.Port != 7777 {
		t.Errorf("got %s:%d", b.Host, b.Port)
	}
}
