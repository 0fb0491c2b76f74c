package cluster

import (
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/config"
)

// Sources of a config value in an answer.
const (
	sourceDynamicTopic   = 1
	sourceDynamicBroker  = 2
	sourceDynamicDefault = 3
	sourceStaticBroker   = 4
	sourceDefault        = 5
)

// brokerSynonym is a broker setting that gives the default of a topic setting, in a unit of its own.
type brokerSynonym struct {
	name   string
	millis int64 // factor to the topic's unit; 0: the value as it is
}

// synonymsOf are the broker settings that give the default of a topic setting, the strongest first. Most have one, named in the table; times
// can be given in several units.
func synonymsOf(def config.Def) []brokerSynonym {
	const minute, hour = 60 * 1000, 60 * 60 * 1000
	switch def.Name {
	case "retention.ms":
		return []brokerSynonym{{"log.retention.ms", 0}, {"log.retention.minutes", minute}, {"log.retention.hours", hour}}
	case "segment.ms":
		return []brokerSynonym{{"log.roll.ms", 0}, {"log.roll.hours", hour}}
	case "segment.jitter.ms":
		return []brokerSynonym{{"log.roll.jitter.ms", 0}, {"log.roll.jitter.hours", hour}}
	case "flush.ms":
		return []brokerSynonym{{"log.flush.interval.ms", 0}, {"log.flush.scheduler.interval.ms", 0}}
	}
	if def.Broker != "" {
		return []brokerSynonym{{def.Broker, 0}}
	}
	if _, ok := brokerDefs()[def.Name]; ok {
		return []brokerSynonym{{def.Name, 0}}
	}
	return nil
}

// describeTopic lists all settings of a topic, given those that are its own: what CreateTopics answers. Values stand as they were set. Topics
// without any of their own share the list.
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
		configs[i].Name, configs[i].Value, configs[i].Source = key, &value, sourceDynamicTopic
	}
	return configs
}

// topicDefaults are the settings of a topic that has none of its own, ascending.
func (d *decider) topicDefaults() []kmsg.CreateTopicsResponseTopicConfig {
	cluster := d.im.Config(kmsg.ConfigResourceTypeBroker, "")
	broker := d.im.Config(kmsg.ConfigResourceTypeBroker, brokerName(d.nodeID))
	var defaults []kmsg.CreateTopicsResponseTopicConfig
	for _, def := range config.TopicDefs() {
		if strings.HasPrefix(def.Name, "internal.") {
			continue
		}
		c := kmsg.NewCreateTopicsResponseTopicConfig()
		value := def.Default
		c.Name, c.Value, c.Source = def.Name, &value, sourceDefault
		for _, s := range synonymsOf(def) {
			v, source := d.synonymValue(s, cluster, broker)
			if source == 0 {
				continue
			}
			c.Value, c.Source = &v, source
			break
		}
		defaults = append(defaults, c)
	}
	return defaults
}

// synonymValue is the value of a broker setting that was set somewhere, and where; a source of 0 if it was not.
func (d *decider) synonymValue(s brokerSynonym, cluster, broker map[string]string) (value string, source int8) {
	if v, ok := broker[s.name]; ok {
		value, source = v, sourceDynamicBroker
	} else if v, ok := cluster[s.name]; ok {
		value, source = v, sourceDynamicDefault
	} else if d.static.IsSet(s.name) {
		value, _ = d.static.Value(s.name)
		source = sourceStaticBroker
	}
	if n, err := strconv.ParseInt(strings.TrimSpace(value), 10, 64); err == nil && s.millis > 0 {
		value = strconv.FormatInt(n*s.millis, 10)
	}
	return value, source
}
