package cluster

import (
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/config"
)

// describeTopic lists all settings of a topic, given those that are its own: what CreateTopics answers. The topic's own values stand as they were
// set. Topics without any share the list.
func (d *decider) describeTopic(overrides map[string]string) []kmsg.CreateTopicsResponseTopicConfig {
	if d.defaults == nil {
		d.defaults = d.topicDefaults()
	}
	if len(overrides) == 0 {
		return d.defaults
	}
	configs := slices.Clone(d.defaults)
	for key, value := range overrides {
		i, ok := slices.BinarySearchFunc(configs, key, func(c kmsg.CreateTopicsResponseTopicConfig, key string) int {
			return strings.Compare(c.Name, key)
		})
		if !ok { // an internal setting, shown only if it is set
			configs = slices.Insert(configs, i, kmsg.NewCreateTopicsResponseTopicConfig())
		}
		configs[i].Name, configs[i].Value, configs[i].Source = key, &value, int8(config.DynamicTopic)
	}
	return configs
}

// topicDefaults are the settings of a topic that has none of its own, ascending.
func (d *decider) topicDefaults() []kmsg.CreateTopicsResponseTopicConfig {
	broker := d.broker()
	var defaults []kmsg.CreateTopicsResponseTopicConfig
	for _, def := range config.TopicDefs() {
		e, _ := broker.DescribeTopic(def.Name, nil)
		c := kmsg.NewCreateTopicsResponseTopicConfig()
		c.Name, c.Source = def.Name, int8(e.Source)
		if !e.Null {
			c.Value = &e.Value
		}
		defaults = append(defaults, c)
	}
	return defaults
}
