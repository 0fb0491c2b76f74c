package config

import (
	"maps"
	"slices"
	"sync/atomic"
)

// Source is where a value comes from, numbered as in DescribeConfigs.
type Source int8

// The sources, from the strongest to the weakest.
const (
	DynamicTopic         Source = 1
	DynamicBroker        Source = 2
	DynamicDefaultBroker Source = 3
	StaticBroker         Source = 4
	Default              Source = 5
	DynamicGroup         Source = 8
)

// setting is the value of a key that holds.
type setting struct {
	value
	null   bool
	source Source
}

// Broker is the configuration of a broker: immutable, so any goroutine may read it. Load makes it, WithDynamic puts layers upon it.
// Methods that take a name panic if there is no such key or if it has another type.
type Broker struct {
	settings []setting         // of brokerKeys().defs
	extra    map[string]string // keys with a listener's prefix, and keys that nobody knows

	static, clusterDefault, perBroker map[string]string // canonical values of the layers
	extraDefault, extraOwn            map[string]string // what the dynamic layers have besides: keys as in extra
	listeners                         listeners

	plain atomic.Pointer[Topic] // of a topic without settings of its own; nil until somebody asked
}

// newBroker resolves the static layer, whose values have been checked, but its listeners have not.
func newBroker(static, extra map[string]string) *Broker {
	b := &Broker{static: static, extra: extra}
	b.resolve()
	return b
}

func (b *Broker) resolve() {
	defs := brokerKeys().defs
	b.settings = make([]setting, len(defs))
	for i := range defs {
		b.settings[i] = b.setting(&defs[i])
	}
}

func (b *Broker) setting(d *Def) setting {
	for _, layer := range b.layers() {
		s, ok := layer.values[d.Name]
		if !ok {
			continue
		}
		if v, err := d.parse(s); err == nil {
			return setting{value: v, source: layer.source}
		}
	}
	if d.NullDefault || d.NoDefault {
		return setting{null: true, source: Default}
	}
	v, err := d.parse(d.Default)
	if err != nil {
		panic(err) // the table contradicts itself; a test looks at every default
	}
	return setting{value: v, source: Default}
}

type layer struct {
	values map[string]string
	source Source
}

// layers returns what can override defaults, the strongest first.
func (b *Broker) layers() []layer {
	return []layer{{b.perBroker, DynamicBroker}, {b.clusterDefault, DynamicDefaultBroker}, {b.static, StaticBroker}}
}

// WithDynamic returns b with the settings of the cluster metadata upon it: those for all brokers, and above them those for this one.
// Keys that are read at start only, and values that are not allowed, change nothing.
func (b *Broker) WithDynamic(clusterDefault, perBroker map[string]string) *Broker {
	changed := &Broker{
		static: b.static, extra: b.extra, listeners: b.listeners,
		clusterDefault: dynamic(clusterDefault, ClusterWide), perBroker: dynamic(perBroker, PerBroker),
		extraDefault: inNoTable(clusterDefault), extraOwn: inNoTable(perBroker),
	}
	changed.resolve()
	return changed
}

// dynamic keeps what can be changed in that scope or a wider one, in canonical form.
func dynamic(values map[string]string, scope Scope) map[string]string {
	kept := map[string]string{}
	for name, s := range values {
		d := brokerKeys().find(name)
		if d == nil || d.Scope < scope {
			continue
		}
		if v, err := d.parse(s); err == nil {
			kept[name] = v.text
		}
	}
	return kept
}

func inNoTable(values map[string]string) map[string]string {
	kept := map[string]string{}
	for name, s := range values {
		if brokerKeys().find(name) == nil {
			kept[name] = s
		}
	}
	return kept
}

func (b *Broker) get(name string, types ...Type) *setting {
	i, ok := brokerKeys().index[name]
	if !ok {
		panic("config: no key " + name)
	}
	if len(types) > 0 && !slices.Contains(types, brokerKeys().defs[i].Type) {
		panic("config: key " + name + " is of type " + brokerKeys().defs[i].Type.String())
	}
	return &b.settings[i]
}

// Int returns the value of a key of type Int, Short or Long; 0 if it is null.
func (b *Broker) Int(name string) int64 { return b.get(name, Int, Short, Long).i }

// Bool returns the value of a key of type Boolean.
func (b *Broker) Bool(name string) bool { return b.get(name, Boolean).i != 0 }

// Double returns the value of a key of type Double.
func (b *Broker) Double(name string) float64 { return b.get(name, Double).f }

// List returns the elements of a key of type List, nil if it is empty or null. The caller does not change it.
func (b *Broker) List(name string) []string { return b.get(name, List).list }

// String returns the value of any key as text, "" if it is null.
func (b *Broker) String(name string) string { return b.get(name).text }

// Value returns the value of any key as text, and whether it is null.
func (b *Broker) Value(name string) (value string, null bool) {
	s := b.get(name)
	return s.text, s.null
}

// IsSet reports whether somebody set the key, be it to its default.
func (b *Broker) IsSet(name string) bool { return b.get(name).source != Default }

// Source returns where the value comes from.
func (b *Broker) Source(name string) Source { return b.get(name).source }

// Extra returns the keys with a value that BrokerDefs has not: keys with a listener's prefix, unknown ones, and internal ones that were
// set while the broker runs; ascending.
func (b *Broker) Extra() []string {
	keys := map[string]bool{}
	for _, l := range b.extraLayers() {
		for name := range l.values {
			keys[name] = true
		}
	}
	for _, l := range b.layers()[:2] {
		for name := range l.values {
			if brokerKeys().find(name).Internal {
				keys[name] = true
			}
		}
	}
	return slices.Sorted(maps.Keys(keys))
}

// extraLayers are the keys that are in no table, the strongest layer first.
func (b *Broker) extraLayers() []layer {
	return []layer{{b.extraOwn, DynamicBroker}, {b.extraDefault, DynamicDefaultBroker}, {b.extra, StaticBroker}}
}

// ListenerValue returns the value of key for one listener (listener.name.NAME.KEY) if it has one of its own.
func (b *Broker) ListenerValue(listener, key string) (string, bool) {
	s, ok := b.extra[listenerPrefix+lower(listener)+"."+key]
	return s, ok
}

// NodeID returns the id of this node: node.id, else broker.id, else 1.
func (b *Broker) NodeID() int32 {
	switch {
	case !b.get("node.id").null:
		return int32(b.Int("node.id"))
	case b.Int("broker.id") >= 0:
		return int32(b.Int("broker.id"))
	}
	return 1
}

// LogDirs returns the directories of the data: log.dirs, else log.dir. There is at least one.
func (b *Broker) LogDirs() []string {
	if dirs := b.List("log.dirs"); len(dirs) > 0 {
		return dirs
	}
	return b.List("log.dir")
}
