package server

import (
	"maps"
	"slices"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/cluster"
)

// ApiVersions (18), versions 0 to 5.
//
// Behavior
//   - Lists the rows of the API table, and the features of the cluster with their finalized levels. The rows of telemetry are
//     listed only while a client metrics resource wants metrics.
//   - A version that is not served is answered with UNSUPPORTED_VERSION in the form of v0, with the versions of ApiVersions
//     alone, and the connection stays open. It is the only API that does so.
//
// Version notes
//   - 3: flexible behind a header without tags; the client names its software (KIP-511), features (KIP-584). A name or version
//     of another form is INVALID_REQUEST.
//   - 4: features whose lowest level is 0 are listed too; clients of v3 can't bear them (KAFKA-17011).
//   - 5: a client may say which cluster and node it means: REBOOTSTRAP_REQUIRED if it isn't these (KIP-1242).

const apiVersionsKey = 18

func (s *Server) handleApiVersions(r *request) pending {
	req := r.body.(*kmsg.ApiVersionsRequest)
	resp := req.ResponseKind().(*kmsg.ApiVersionsResponse)
	im := s.image()
	switch {
	case req.Version >= 3 && !(isSoftware(req.ClientSoftwareName) && isSoftware(req.ClientSoftwareVersion)),
		req.Version >= 5 && (req.ClusterID == nil) != (req.NodeID == -1):
		resp.ErrorCode = kerr.InvalidRequest.Code
		return answer(resp)
	case req.Version >= 5 && req.ClusterID != nil && (*req.ClusterID != im.ClusterID || req.NodeID != s.nodeID):
		resp.ErrorCode = kerr.RebootstrapRequired.Code
		return answer(resp)
	}
	if r.conn != nil && req.Version >= 3 {
		r.conn.software = &clientSoftware{req.ClientSoftwareName, req.ClientSoftwareVersion}
	}
	resp.ApiKeys = servedKeys(r, wantsTelemetry(im))
	if req.Version < 3 {
		return answer(resp)
	}
	for _, f := range cluster.Features() {
		if f.Min > 0 || req.Version >= 4 {
			resp.SupportedFeatures = append(resp.SupportedFeatures, kmsg.ApiVersionsResponseSupportedFeature{Name: f.Name, MinVersion: f.Min, MaxVersion: f.Max})
		}
	}
	resp.FinalizedFeaturesEpoch = im.Index
	features := im.Features()
	for _, name := range slices.Sorted(maps.Keys(features)) {
		f := kmsg.NewApiVersionsResponseFinalizedFeature()
		f.Name, f.MinVersionLevel, f.MaxVersionLevel = name, features[name], features[name]
		resp.FinalizedFeatures = append(resp.FinalizedFeatures, f)
	}
	return answer(resp)
}

// servedKeys gives what is served on the listener that r came by; the APIs of telemetry only if that is wanted.
func servedKeys(r *request, telemetry bool) []kmsg.ApiVersionsResponseApiKey {
	var keys []kmsg.ApiVersionsResponseApiKey
	for _, row := range apiByKey {
		if row == nil || r.onController() && !controllerAPIs[row.key] {
			continue
		}
		if row.advertisedMin == unlisted && !telemetry {
			continue
		}
		k := kmsg.NewApiVersionsResponseApiKey()
		k.ApiKey, k.MinVersion, k.MaxVersion = row.key, max(row.advertisedMin, 0), row.max
		keys = append(keys, k)
	}
	return keys
}

// unsupportedApiVersions is the answer to a version that is not served.
func unsupportedApiVersions() kmsg.Response {
	resp := kmsg.NewPtrApiVersionsResponse()
	resp.ErrorCode = kerr.UnsupportedVersion.Code
	row := apiByKey[apiVersionsKey]
	k := kmsg.NewApiVersionsResponseApiKey()
	k.ApiKey, k.MinVersion, k.MaxVersion = row.key, row.min, row.max
	resp.ApiKeys = append(resp.ApiKeys, k)
	return resp
}

// isSoftware tells whether s may be the name or the version of a client: letters
// and digits of ASCII, with dots and dashes between.
func isSoftware(s string) bool {
	for i := range len(s) {
		c := s[i]
		switch {
		case c >= 'a' && c <= 'z', c >= 'A' && c <= 'Z', c >= '0' && c <= '9':
		case (c == '.' || c == '-') && i > 0 && i < len(s)-1:
		default:
			return false
		}
	}
	return s != ""
}
