package cluster

import (
	"maps"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

const minInsyncReplicas = "min.insync.replicas"

// alteration is what a request wants of one resource, and what became of it.
type alteration struct {
	kind    kmsg.ConfigResourceType
	name    string
	ops     []configOp
	replace bool // AlterConfigs: what is not named is removed
	err     error
}

type configOp struct {
	op    kmsg.IncrementalAlterConfigOp
	key   string
	value *string
}

func legacyAlterations(req *kmsg.AlterConfigsRequest) []alteration {
	as := make([]alteration, len(req.Resources))
	for i := range req.Resources {
		r := &req.Resources[i]
		as[i] = alteration{kind: r.ResourceType, name: r.ResourceName, replace: true}
		for _, c := range r.Configs {
			as[i].ops = append(as[i].ops, configOp{kmsg.IncrementalAlterConfigOpSet, c.Name, c.Value})
		}
	}
	return as
}

func incrementalAlterations(req *kmsg.IncrementalAlterConfigsRequest) []alteration {
	as := make([]alteration, len(req.Resources))
	for i := range req.Resources {
		r := &req.Resources[i]
		as[i] = alteration{kind: r.ResourceType, name: r.ResourceName}
		for _, c := range r.Configs {
			as[i].ops = append(as[i].ops, configOp{c.Op, c.Name, c.Value})
		}
	}
	return as
}

// alterConfigs decides on each alteration by itself and leaves its error in it.
func (d *decider) alterConfigs(as []alteration) []record {
	type resource struct {
		kind kmsg.ConfigResourceType
		name string
	}
	counts := map[resource]int{}
	for i := range as {
		counts[resource{as[i].kind, as[i].name}]++
	}
	var records []record
	for i := range as {
		a := &as[i]
		if counts[resource{a.kind, a.name}] > 1 {
			a.err = reject(kerr.InvalidRequest, "Each resource must appear at most once.")
			continue
		}
		var changes []record
		if changes, a.err = d.alterConfig(a); a.err == nil {
			records = append(records, changes...)
		}
	}
	return records
}

func (d *decider) alterConfig(a *alteration) ([]record, error) {
	if err := checkOps(a.ops); err != nil {
		return nil, err
	}
	k, ok := configKinds[a.kind]
	if !ok {
		return nil, reject(kerr.InvalidRequest, "Unknown resource type %d", a.kind)
	}
	if err := k.checkResource(d, a.name); err != nil {
		return nil, err
	}
	old := d.im.Config(a.kind, a.name)
	changed, err := applyOps(k, a, old)
	if err != nil {
		return nil, err
	}
	if err := k.check(d, a.name, changed, merge(old, changed, a.replace)); err != nil {
		return nil, err
	}
	if a.replace {
		for key := range old {
			if _, ok := changed[key]; !ok {
				changed[key] = nil
			}
		}
	}
	var records []record
	for _, key := range slices.Sorted(maps.Keys(changed)) {
		value := changed[key]
		before, had := old[key]
		if value == nil && had || value != nil && (!had || before != *value) {
			records = append(records, configRecord{a.kind, a.name, key, value})
		}
	}
	return records, nil
}

// checkOps refuses what makes no sense for any resource.
func checkOps(ops []configOp) error {
	seen := make(map[string]bool, len(ops))
	var null []string
	for _, o := range ops {
		if seen[o.key] {
			return reject(kerr.InvalidRequest, "Error due to duplicate config keys")
		}
		seen[o.key] = true
		if o.op != kmsg.IncrementalAlterConfigOpDelete && o.value == nil {
			null = append(null, o.key)
		}
	}
	if len(null) > 0 {
		return reject(kerr.InvalidRequest, "Null value not supported for : %s", strings.Join(null, ", "))
	}
	for _, o := range ops {
		if o.op < kmsg.IncrementalAlterConfigOpSet || o.op > kmsg.IncrementalAlterConfigOpSubtract {
			return reject(kerr.InvalidRequest, "Unknown operation type %d for %s", o.op, o.key)
		}
	}
	return nil
}

// applyOps makes the new values of the keys that a names; nil removes a key.
func applyOps(k configKind, a *alteration, old map[string]string) (map[string]*string, error) {
	changed := make(map[string]*string, len(a.ops))
	for _, o := range a.ops {
		switch o.op {
		case kmsg.IncrementalAlterConfigOpSet:
			changed[o.key] = o.value
		case kmsg.IncrementalAlterConfigOpDelete:
			changed[o.key] = nil
		default:
			if err := k.checkList(o); err != nil {
				return nil, err
			}
			list, ok := old[o.key]
			if !ok {
				list = k.defaultOf(o.key)
			}
			value := editList(list, *o.value, o.op == kmsg.IncrementalAlterConfigOpAppend)
			changed[o.key] = &value
		}
	}
	return changed, nil
}

// editList adds elements to a list that it doesn't have, or takes out those that it has. Elements are compared as they stand, blanks included.
func editList(list, elements string, add bool) string {
	var parts []string
	if list != "" {
		parts = splitList(list)
	}
	for _, e := range splitList(elements) {
		i := slices.Index(parts, e)
		switch {
		case add && i < 0:
			parts = append(parts, e)
		case !add && i >= 0:
			parts = slices.Delete(parts, i, i+1)
		}
	}
	return strings.Join(parts, ",")
}

// splitList takes a list apart as Java does: empty elements at the end are none, but the empty text is one.
func splitList(s string) []string {
	trimmed := strings.TrimRight(s, ",")
	if trimmed == "" && s != "" {
		return nil
	}
	return strings.Split(trimmed, ",")
}

// merge is what a resource's configs will be.
func merge(old map[string]string, changed map[string]*string, replace bool) map[string]string {
	merged := map[string]string{}
	if !replace {
		maps.Copy(merged, old)
	}
	for key, value := range changed {
		if value == nil {
			delete(merged, key)
		} else {
			merged[key] = *value
		}
	}
	return merged
}
