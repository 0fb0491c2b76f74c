package server

import (
	"fmt"
	"math"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// What Apache Kafka answers without an authorizer; a 0 where a client doesn't know what to say closes the connection.
func TestACLsAreDisabled(t *testing.T) {
	s := startServer(t)
	type acl struct {
		resource   kmsg.ACLResourceType
		pattern    kmsg.ACLResourcePatternType
		operation  kmsg.ACLOperation
		permission kmsg.ACLPermissionType
		closes     bool
	}
	for _, a := range []acl{
		{1, 1, 1, 1, false}, {2, 3, 3, 3, false}, {99, 99, 99, 99, false},
		{0, 1, 1, 1, true}, {1, 0, 1, 1, true}, {1, 1, 0, 1, true}, {1, 1, 1, 0, true},
	} {
		for version := int16(1); version <= 3; version++ {
			describe := kmsg.NewPtrDescribeACLsRequest()
			describe.Version, describe.ResourceType, describe.ResourcePatternType, describe.Operation, describe.PermissionType = version, a.resource, a.pattern, a.operation, a.permission
			create := kmsg.NewPtrCreateACLsRequest()
			create.Version = version
			creation := kmsg.CreateACLsRequestCreation{ResourceType: a.resource, ResourcePatternType: a.pattern, Operation: a.operation, PermissionType: a.permission, ResourceName: "r"}
			create.Creations = []kmsg.CreateACLsRequestCreation{{ResourceType: 2, ResourcePatternType: 3, Operation: 3, PermissionType: 3}, creation}
			remove := kmsg.NewPtrDeleteACLsRequest()
			remove.Version = version
			remove.Filters = []kmsg.DeleteACLsRequestFilter{{ResourceType: a.resource, ResourcePatternType: a.pattern, Operation: a.operation, PermissionType: a.permission}}
			if a.closes {
				for _, req := range []kmsg.Request{describe, create, remove} {
					c := dial(t, s)
					c.send(req)
					c.expectClosed()
				}
				continue
			}
			c := dial(t, s)
			if got := do[*kmsg.DescribeACLsResponse](c, describe); got.ErrorCode != 54 || orNull(got.ErrorMessage) != "No Authorizer is configured on the broker" || len(got.Resources) > 0 {
				t.Errorf("v%d describe: %+v", version, got)
			}
			got := do[*kmsg.CreateACLsResponse](c, create)
			if len(got.Results) != 2 || got.Results[1].ErrorCode != 54 || orNull(got.Results[1].ErrorMessage) != "No Authorizer is configured." {
				t.Errorf("v%d create: %+v", version, got)
			}
			if got := do[*kmsg.DeleteACLsResponse](c, remove); len(got.Results) != 1 || got.Results[0].ErrorCode != 54 || orNull(got.Results[0].ErrorMessage) != "No Authorizer is configured." {
				t.Errorf("v%d delete: %+v", version, got)
			}
		}
	}
}

// Authentication is refused where there is none, and the connection goes on.
func TestSASLAndTokensOnPlaintext(t *testing.T) {
	c := dial(t, startServer(t))
	for version := range int16(2) {
		req := kmsg.NewPtrSASLHandshakeRequest()
		req.Version, req.Mechanism = version, "PLAIN"
		if got := do[*kmsg.SASLHandshakeResponse](c, req); got.ErrorCode != 34 || len(got.SupportedMechanisms) > 0 {
			t.Errorf("handshake v%d: %+v", version, got)
		}
	}
	for version := range int16(3) {
		req := kmsg.NewPtrSASLAuthenticateRequest()
		req.Version, req.SASLAuthBytes = version, []byte("\x00u\x00p")
		got := do[*kmsg.SASLAuthenticateResponse](c, req)
		if got.ErrorCode != 34 || orNull(got.ErrorMessage) != "SaslAuthenticate request received after successful authentication" || got.SessionLifetimeMillis != 0 {
			t.Errorf("authenticate v%d: %+v", version, got)
		}
	}
	for version := int16(1); version <= 3; version++ {
		create := kmsg.NewPtrCreateDelegationTokenRequest()
		create.Version, create.OwnerPrincipalType, create.OwnerPrincipalName = version, new("User"), new("anna")
		got := do[*kmsg.CreateDelegationTokenResponse](c, create)
		owner := "ANONYMOUS"
		if version == 3 {
			owner = "anna"
		}
		if got.ErrorCode != 64 || got.PrincipalType != "User" || got.PrincipalName != owner || got.IssueTimestamp != -1 || got.ExpiryTimestamp != -1 || got.MaxTimestamp != -1 {
			t.Errorf("create v%d: %+v", version, got)
		}
		describe := kmsg.NewPtrDescribeDelegationTokenRequest()
		describe.Version = version
		if got := do[*kmsg.DescribeDelegationTokenResponse](c, describe); got.ErrorCode != 64 || len(got.TokenDetails) > 0 {
			t.Errorf("describe v%d: %+v", version, got)
		}
		if version == 3 {
			continue
		}
		renew := kmsg.NewPtrRenewDelegationTokenRequest()
		renew.Version = version
		if got := do[*kmsg.RenewDelegationTokenResponse](c, renew); got.ErrorCode != 64 || got.ExpiryTimestamp != -1 {
			t.Errorf("renew v%d: %+v", version, got)
		}
		expire := kmsg.NewPtrExpireDelegationTokenRequest()
		expire.Version = version
		if got := do[*kmsg.ExpireDelegationTokenResponse](c, expire); got.ErrorCode != 64 || got.ExpiryTimestamp != -1 {
			t.Errorf("expire v%d: %+v", version, got)
		}
	}
}

// alter sets configs incrementally, as key=value, or removes them, as !key, and tells what the answer says.
func (c *client) alter(kind kmsg.ConfigResourceType, name string, configs ...string) string {
	c.t.Helper()
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Version = 1
	r := kmsg.NewIncrementalAlterConfigsRequestResource()
	r.ResourceType, r.ResourceName = kind, name
	for _, s := range configs {
		c := kmsg.NewIncrementalAlterConfigsRequestResourceConfig()
		if key, ok := strings.CutPrefix(s, "!"); ok {
			c.Name, c.Op = key, kmsg.IncrementalAlterConfigOpDelete
		} else {
			key, value, _ := strings.Cut(s, "=")
			c.Name, c.Value = key, &value
		}
		r.Configs = append(r.Configs, c)
	}
	req.Resources = append(req.Resources, r)
	got := do[*kmsg.IncrementalAlterConfigsResponse](c, req).Resources[0]
	return fmt.Sprint(got.ErrorCode, " ", orNull(got.ErrorMessage))
}

// quotaParts reads an entity: user=anna,client-id=<default>.
func quotaParts(s string) (types []string, names []*string) {
	for part := range strings.SplitSeq(s, ",") {
		kind, name, _ := strings.Cut(part, "=")
		types = append(types, kind)
		if name == "<default>" {
			names = append(names, nil)
		} else {
			names = append(names, &name)
		}
	}
	return types, names
}

func (c *client) setQuota(version int16, entity, key string, value float64) string {
	c.t.Helper()
	req := kmsg.NewPtrAlterClientQuotasRequest()
	req.Version = version
	e := kmsg.NewAlterClientQuotasRequestEntry()
	types, names := quotaParts(entity)
	for i := range types {
		e.Entity = append(e.Entity, kmsg.AlterClientQuotasRequestEntryEntity{Type: types[i], Name: names[i]})
	}
	e.Ops = []kmsg.AlterClientQuotasRequestEntryOp{{Key: key, Value: value, Remove: math.IsNaN(value)}}
	req.Entries = append(req.Entries, e)
	got := do[*kmsg.AlterClientQuotasResponse](c, req).Entries[0]
	return fmt.Sprint(got.ErrorCode, " ", orNull(got.ErrorMessage))
}

// describeQuotas asks by a filter: user=anna exact, user=<default>, user=* any.
func (c *client) describeQuotas(version int16, strict bool, filter string) string {
	c.t.Helper()
	req := kmsg.NewPtrDescribeClientQuotasRequest()
	req.Version, req.Strict = version, strict
	if filter != "" {
		types, names := quotaParts(filter)
		for i := range types {
			component := kmsg.DescribeClientQuotasRequestComponent{EntityType: types[i], Match: names[i]}
			switch {
			case names[i] == nil:
				component.MatchType = 1
			case *names[i] == "*":
				component.MatchType, component.Match = 2, nil
			case strings.HasPrefix(*names[i], "?"): // an odd match
				fmt.Sscan((*names[i])[1:], (*int8)(&component.MatchType))
				component.Match = nil
			}
			req.Components = append(req.Components, component)
		}
	}
	resp := do[*kmsg.DescribeClientQuotasResponse](c, req)
	if resp.ErrorCode != 0 {
		if resp.Entries != nil {
			c.t.Errorf("%s: entries beside an error", filter)
		}
		return fmt.Sprint(resp.ErrorCode, " ", orNull(resp.ErrorMessage))
	}
	if resp.Entries == nil || orNull(resp.ErrorMessage) != "" {
		c.t.Errorf("%s: null entries, or message %s", filter, orNull(resp.ErrorMessage))
	}
	var rows []string
	for _, e := range resp.Entries {
		var parts, values []string
		for _, p := range e.Entity {
			name := "<default>"
			if p.Name != nil {
				name = *p.Name
			}
			parts = append(parts, p.Type+"="+name)
		}
		for _, v := range e.Values {
			values = append(values, fmt.Sprintf("%s=%v", v.Key, v.Value))
		}
		rows = append(rows, strings.Join(parts, ",")+":"+strings.Join(values, ","))
	}
	slices.Sort(rows)
	return strings.Join(rows, " ")
}

// What is set is given back, to the filters that Kafka gives it to.
func TestClientQuotas(t *testing.T) {
	c := dial(t, startServer(t))
	for i, entity := range []string{"user=anna", "user=<default>", "client-id=c", "client-id=<default>", "user=anna,client-id=c", "user=<default>,client-id=<default>"} {
		if got := c.setQuota(int16(i%2), entity, "consumer_byte_rate", float64(i+1)); got != "0 null" {
			t.Fatalf("%s: %s", entity, got)
		}
	}
	if got := c.setQuota(1, "ip=127.0.0.1", "connection_creation_rate", 7); got != "0 null" {
		t.Fatal(got)
	}
	if got := c.setQuota(1, "ip=127.0.0.1", "connection_creation_rate", 1.5); got != "42 connection_creation_rate cannot be a fractional value." {
		t.Error(got)
	}
	c.setQuota(1, "user=anna", "request_percentage", 12.5)
	for _, row := range []struct{ filter, loose, strict string }{
		{"user=anna", "client-id=c,user=anna:consumer_byte_rate=5 user=anna:consumer_byte_rate=1,request_percentage=12.5", "user=anna:consumer_byte_rate=1,request_percentage=12.5"},
		{"user=<default>", "client-id=<default>,user=<default>:consumer_byte_rate=6 user=<default>:consumer_byte_rate=2", "user=<default>:consumer_byte_rate=2"},
		{"client-id=*", "client-id=<default>,user=<default>:consumer_byte_rate=6 client-id=<default>:consumer_byte_rate=4 client-id=c,user=anna:consumer_byte_rate=5 client-id=c:consumer_byte_rate=3",
			"client-id=<default>:consumer_byte_rate=4 client-id=c:consumer_byte_rate=3"},
		{"user=anna,client-id=c", "client-id=c,user=anna:consumer_byte_rate=5", "client-id=c,user=anna:consumer_byte_rate=5"},
		{"ip=*", "ip=127.0.0.1:connection_creation_rate=7", "ip=127.0.0.1:connection_creation_rate=7"},
		{"user=nobody", "", ""},
		{"ip=*,user=*", "42 Invalid entity filter component combination. IP filter component should not be used with user or clientId filter component.", ""},
		{"user=*,user=*", "42 Entity type user cannot appear more than once in the filter.", ""},
		{"group=*", "35 Unsupported entity type group", ""},
		{"=*", "42 Invalid empty entity type.", ""},
		{"user=?3", "42 Unknown match type 3", ""},
		{"user=?0", "42 Request specified MATCH_TYPE_EXACT, but set match string to null.", ""},
	} {
		for version := range int16(2) {
			if got := c.describeQuotas(version, false, row.filter); got != row.loose {
				t.Errorf("v%d %s:\n got %s\nwant %s", version, row.filter, got, row.loose)
			}
			want := row.strict
			if strings.HasPrefix(row.loose, "42") || strings.HasPrefix(row.loose, "35") {
				want = row.loose
			}
			if got := c.describeQuotas(version, true, row.filter); got != want {
				t.Errorf("v%d %s strict:\n got %s\nwant %s", version, row.filter, got, want)
			}
		}
	}
	if got := c.describeQuotas(1, true, ""); got != "" {
		t.Errorf("nothing, strictly: %s", got)
	}
	if got := strings.Count(c.describeQuotas(1, false, ""), " "); got != 6 {
		t.Errorf("all: %d", got+1)
	}
	if got := c.setQuota(1, "user=anna", "request_percentage", math.NaN()); got != "0 null" { // removes it
		t.Error(got)
	}
	if got := c.describeQuotas(1, true, "user=anna"); got != "user=anna:consumer_byte_rate=1" {
		t.Error(got)
	}
}

func TestScramCredentials(t *testing.T) {
	c := dial(t, startServer(t))
	describe := func(users ...string) string {
		req := kmsg.NewPtrDescribeUserSCRAMCredentialsRequest()
		for _, u := range users {
			req.Users = append(req.Users, kmsg.DescribeUserSCRAMCredentialsRequestUser{Name: u})
		}
		resp := do[*kmsg.DescribeUserSCRAMCredentialsResponse](c, req)
		if resp.ErrorCode != 0 || orNull(resp.ErrorMessage) != "" {
			t.Errorf("%d %s", resp.ErrorCode, orNull(resp.ErrorMessage))
		}
		var rows []string
		for _, r := range resp.Results {
			row := fmt.Sprintf("%s %d %q", r.User, r.ErrorCode, orNull(r.ErrorMessage))
			for _, i := range r.CredentialInfos {
				row += fmt.Sprintf(" %d/%d", i.Mechanism, i.Iterations)
			}
			rows = append(rows, row)
		}
		return strings.Join(rows, "; ")
	}
	alter := func(user string, mechanism int8, iterations int32) string {
		req := kmsg.NewPtrAlterUserSCRAMCredentialsRequest()
		if iterations == 0 {
			req.Deletions = []kmsg.AlterUserSCRAMCredentialsRequestDeletion{{Name: user, Mechanism: mechanism}}
		} else {
			req.Upsertions = []kmsg.AlterUserSCRAMCredentialsRequestUpsertion{{Name: user, Mechanism: mechanism, Iterations: iterations, Salt: []byte("s"), SaltedPassword: []byte("p")}}
		}
		r := do[*kmsg.AlterUserSCRAMCredentialsResponse](c, req).Results[0]
		return fmt.Sprintf("%s %d %s", r.User, r.ErrorCode, orNull(r.ErrorMessage))
	}
	if got := describe(); got != "" {
		t.Error(got)
	}
	for _, row := range []struct {
		user       string
		mechanism  int8
		iterations int32
		want       string
	}{
		{"bert", 1, 4096, "bert 0 null"}, {"anna", 2, 8192, "anna 0 null"}, {"anna", 1, 9000, "anna 0 null"},
		{"anna", 1, 4095, "anna 93 Too few iterations"}, {"anna", 3, 4096, "anna 33 Unknown SCRAM mechanism"}, {"", 1, 4096, " 93 Username must not be empty"},
		{"carl", 1, 0, "carl 91 Attempt to delete a user credential that does not exist"},
	} {
		if got := alter(row.user, row.mechanism, row.iterations); got != row.want {
			t.Errorf("%+v: %s", row, got)
		}
	}
	if got := describe(); got != `anna 0 "" 1/9000 2/8192; bert 0 "" 1/4096` {
		t.Error(got)
	}
	if got := describe("carl", "bert", "anna", "bert"); got != `carl 91 "Attempt to describe a user credential that does not exist: carl"; `+
		`bert 92 "Cannot describe SCRAM credentials for the same user twice in a single request: bert"; anna 0 "" 1/9000 2/8192` {
		t.Error(got)
	}
	alter("anna", 1, 0)
	alter("bert", 1, 0)
	if got := describe(); got != `anna 0 "" 2/8192` {
		t.Error(got)
	}
}

func TestElectionsAndReassignments(t *testing.T) {
	c := dial(t, startServer(t))
	c.createTopic("t", 2)
	for version := range int16(3) {
		req := kmsg.NewPtrElectLeadersRequest()
		req.Version, req.TimeoutMillis = version, 1000
		req.Topics = []kmsg.ElectLeadersRequestTopic{{Topic: "t", Partitions: []int32{1, 9}}}
		p := do[*kmsg.ElectLeadersResponse](c, req).Topics[0].Partitions
		got := fmt.Sprintf("%d %s; %d %s", p[0].ErrorCode, orNull(p[0].ErrorMessage), p[1].ErrorCode, orNull(p[1].ErrorMessage))
		if got != "84 Leader election not needed for topic partition.; 3 No such partition as t-9" {
			t.Errorf("v%d: %s", version, got)
		}
		req.Topics = nil
		if got := do[*kmsg.ElectLeadersResponse](c, req); len(got.Topics) != 1 || got.Topics[0].Topic != "t" || len(got.Topics[0].Partitions) > 0 {
			t.Errorf("v%d: all: %+v", version, got)
		}
		req.TimeoutMillis = 0
		if got := do[*kmsg.ElectLeadersResponse](c, req); (got.ErrorCode == 7) != (version > 0) || len(got.Topics) > 0 {
			t.Errorf("v%d: without time: %+v", version, got)
		}
	}
	for version := range int16(2) {
		req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
		req.Version, req.TimeoutMillis, req.AllowReplicationFactorChange = version, 1000, false
		req.Topics = []kmsg.AlterPartitionAssignmentsRequestTopic{{Topic: "t", Partitions: []kmsg.AlterPartitionAssignmentsRequestTopicPartition{
			{Partition: 0, Replicas: []int32{1}}, {Partition: 1}, {Partition: 1, Replicas: []int32{1, 2}},
		}}}
		got := do[*kmsg.AlterPartitionAssignmentsResponse](c, req)
		p := got.Topics[0].Partitions
		if got.ErrorCode != 0 || got.ErrorMessage != nil || p[0].ErrorCode != 0 || p[1].ErrorCode != 85 || p[2].ErrorCode != 39 || got.AllowReplicationFactorChange != (version == 0) {
			t.Errorf("v%d: %+v", version, got)
		}
		req.Topics = nil
		if got := do[*kmsg.AlterPartitionAssignmentsResponse](c, req); got.ErrorCode != 0 || orNull(got.ErrorMessage) != "" || !got.AllowReplicationFactorChange {
			t.Errorf("v%d: nothing: %+v", version, got)
		}
	}
	list := kmsg.NewPtrListPartitionReassignmentsRequest()
	list.Topics = []kmsg.ListPartitionReassignmentsRequestTopic{{Topic: "t", Partitions: []int32{0}}, {Topic: "nope", Partitions: []int32{0}}}
	if got := do[*kmsg.ListPartitionReassignmentsResponse](c, list); got.ErrorCode != 0 || got.ErrorMessage != nil || len(got.Topics) > 0 {
		t.Errorf("%+v", got)
	}
}

// The coordinator of transactions and ApiVersions see a feature's level at once.
func TestUpdateFeatures(t *testing.T) {
	s := startServer(t)
	c := dial(t, s)
	update := func(version int16, validate bool, level int16, kind int8) *kmsg.UpdateFeaturesResponse {
		req := kmsg.NewPtrUpdateFeaturesRequest()
		req.Version, req.ValidateOnly = version, validate
		req.FeatureUpdates = []kmsg.UpdateFeaturesRequestFeatureUpdate{{Feature: "transaction.version", MaxVersionLevel: level, UpgradeType: kind, AllowDowngrade: kind > 1}}
		return do[*kmsg.UpdateFeaturesResponse](c, req)
	}
	finalized := func() (level int16) {
		for _, f := range do[*kmsg.ApiVersionsResponse](c, apiVersions(4)).FinalizedFeatures {
			if f.Name == "transaction.version" {
				level = f.MaxVersionLevel
			}
		}
		return level
	}
	for version := range int16(3) {
		got := update(version, true, 2, 1)
		if got.ErrorCode != 0 || got.ErrorMessage != nil || len(got.Results) != map[bool]int{true: 1, false: 0}[version < 2] {
			t.Errorf("v%d: %+v", version, got)
		}
		if version < 2 && (got.Results[0].Feature != "transaction.version" || got.Results[0].ErrorCode != 0 || orNull(got.Results[0].ErrorMessage) != "NONE") {
			t.Errorf("v%d: %+v", version, got)
		}
		got = update(version, true, 3, 1)
		if got.ErrorCode != 95 || orNull(got.ErrorMessage) != "The update failed for all features since the following feature had an error: "+
			"Invalid update version 3 for feature transaction.version. Local controller 1 only supports versions 0-2" || len(got.Results) > 0 {
			t.Errorf("v%d: %+v", version, got)
		}
	}
	if update(2, true, 1, 2); finalized() != 2 {
		t.Errorf("validating only made it %d", finalized())
	}
	if update(2, false, 1, 2); finalized() != 1 || s.txnSettings().TransactionVersion != 1 {
		t.Errorf("finalized %d, coordinators at %d", finalized(), s.txnSettings().TransactionVersion)
	}
	if update(0, false, 2, 1); finalized() != 2 {
		t.Errorf("finalized %d", finalized())
	}
}

func TestDescribeQuorum(t *testing.T) {
	s := startServer(t)
	c := dial(t, s)
	ask := func(version int16, topic string, partitions ...int32) *kmsg.DescribeQuorumResponse {
		req := kmsg.NewPtrDescribeQuorumRequest()
		req.Version = version
		rt := kmsg.NewDescribeQuorumRequestTopic()
		rt.Topic = topic
		for _, p := range partitions {
			rt.Partitions = append(rt.Partitions, kmsg.DescribeQuorumRequestTopicPartition{Partition: p})
		}
		req.Topics = append(req.Topics, rt)
		return do[*kmsg.DescribeQuorumResponse](c, req)
	}
	for version := range int16(3) {
		got := ask(version, "__cluster_metadata", 0)
		p := got.Topics[0].Partitions[0]
		if got.ErrorCode != 0 || p.ErrorCode != 0 || p.LeaderID != 1 || p.LeaderEpoch < 1 || p.HighWatermark <= s.image().Index || len(p.Observers) > 0 ||
			len(p.CurrentVoters) != 1 || p.CurrentVoters[0].ReplicaID != 1 || p.CurrentVoters[0].LogEndOffset != p.HighWatermark {
			t.Errorf("v%d: %+v", version, got)
		}
		if (version > 0) != (p.CurrentVoters[0].LastFetchTimestamp > 0) || (version > 1) != (len(got.Nodes) == 1 && got.Nodes[0].NodeID == 1) {
			t.Errorf("v%d: %+v", version, got)
		}
		for _, partitions := range [][]int32{{1}, {0, 1}} {
			if got := ask(version, "__cluster_metadata", partitions...); len(got.Topics[0].Partitions) != len(partitions) || got.Topics[0].Partitions[0].ErrorCode != 3 || len(got.Nodes) > 0 {
				t.Errorf("v%d: %v: %+v", version, partitions, got)
			}
		}
		if got := ask(version, "t", 0).Topics[0].Partitions[0]; got.ErrorCode != 3 || version == 2 && orNull(got.ErrorMessage) != "This server does not host this topic-partition." {
			t.Errorf("v%d: %+v", version, got)
		}
	}
}

func TestListConfigResources(t *testing.T) {
	c := dial(t, startServer(t))
	c.createTopic("t2", 1)
	c.createTopic("t1", 1)
	for kind, config := range map[kmsg.ConfigResourceType]string{kmsg.ConfigResourceTypeClientMetrics: "metrics=*", kmsg.ConfigResourceTypeGroupConfig: "consumer.session.timeout.ms=50000"} {
		c.alter(kind, "x", config)
	}
	for _, row := range []struct {
		version int16
		types   []int8
		want    string
	}{
		{0, nil, "0 x:0"},
		{1, nil, "0 x:32 x:16 1:8 1:4 t1:2 t2:2"},
		{1, []int8{2, 4, 2}, "0 1:4 t1:2 t2:2"},
		{1, []int8{16}, "0 x:16"},
		{1, []int8{16, 1}, "35"},
	} {
		req := kmsg.NewPtrListConfigResourcesRequest()
		req.Version, req.ResourceTypes = row.version, row.types
		resp := do[*kmsg.ListConfigResourcesResponse](c, req)
		got := fmt.Sprint(resp.ErrorCode)
		for _, r := range resp.ConfigResources {
			kind := r.Type
			if row.version == 0 {
				kind = 0 // not on the wire
			}
			got += fmt.Sprintf(" %s:%d", r.Name, kind)
		}
		if got != row.want {
			t.Errorf("v%d %v: %s", row.version, row.types, got)
		}
	}
}

func TestUnregisterBroker(t *testing.T) {
	s := startServer(t)
	c := dial(t, s)
	for id, want := range map[int32]string{77: "102 Broker ID 77 is not currently registered", -1: "102 Broker ID -1 is not currently registered", 1: "42 Broker ID 1 is running"} {
		req := kmsg.NewPtrUnregisterBrokerRequest()
		req.BrokerID = id
		resp := do[*kmsg.UnregisterBrokerResponse](c, req)
		if got := fmt.Sprint(resp.ErrorCode, " ", orNull(resp.ErrorMessage)); got != want {
			t.Errorf("%d: %s", id, got)
		}
	}
	if s.image().Broker(1) == nil {
		t.Error("the broker has unregistered itself")
	}
}

// With one directory nothing moves.
func TestAlterReplicaLogDirs(t *testing.T) {
	s := startServer(t)
	c := dial(t, s)
	c.createTopic("t", 3)
	for version := int16(1); version <= 2; version++ {
		req := kmsg.NewPtrAlterReplicaLogDirsRequest()
		req.Version = version
		dir := func(path, topic string, partitions ...int32) {
			req.Dirs = append(req.Dirs, kmsg.AlterReplicaLogDirsRequestDir{Dir: path, Topics: []kmsg.AlterReplicaLogDirsRequestDirTopic{{Topic: topic, Partitions: partitions}}})
		}
		own := s.replicas.Directories()[0].Path
		dir(own, "t", 0, 9)
		dir("/nowhere", "t", 1)
		dir("/nowhere", "nope", 1)
		dir(own+"/", "t", 2)
		dir("/nowhere", "u", 0)
		dir(own, "u", 0) // the last one counts
		var got []string
		for _, rt := range do[*kmsg.AlterReplicaLogDirsResponse](c, req).Topics {
			for _, p := range rt.Partitions {
				got = append(got, fmt.Sprintf("%s-%d:%d", rt.Topic, p.Partition, p.ErrorCode))
			}
		}
		if want := "t-0:0 t-9:3 t-1:57 t-2:57 nope-1:57 u-0:3"; strings.Join(got, " ") != want {
			t.Errorf("v%d: %v", version, got)
		}
	}
}
