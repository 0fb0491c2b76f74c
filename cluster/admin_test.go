package cluster

import (
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

func quotaRequest(kind string, name *string, key string, value float64) *kmsg.AlterClientQuotasRequest {
	req := kmsg.NewPtrAlterClientQuotasRequest()
	req.Version = 1
	part := kmsg.NewAlterClientQuotasRequestEntryEntity()
	part.Type, part.Name = kind, name
	op := kmsg.NewAlterClientQuotasRequestEntryOp()
	op.Key, op.Value = key, value
	e := kmsg.NewAlterClientQuotasRequestEntry()
	e.Entity, e.Ops = append(e.Entity, part), append(e.Ops, op)
	req.Entries = append(req.Entries, e)
	return req
}

func credentialRequest(user string) *kmsg.AlterUserSCRAMCredentialsRequest {
	req := kmsg.NewPtrAlterUserSCRAMCredentialsRequest()
	u := kmsg.NewAlterUserSCRAMCredentialsRequestUpsertion()
	u.Name, u.Mechanism, u.Iterations, u.Salt, u.SaltedPassword = user, ScramSHA256, 4096, []byte("s"), []byte("p")
	req.Upsertions = append(req.Upsertions, u)
	return req
}

func featureRequest(level int16, validate bool) *kmsg.UpdateFeaturesRequest {
	req := kmsg.NewPtrUpdateFeaturesRequest()
	req.Version, req.ValidateOnly = 1, validate
	u := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
	u.Feature, u.MaxVersionLevel, u.UpgradeType = "transaction.version", level, featureSafeDowngrade
	req.FeatureUpdates = append(req.FeatureUpdates, u)
	return req
}

// TestAdminStateOutlivesTheNode: quotas, credentials and features are there after a restart; what was only validated is not.
func TestAdminStateOutlivesTheNode(t *testing.T) {
	dir, ctx := t.TempDir(), t.Context()
	c := mustOpen(t, Options{Dir: dir})
	mustRegister(t, c, 1)
	q := quotaRequest(QuotaIP, new("localhost"), "connection_creation_rate", 5)
	q.Entries = append(q.Entries, quotaRequest(QuotaIP, new("no such host"), "connection_creation_rate", 5).Entries...)
	if got := c.AlterClientQuotas(ctx, q).Entries; got[0].ErrorCode != 0 || got[1].ErrorCode != kerr.InvalidRequest.Code {
		t.Fatalf("quotas: %+v", got)
	}
	q = quotaRequest(QuotaUser, nil, "producer_byte_rate", 5)
	q.ValidateOnly = true
	if got := c.AlterClientQuotas(ctx, q).Entries; got[0].ErrorCode != 0 {
		t.Fatalf("quotas: %+v", got)
	}
	if got := c.AlterScramCredentials(ctx, credentialRequest("anna")).Results; got[0].ErrorCode != 0 {
		t.Fatalf("credentials: %+v", got)
	}
	for _, validate := range []bool{false, true} {
		level := int16(1)
		if validate {
			level = 0
		}
		resp := c.UpdateFeatures(ctx, featureRequest(level, validate))
		if resp.ErrorCode != 0 || len(resp.Results) != 1 || *resp.Results[0].ErrorMessage != "NONE" {
			t.Fatalf("features: %+v", resp)
		}
	}
	want := describe(c.Image())
	before := c.Quorum()
	mustClose(t, c)

	c = mustOpen(t, Options{Dir: dir})
	defer mustClose(t, c)
	if got := describe(c.Image()); got != want {
		t.Errorf("after the restart\n%s\nbefore\n%s", got, want)
	}
	if u := c.Image().ScramUser("anna"); u == nil || u.Credentials[ScramSHA256].Iterations != 4096 {
		t.Errorf("user %+v", u)
	}
	if got := c.Image().Features()["transaction.version"]; got != 1 {
		t.Errorf("transaction.version %d", got)
	}
	if q := c.Quorum(); q.LeaderID != 1 || q.LeaderEpoch <= before.LeaderEpoch || q.HighWatermark != q.End || q.End <= c.Image().Index || q.End <= before.End {
		t.Errorf("quorum %+v, before %+v", q, before)
	}
}

// TestAdminWithoutControllerFails: each request has an answer of its own form when nobody decides.
func TestAdminWithoutControllerFails(t *testing.T) {
	c := mustOpen(t, Options{Dir: t.TempDir()})
	mustRegister(t, c, 1)
	mustClose(t, c)
	ctx, want := t.Context(), kerr.NotController.Code
	if got := c.AlterClientQuotas(ctx, quotaRequest(QuotaUser, nil, "producer_byte_rate", 5)).Entries[0]; got.ErrorCode != want || len(got.Entity) != 1 {
		t.Errorf("quotas %+v", got)
	}
	if got := c.AlterScramCredentials(ctx, credentialRequest("anna")).Results[0]; got.ErrorCode != want || got.User != "anna" {
		t.Errorf("credentials %+v", got)
	}
	if got := c.UpdateFeatures(ctx, featureRequest(2, false)); got.ErrorCode != want || len(got.Results) > 0 {
		t.Errorf("features %+v", got)
	}
	if got := c.Unregister(ctx, kmsg.NewPtrUnregisterBrokerRequest()); got.ErrorCode != want {
		t.Errorf("unregister %+v", got)
	}
	elect := kmsg.NewPtrElectLeadersRequest()
	elect.Version, elect.TimeoutMillis = 2, 1000
	elect.Topics = []kmsg.ElectLeadersRequestTopic{{Topic: "t", Partitions: []int32{0}}}
	assign := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	assign.TimeoutMillis = 1000
	assign.Topics = []kmsg.AlterPartitionAssignmentsRequestTopic{{Topic: "t", Partitions: []kmsg.AlterPartitionAssignmentsRequestTopicPartition{{}}}}
	for range 2 { // then without any time for it
		if got := c.ElectLeaders(ctx, elect); got.ErrorCode != want || got.Topics[0].Partitions[0].ErrorCode != want {
			t.Errorf("elections %+v", got)
		}
		if got := c.AlterAssignments(ctx, assign); got.ErrorCode != want || got.Topics[0].Partitions[0].ErrorCode != want || !got.AllowReplicationFactorChange {
			t.Errorf("assignments %+v", got)
		}
		elect.TimeoutMillis, assign.TimeoutMillis, want = 0, 0, kerr.RequestTimedOut.Code
	}
	elect.TimeoutMillis, elect.ElectionType = 1, 2
	if got := c.ElectLeaders(ctx, elect).Topics[0].Partitions[0]; got.ErrorCode != kerr.InvalidRequest.Code || *got.ErrorMessage != "Unknown election type 2" {
		t.Errorf("election type 2: %+v", got)
	}
}
