package config

import "strconv"

func formatInt(n int64) string { return strconv.FormatInt(n, 10) }

// Synonym is one of the values that could hold for a key, as DescribeConfigs tells them.
type Synonym struct {
	Name, Value string
	Null        bool // also of values that are never shown
	Source      Source
}

// Entry is what DescribeConfigs tells about a key.
type Entry struct {
	Def      Def // of unknown keys only Name and ReadOnly
	Value    string
	Null     bool // also of values that are never shown
	Source   Source
	Synonyms []Synonym // the strongest first; what holds is the first
}

// Describe returns what DescribeConfigs tells about a key of the broker, public, internal, own, or of Extra; false for others.
func (b *Broker) Describe(name string) (Entry, bool) {
	d := brokerKeys().find(name)
	if d == nil {
		return b.describeExtra(name)
	}
	s := b.get(name)
	e := Entry{Def: *d, Value: s.text, Null: s.null || d.Sensitive, Source: Default, Synonyms: b.Synonyms(name)}
	if e.Null {
		e.Value = ""
	}
	if len(e.Synonyms) > 0 {
		e.Source = e.Synonyms[0].Source
	}
	return e, true
}

func (b *Broker) describeExtra(name string) (Entry, bool) {
	e := Entry{Def: Def{Sensitive: true}} // what nobody knows could be a secret
	base := brokerKeys().find(baseKey(name))
	if base != nil {
		e.Def = *base
	}
	e.Def.Name, e.Def.ReadOnly, e.Null = name, true, e.Def.Sensitive
	for _, l := range b.extraLayers() {
		text, ok := l.values[name]
		if !ok {
			continue
		}
		if e.Null {
			text = ""
		}
		e.Synonyms = append(e.Synonyms, Synonym{Name: name, Value: text, Null: e.Null, Source: l.source})
	}
	if len(e.Synonyms) == 0 {
		return Entry{}, false
	}
	e.Value, e.Source = e.Synonyms[0].Value, e.Synonyms[0].Source
	if base != nil {
		e.Synonyms = append(e.Synonyms, b.Synonyms(base.Name)...)
	}
	return e, true
}

// Synonyms returns the values that could hold for a key of the broker: of each layer, the key's own and those of its other units. It begins
// with a value of the key itself, so it is empty while only other units have one.
func (b *Broker) Synonyms(name string) []Synonym {
	keys := []*Def{brokerKeys().find(name)}
	if keys[0] == nil {
		return nil
	}
	for _, u := range units[name] {
		keys = append(keys, brokerKeys().find(u.name))
	}
	var all []Synonym
	add := func(d *Def, text string, source Source) {
		if len(all) == 0 && d.Name != name {
			return
		}
		s := Synonym{Name: d.Name, Value: text, Source: source}
		if d.Sensitive {
			s.Value, s.Null = "", true
		}
		all = append(all, s)
	}
	for _, layer := range b.layers() {
		for _, d := range keys {
			if text, ok := layer.values[d.Name]; ok {
				add(d, text, layer.source)
			}
		}
	}
	for _, d := range keys {
		if !d.NullDefault && !d.NoDefault {
			add(d, d.Default, Default)
		}
	}
	return all
}

// DescribeTopic returns what DescribeConfigs tells about a key of a topic with these overrides; false for keys that no topic has. Kafka does not list
// internal keys.
func (b *Broker) DescribeTopic(name string, overrides map[string]string) (Entry, bool) {
	d := topicKeys().find(name)
	if d == nil {
		return Entry{}, false
	}
	s, null := b.topicSetting(d, overrides)
	return b.describe(d, s, null, DynamicTopic), true
}

// DescribeGroup returns what DescribeConfigs tells about a key of a group with these overrides; false for keys that no group has.
func (b *Broker) DescribeGroup(name string, overrides map[string]string) (Entry, bool) {
	d := groupKeys().find(name)
	if d == nil {
		return Entry{}, false
	}
	s, null := b.topicSetting(d, overrides)
	if s.source == DynamicTopic {
		s.source = DynamicGroup
	}
	return b.describe(d, s, null, DynamicGroup), true
}

func (b *Broker) describe(d *Def, s setting, null bool, own Source) Entry {
	e := Entry{Def: *d, Value: s.text, Null: null, Source: Default}
	if s.source == own {
		e.Synonyms = []Synonym{{Name: d.Name, Value: s.text, Source: own}}
	}
	switch {
	case d.Broker != "":
		e.Synonyms = append(e.Synonyms, b.Synonyms(d.Broker)...)
	case own == DynamicGroup && !d.NullDefault:
		e.Synonyms = append(e.Synonyms, Synonym{Name: d.Name, Value: d.Default, Source: Default})
	}
	if len(e.Synonyms) > 0 {
		e.Source = e.Synonyms[0].Source
	}
	return e
}
