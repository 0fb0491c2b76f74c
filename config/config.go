package config

import (
	"slices"
	"strings"
	"sync"
)

// Type is the type of a key's value, numbered as in DescribeConfigs.
type Type int8

// The types.
const (
	Boolean Type = iota + 1
	String
	Int
	Short
	Long
	Double
	List
	Class
	Password
)

// Use tells whether the broker honours a key.
type Use int8

// Accepted keys are Kafka's and may be set, but change nothing here; Used ones are honoured.
const (
	Accepted Use = iota
	Used
)

// Scope tells where a key of the broker can be changed while it runs.
type Scope int8

// StaticOnly keys are read at start; PerBroker keys can be set for one broker only, ClusterWide ones also for all.
const (
	StaticOnly Scope = iota
	PerBroker
	ClusterWide
)

// Def is the definition of a key. Defs come from tables that nobody changes.
type Def struct {
	Name        string
	Type        Type
	Default     string // canonical text; "" too if NullDefault or NoDefault
	NullDefault bool
	NoDefault   bool  // must be set where it matters; null until then
	ReadOnly    bool  // Scope is StaticOnly
	Sensitive   bool  // the value is never shown
	Internal    bool  // Kafka has it, but no answer lists it
	Own         bool  // not Kafka's
	Scope       Scope // of keys of the broker
	Use         Use
	Doc         string // one sentence
	Broker      string // of keys of topics and groups: the broker's key that gives the default; "" for none

	check rule
}

// table is a set of definitions with an index by name.
type table struct {
	defs  []Def // in the order in which Kafka checks them
	index map[string]int
}

func newTable(parts ...[]Def) *table {
	t := &table{defs: slices.Concat(parts...), index: map[string]int{}}
	for i, d := range t.defs {
		t.index[d.Name] = i
	}
	return t
}

var (
	brokerKeys  = sync.OnceValue(func() *table { return newTable(brokerTableA, brokerTableM) })
	topicKeys   = sync.OnceValue(func() *table { return newTable(topicTable) })
	groupKeys   = sync.OnceValue(func() *table { return newTable(groupTable) })
	metricsKeys = sync.OnceValue(func() *table { return newTable(metricsTable) })
)

// find returns the definition of a key, nil if there is none.
func (t *table) find(name string) *Def {
	if i, ok := t.index[name]; ok {
		return &t.defs[i]
	}
	return nil
}

// public returns the keys that answers list, ascending by name.
func (t *table) public() []Def {
	var defs []Def
	for _, d := range t.defs {
		if !d.Internal && !d.Own {
			defs = append(defs, d)
		}
	}
	slices.SortFunc(defs, func(a, b Def) int { return strings.Compare(a.Name, b.Name) })
	return defs
}

// BrokerDefs returns Kafka's public keys of a broker, ascending by name.
func BrokerDefs() []Def { return brokerKeys().public() }

// TopicDefs returns the public keys of a topic, ascending by name.
func TopicDefs() []Def { return topicKeys().public() }

// GroupDefs returns the public keys of a group, ascending by name.
func GroupDefs() []Def { return groupKeys().public() }

// ClientMetricsDefs returns the keys of a client metrics subscription, ascending by name.
func ClientMetricsDefs() []Def { return metricsKeys().public() }

// OwnDefs returns the keys of the broker that Kafka does not have, ascending by name.
func OwnDefs() []Def {
	var defs []Def
	for _, d := range brokerKeys().defs {
		if d.Own {
			defs = append(defs, d)
		}
	}
	return defs
}

// BrokerDef returns the definition of any key of a broker: public, internal, own, or one with a listener's prefix
// (listener.name.NAME.KEY has the definition of KEY).
func BrokerDef(name string) (Def, bool) { return found(brokerKeys().find(baseKey(name))) }

// TopicDef returns the definition of any key of a topic, internal ones too.
func TopicDef(name string) (Def, bool) { return found(topicKeys().find(name)) }

// GroupDef returns the definition of any key of a group, internal ones too.
func GroupDef(name string) (Def, bool) { return found(groupKeys().find(name)) }

func found(d *Def) (Def, bool) {
	if d == nil {
		return Def{}, false
	}
	return *d, true
}

const listenerPrefix = "listener.name."

// baseKey cuts off a listener's prefix, and of SASL settings a mechanism's too: listener.name.external.scram-sha-256.sasl.jaas.config.
func baseKey(name string) string {
	rest, ok := strings.CutPrefix(name, listenerPrefix)
	if !ok {
		return name
	}
	_, key, ok := strings.Cut(rest, ".")
	if !ok {
		return name
	}
	if i := strings.Index(key, ".sasl."); i > 0 && brokerKeys().find(key) == nil {
		return key[i+1:]
	}
	return key
}
