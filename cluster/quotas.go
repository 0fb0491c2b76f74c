package cluster

import (
	"cmp"
	"context"
	"encoding/binary"
	"fmt"
	"iter"
	"maps"
	"math"
	"net"
	"net/netip"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Types of the parts of an entity that has quotas.
const (
	QuotaUser     = "user"
	QuotaClientID = "client-id"
	QuotaIP       = "ip"
)

// QuotaPart is one part of whom a quota is for.
type QuotaPart struct {
	Type string  // QuotaClientID, QuotaUser or QuotaIP
	Name *string // nil: whoever has no quota of their own
}

// ClientQuota is what has been set for one entity. It is immutable.
type ClientQuota struct {
	Entity []QuotaPart // client id, user, ip: those that the entity has, in this order
	Limits map[string]float64
}

// ClientQuotas yields what has been set for all entities, in a fixed order.
func (im *Image) ClientQuotas() iter.Seq[*ClientQuota] {
	return func(yield func(*ClientQuota) bool) {
		it := im.quotas.Root().Iterator()
		for _, v, ok := it.Next(); ok; _, v, ok = it.Next() {
			if !yield(v.(*ClientQuota)) {
				return
			}
		}
	}
}

// quotaRecord sets one limit of one entity; a nil value removes it.
type quotaRecord struct {
	entity []QuotaPart
	key    string
	value  *float64
}

func (quotaRecord) kind() recordKind { return kindQuota }

func (q quotaRecord) encode(b []byte) []byte {
	b = appendQuotaEntity(b, q.entity)
	b = appendString(b, q.key)
	b = appendBool(b, q.value != nil)
	if q.value != nil {
		b = binary.BigEndian.AppendUint64(b, math.Float64bits(*q.value))
	}
	return b
}

func appendQuotaEntity(b []byte, entity []QuotaPart) []byte {
	b = binary.AppendUvarint(b, uint64(len(entity)))
	for _, p := range entity {
		b = appendOptional(appendString(b, p.Type), p.Name)
	}
	return b
}

func (r *reader) quota() quotaRecord {
	var q quotaRecord
	for range r.count(2) {
		q.entity = append(q.entity, QuotaPart{r.string(), r.optional()})
	}
	q.key = r.string()
	if r.bool() {
		if bits := r.bytes(8); bits != nil {
			value := math.Float64frombits(binary.BigEndian.Uint64(bits))
			q.value = &value
		}
	}
	return q
}

func (e *edit) replayQuota(rec quotaRecord) {
	key := appendQuotaEntity(nil, rec.entity)
	next := &ClientQuota{Entity: rec.entity, Limits: map[string]float64{}}
	if v, ok := e.quotas.Get(key); ok {
		next.Limits = maps.Clone(v.(*ClientQuota).Limits)
	}
	if rec.value == nil {
		delete(next.Limits, rec.key)
	} else {
		next.Limits[rec.key] = *rec.value
	}
	if len(next.Limits) == 0 {
		e.quotas.Delete(key)
		return
	}
	e.quotas.Insert(key, next)
}

// AlterClientQuotas answers an AlterClientQuotas request. Host names among the addresses are looked up before anything is decided.
func (c *Controller) AlterClientQuotas(ctx context.Context, req *kmsg.AlterClientQuotasRequest) *kmsg.AlterClientQuotasResponse {
	unknown := unknownHosts(ctx, req)
	var resp *kmsg.AlterClientQuotasResponse
	err := c.do(ctx, func(d *decider) (records []record) {
		resp, records = d.alterClientQuotas(req, unknown)
		if req.ValidateOnly {
			return nil
		}
		return records
	})
	if err == nil {
		return resp
	}
	resp = req.ResponseKind().(*kmsg.AlterClientQuotasResponse)
	for i := range req.Entries {
		resp.Entries = append(resp.Entries, quotaAnswer(quotaEntity(req.Entries[i].Entity), err))
	}
	return resp
}

// unknownHosts are the names of addresses in a request that are no addresses and cannot be resolved to any.
func unknownHosts(ctx context.Context, req *kmsg.AlterClientQuotasRequest) map[string]bool {
	unknown := map[string]bool{}
	for i := range req.Entries {
		for _, part := range req.Entries[i].Entity {
			if part.Type != QuotaIP || part.Name == nil || *part.Name == "" {
				continue
			}
			if _, err := netip.ParseAddr(*part.Name); err == nil {
				continue
			}
			if _, err := net.DefaultResolver.LookupHost(ctx, *part.Name); err != nil {
				unknown[*part.Name] = true
			}
		}
	}
	return unknown
}

// alterClientQuotas decides on each entry by itself. An entity that comes twice is answered once: with an error, though its first entry holds.
func (d *decider) alterClientQuotas(req *kmsg.AlterClientQuotasRequest, unknownHosts map[string]bool) (*kmsg.AlterClientQuotasResponse, []record) {
	resp := req.ResponseKind().(*kmsg.AlterClientQuotasResponse)
	rows := map[string]int{} // of an entity in resp.Entries
	var records []record
	for i := range req.Entries {
		entity, ops := quotaEntity(req.Entries[i].Entity), req.Entries[i].Ops
		key := string(appendQuotaEntity(nil, entity))
		row, seen := rows[key]
		var err error
		if seen || repeatsKey(ops) {
			err = reject(kerr.InvalidRequest, "Ignoring duplicate entity %s", showQuotaEntity(entity))
		} else {
			var changes []record
			changes, err = d.alterQuota(entity, ops, unknownHosts)
			records = append(records, changes...)
		}
		if seen {
			resp.Entries[row] = quotaAnswer(entity, err)
			continue
		}
		rows[key] = len(resp.Entries)
		resp.Entries = append(resp.Entries, quotaAnswer(entity, err))
	}
	return resp, records
}

func (d *decider) alterQuota(entity []QuotaPart, ops []kmsg.AlterClientQuotasRequestEntryOp, unknownHosts map[string]bool) ([]record, error) {
	kinds, err := limitsOf(entity, unknownHosts)
	if err != nil {
		return nil, err
	}
	var now map[string]float64
	if v, ok := d.im.quotas.Get(appendQuotaEntity(nil, entity)); ok {
		now = v.(*ClientQuota).Limits
	}
	var records []record
	for i := range ops {
		o := &ops[i]
		before, had := now[o.Key]
		if o.Remove {
			if had {
				records = append(records, quotaRecord{entity, o.Key, nil})
			}
			continue
		}
		if err := kinds.check(o.Key, o.Value); err != nil {
			return nil, err
		}
		if !had || before != o.Value {
			value := o.Value // the request goes its own way
			records = append(records, quotaRecord{entity, o.Key, &value})
		}
	}
	return records, nil
}

// quotaOrder is the order of the parts of an entity: that of Kafka's hash map.
var quotaOrder = []string{QuotaClientID, QuotaUser, QuotaIP}

// quotaEntity puts the parts of an entity in order. Of a type that comes twice the last one holds; types that don't exist come last.
func quotaEntity(parts []kmsg.AlterClientQuotasRequestEntryEntity) []QuotaPart {
	var entity []QuotaPart
	at := map[string]int{}
	for _, p := range parts {
		if i, ok := at[p.Type]; ok {
			entity[i].Name = p.Name
			continue
		}
		at[p.Type] = len(entity)
		entity = append(entity, QuotaPart{p.Type, p.Name})
	}
	rank := func(p QuotaPart) uint { return uint(slices.Index(quotaOrder, p.Type)) }
	slices.SortStableFunc(entity, func(a, b QuotaPart) int { return cmp.Compare(rank(a), rank(b)) })
	return entity
}

func showQuotaEntity(entity []QuotaPart) string {
	var parts []string
	for _, p := range entity {
		name := "null"
		if p.Name != nil {
			name = *p.Name
		}
		parts = append(parts, p.Type+"="+name)
	}
	return fmt.Sprintf("ClientQuotaEntity(entries={%s})", strings.Join(parts, ", "))
}

func repeatsKey(ops []kmsg.AlterClientQuotasRequestEntryOp) bool {
	seen := make(map[string]bool, len(ops))
	for i := range ops {
		if seen[ops[i].Key] {
			return true
		}
		seen[ops[i].Key] = true
	}
	return false
}

func quotaAnswer(entity []QuotaPart, err error) kmsg.AlterClientQuotasResponseEntry {
	e := kmsg.NewAlterClientQuotasResponseEntry()
	e.ErrorCode, e.ErrorMessage = codeAndText(err)
	for _, p := range entity {
		part := kmsg.NewAlterClientQuotasResponseEntryEntity()
		part.Type, part.Name = p.Type, p.Name
		e.Entity = append(e.Entity, part)
	}
	return e
}

// limitKinds are the limits that a kind of entity can have: the type of the value, and its greatest.
type limitKinds map[string]limitKind

type limitKind struct {
	name string // as Kafka calls the type; "" for one that may have a fraction
	max  float64
}

var (
	clientLimits = limitKinds{
		"producer_byte_rate":       {"a LONG", math.MaxInt64},
		"consumer_byte_rate":       {"a LONG", math.MaxInt64},
		"request_percentage":       {"", math.MaxFloat64},
		"controller_mutation_rate": {"", math.MaxFloat64},
	}
	ipLimits = limitKinds{"connection_creation_rate": {"an INT", math.MaxInt32}}
)

// limitsOf gives the limits that an entity can have, or why there is no such entity.
func limitsOf(entity []QuotaPart, unknownHosts map[string]bool) (limitKinds, error) {
	if len(entity) == 0 {
		return nil, reject(kerr.InvalidRequest, "Invalid empty client quota entity")
	}
	for _, p := range entity {
		if !slices.Contains(quotaOrder, p.Type) {
			return nil, reject(kerr.InvalidRequest, "Unhandled client quota entity type: %s", p.Type)
		}
		if p.Name != nil && *p.Name == "" {
			return nil, reject(kerr.InvalidRequest, "Empty %s not supported", p.Type)
		}
	}
	last := entity[len(entity)-1]
	switch {
	case last.Type != QuotaIP:
		return clientLimits, nil
	case len(entity) > 1:
		return nil, reject(kerr.InvalidRequest, "Invalid quota entity combination, IP entity shouldnot be combined with User or ClientId")
	case last.Name != nil && unknownHosts[*last.Name]:
		return nil, reject(kerr.InvalidRequest, "%s is not a valid IP or resolvable host.", *last.Name)
	}
	return ipLimits, nil
}

func (kinds limitKinds) check(key string, value float64) error {
	kind, ok := kinds[key]
	switch {
	case !ok:
		return reject(kerr.InvalidRequest, "Invalid configuration key %s", key)
	case math.IsNaN(value) || math.IsInf(value, 0):
		return reject(kerr.InvalidRequest, "Quota %s must be a finite number", key)
	case value <= 0:
		return reject(kerr.InvalidRequest, "Quota %s must be greater than 0", key)
	case value > kind.max:
		return reject(kerr.InvalidRequest, "Proposed value for %s is too large for %s.", key, kind.name)
	case kind.name != "" && math.Mod(value, 1) > 1e-6:
		return reject(kerr.InvalidRequest, "%s cannot be a fractional value.", key)
	}
	return nil
}
