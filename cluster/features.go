package cluster

import (
	"context"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Feature is a feature that this broker knows, and the levels that it can work at.
type Feature struct {
	Name     string
	Min, Max int16
}

const metadataVersion = "metadata.version"

// features are ascending by name. A new cluster is formatted with the highest levels; a feature is added by the step that makes it work.
var features = []Feature{
	{metadataVersion, 7, 33},
	{"transaction.version", 0, 2},
}

// Features returns what this broker knows, ascending by name. The caller does not change it.
func Features() []Feature { return features }

// Kinds of feature updates; any other is refused.
const (
	featureUpgrade         int8 = 1
	featureSafeDowngrade   int8 = 2
	featureUnsafeDowngrade int8 = 3
)

// UpdateFeatures answers an UpdateFeatures request.
func (c *Controller) UpdateFeatures(ctx context.Context, req *kmsg.UpdateFeaturesRequest) *kmsg.UpdateFeaturesResponse {
	var records []record
	var refusal error
	err := c.do(ctx, func(d *decider) []record {
		if records, refusal = d.updateFeatures(req); refusal != nil || req.ValidateOnly {
			return nil
		}
		return records
	})
	if err == nil {
		err = refusal
	}
	resp := req.ResponseKind().(*kmsg.UpdateFeaturesResponse)
	if err != nil {
		resp.ErrorCode, resp.ErrorMessage = codeAndText(err)
		return resp
	}
	if req.Version > 1 {
		return resp
	}
	for _, u := range req.FeatureUpdates {
		r := kmsg.NewUpdateFeaturesResponseResult()
		r.Feature, r.ErrorMessage = u.Feature, new("NONE") // Kafka's word
		resp.Results = append(resp.Results, r)
	}
	return resp
}

// updateFeatures decides on all updates of a request or on none.
func (d *decider) updateFeatures(req *kmsg.UpdateFeaturesRequest) ([]record, error) {
	var records []record
	for i := range req.FeatureUpdates {
		u := &req.FeatureUpdates[i]
		kind := u.UpgradeType
		if req.Version == 0 {
			kind = featureUpgrade
			if u.AllowDowngrade {
				kind = featureSafeDowngrade
			}
		}
		if err := d.checkFeature(u.Feature, u.MaxVersionLevel, kind); err != nil {
			return nil, reject(kerr.InvalidUpdateVersion, "The update failed for all features since the following feature had an error: %s", err.text)
		}
		if d.im.features[u.Feature] != u.MaxVersionLevel {
			records = append(records, featureRecord{u.Feature, u.MaxVersionLevel})
		}
	}
	return records, nil
}

// checkFeature tells why a feature cannot be brought to a level, nil if it can.
func (d *decider) checkFeature(name string, level int16, kind int8) *rejection {
	invalid := func(format string, args ...any) *rejection {
		reason := reject(kerr.InvalidUpdateVersion, format, args...)
		return reject(kerr.InvalidUpdateVersion, "Invalid update version %d for feature %s. %s", level, name, reason.text)
	}
	i := slices.IndexFunc(features, func(f Feature) bool { return f.Name == name })
	now := d.im.features[name]
	switch {
	case kind < featureUpgrade || kind > featureUnsafeDowngrade:
		return invalid("The controller does not support the given upgrade type.")
	case level < 0:
		return invalid("A feature version cannot be less than 0.")
	case i < 0 && level == 0:
		return invalid("Feature %s not found.", name)
	case i < 0:
		return invalid("Local controller %d does not support this feature.", d.nodeID)
	case level < features[i].Min || level > features[i].Max:
		return invalid("Local controller %d only supports versions %d-%d", d.nodeID, features[i].Min, features[i].Max)
	case level < now && kind == featureUpgrade:
		return invalid("Can't downgrade the version of this feature without setting the upgrade type to either safe or unsafe downgrade.")
	case level < now && name == metadataVersion && kind == featureSafeDowngrade:
		return reject(kerr.InvalidUpdateVersion, "Unsupported metadata.version downgrade from %d to %d. "+
			"Refusing to perform the requested downgrade because it might delete metadata information.", now, level)
	case level < now && name == metadataVersion:
		return reject(kerr.InvalidUpdateVersion, "Unsupported metadata.version downgrade from %d to %d. "+
			"Unsafe metadata downgrade is not supported in this version.", now, level)
	}
	return nil
}
