package cluster

import (
	"cmp"
	"errors"
	"fmt"
	"math"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/config"
)

// configKind is a kind of resource that has dynamic configs: what names it may have and what may be set.
type configKind struct {
	// checkResource checks the resource's name, before its configs.
	checkResource func(d *decider, name string) error
	// check checks the changed keys (nil removes one), and what all of them will be.
	check func(d *decider, name string, changed map[string]*string, merged map[string]string) error
	// checkList refuses an APPEND or SUBTRACT.
	checkList func(o configOp) error
	// defaultOf is what APPEND and SUBTRACT start from where nothing is set.
	defaultOf func(key string) string
}

var configKinds = map[kmsg.ConfigResourceType]configKind{
	kmsg.ConfigResourceTypeTopic: {
		checkResource: func(*decider, string) error { return nil },
		check:         checkTopicConfigs,
		checkList:     listOnly(config.TopicDef),
		defaultOf:     defaultFrom(config.TopicDef),
	},
	kmsg.ConfigResourceTypeBroker: {
		checkResource: checkBrokerName,
		check:         checkBrokerConfigs,
		checkList:     checkBrokerList,
		defaultOf:     defaultFrom(config.BrokerDef),
	},
	kmsg.ConfigResourceTypeGroupConfig: {
		checkResource: func(*decider, string) error { return nil },
		check:         checkGroupConfigs,
		checkList:     listOnly(noLists),
		defaultOf:     defaultFrom(noLists),
	},
	kmsg.ConfigResourceTypeClientMetrics: {
		checkResource: func(*decider, string) error { return nil },
		check:         checkClientMetrics,
		checkList:     listOnly(noLists),
		defaultOf:     defaultFrom(noLists),
	},
}

// listOnly allows APPEND and SUBTRACT for the lists of a table.
func listOnly(def func(key string) (config.Def, bool)) func(configOp) error {
	return func(o configOp) error {
		if d, ok := def(o.key); ok && d.Type == config.List {
			return nil
		}
		verb := "APPEND"
		if o.op == kmsg.IncrementalAlterConfigOpSubtract {
			verb = "SUBTRACT"
		}
		return reject(kerr.InvalidConfig, "Can't %s to key %s because its type is not LIST.", verb, o.key)
	}
}

// noLists is the table of the kinds that have none, whatever the types of their keys.
func noLists(string) (config.Def, bool) { return config.Def{}, false }

func defaultFrom(def func(key string) (config.Def, bool)) func(key string) string {
	return func(key string) string {
		d, _ := def(key)
		return d.Default
	}
}

func invalidConfig(err error) error {
	if err == nil {
		return nil
	}
	return reject(kerr.InvalidConfig, "%s", err.Error())
}

// Topics.

// topicConfigs are the configs of a new topic: their values and the order in which the request has their names.
type topicConfigs struct {
	values map[string]string
	order  []string
}

// topicOverrides checks the configs of a CreateTopics request. Of a key that comes twice the last value holds, as in Kafka.
func topicOverrides(configs []kmsg.CreateTopicsRequestTopicConfig) (topicConfigs, error) {
	o := topicConfigs{values: make(map[string]string, len(configs))}
	var null []string
	for i := range configs {
		c := &configs[i]
		if c.Value == nil {
			null = append(null, c.Name)
			continue
		}
		if _, ok := o.values[c.Name]; !ok {
			o.order = append(o.order, c.Name)
		}
		o.values[c.Name] = *c.Value
	}
	if len(null) > 0 {
		return o, reject(kerr.InvalidConfig, "Null value not supported for topic configs: %s", strings.Join(null, ","))
	}
	return o, checkTopicValues(o.order, o.values)
}

// checkTopicValues checks all settings of a topic, of which keys are new. Of several unknown names the first is told.
func checkTopicValues(keys []string, values map[string]string) error {
	for _, key := range keys {
		if _, ok := config.TopicDef(key); !ok {
			return reject(kerr.InvalidConfig, "Unknown topic config name: %s", key)
		}
	}
	return invalidConfig(config.CheckTopicConfigs(values))
}

func intValue(values map[string]string, key string, unset int64) (int64, bool) {
	v, ok := values[key]
	if !ok {
		return unset, true
	}
	n, err := strconv.ParseInt(strings.TrimSpace(v), 10, 64)
	return n, err == nil
}

func checkTopicConfigs(d *decider, name string, changed map[string]*string, merged map[string]string) error {
	if name == "" {
		return reject(kerr.InvalidRequest, "Default topic resources are not allowed.")
	}
	if err := CheckTopicName(name); err != nil {
		return err
	}
	if err := checkTopicValues(setKeys(changed), merged); err != nil {
		return err
	}
	if d.im.Topic(name) == nil {
		return reject(kerr.UnknownTopicOrPartition, "The topic '%s' does not exist.", name)
	}
	return nil
}

// setKeys are the keys that get a value, ascending.
func setKeys(changed map[string]*string) []string {
	var keys []string
	for key, value := range changed {
		if value != nil {
			keys = append(keys, key)
		}
	}
	slices.Sort(keys)
	return keys
}

// Brokers.

func checkBrokerName(d *decider, name string) error {
	if name == "" {
		return nil
	}
	id, err := strconv.ParseInt(name, 10, 32)
	if err != nil {
		return reject(kerr.InvalidRequest, "Node id must be an integer, but it is: %s", name)
	}
	if int32(id) != d.nodeID {
		return reject(kerr.InvalidRequest, "Unexpected broker id, expected %d, but received %s", d.nodeID, name)
	}
	return nil
}

func checkBrokerList(o configOp) error {
	def, ok := config.BrokerDef(o.key)
	switch {
	case !ok:
		return reject(kerr.InvalidConfig, "Unknown config name: %s", o.key)
	case def.Type != config.List:
		return reject(kerr.InvalidConfig, "Config value append is not allowed for config key: %s", o.key)
	}
	return nil
}

// checkBrokerConfigs checks what is set; a key may be removed whatever it is. Keys that are not known are taken, as plugins have their own.
func checkBrokerConfigs(d *decider, name string, changed map[string]*string, merged map[string]string) error {
	keys := setKeys(changed)
	var fixed, security, perBroker []string
	for _, key := range keys {
		switch def, ok := config.BrokerDef(key); {
		case !ok:
		case def.ReadOnly:
			fixed = append(fixed, key)
		case strings.HasPrefix(key, "ssl.keystore.") || strings.HasPrefix(key, "ssl.truststore.") || key == "ssl.key.password":
			security = append(security, key)
		case def.Scope == config.PerBroker:
			perBroker = append(perBroker, key)
		}
	}
	switch {
	case len(fixed) > 0:
		return reject(kerr.InvalidRequest, "Cannot update these configs dynamically: [%s]", strings.Join(fixed, ", "))
	case len(security) > 0:
		return reject(kerr.InvalidRequest,
			"These security configs can be dynamically updated only per-listener using the listener prefix: [%s]", strings.Join(security, ", "))
	case len(perBroker) > 0 && name == "":
		return reject(kerr.InvalidRequest,
			"Cannot update these configs at default cluster level, broker id must be specified: [%s]", strings.Join(perBroker, ", "))
	case slices.Contains(perBroker, "listeners"), slices.Contains(perBroker, "listener.security.protocol.map"): // bound at start, here
		return reject(kerr.InvalidRequest, "Cannot update these configs dynamically: [%s]", strings.Join(perBroker, ", "))
	}
	for _, key := range keys {
		err := config.CheckBroker(key, *changed[key])
		if check := brokerChecks[key]; err == nil && check != nil && !(name == "" && d.overridden(key)) {
			err = check(strings.TrimSpace(*changed[key]))
		}
		if err != nil {
			return reject(kerr.InvalidRequest, "%s", err.Error())
		}
	}
	own := d.im.Config(kmsg.ConfigResourceTypeBroker, brokerName(d.nodeID))
	next := d.static.WithDynamic(merged, own)
	if name != "" {
		next = d.static.WithDynamic(d.im.Config(kmsg.ConfigResourceTypeBroker, ""), merged)
	}
	if err := checkTogether(next); err != nil {
		return err
	}
	if err := d.checkThreads(changed); err != nil {
		return err
	}
	return checkMinInsync(name, changed, merged)
}

// checkTogether checks settings that limit each other.
func checkTogether(b *config.Broker) error {
	if b.Int("max.connections.per.ip") == 0 && b.String("max.connections.per.ip.overrides") == "" {
		return reject(kerr.InvalidRequest, "requirement failed: max.connections.per.ip can be set to zero only if max.connections.per.ip.overrides property is set.")
	}
	t := b.Topic(nil)
	return cmp.Or(
		checkLocal("log.local.retention.ms", b.Int("log.local.retention.ms"), "log.retention.ms", t.RetentionMs),
		checkLocal("log.local.retention.bytes", b.Int("log.local.retention.bytes"), "log.retention.bytes", t.RetentionBytes))
}

// checkLocal wants no more of what stays here than of what stays at all. -2 is as much, -1 without limit.
func checkLocal(key string, local int64, totalKey string, total int64) error {
	reason := ""
	switch {
	case local == -2 || total == -1:
		return nil
	case local == -1:
		reason = fmt.Sprintf("Value must not be -1 as %s value is set as %d.", totalKey, total)
	case local > total:
		reason = fmt.Sprintf("Value must not be more than %s property value: %d", totalKey, total)
	default:
		return nil
	}
	return reject(kerr.InvalidRequest,
		"Invalid value org.apache.kafka.common.config.ConfigException: Invalid value %d for configuration %s: %s for configuration Invalid dynamic configuration",
		local, key, reason)
}

// overridden tells whether this broker has a setting of its own, so that the one for all changes nothing here.
func (d *decider) overridden(key string) bool {
	_, ok := d.im.Config(kmsg.ConfigResourceTypeBroker, strconv.Itoa(int(d.nodeID)))[key]
	return ok
}

// brokerChecks are what else Kafka finds wrong with values that are changed while a broker runs, in its words.
var brokerChecks = map[string]func(string) error{
	"log.cleaner.threads":              notZero("/ by zero"),
	"max.connections":                  notZero(invalidLimit("max.connections")),
	"max.connection.creation.rate":     notZero(invalidLimit("max.connection.creation.rate")),
	"max.connections.per.ip.overrides": checkConnectionOverrides,
	"log.retention.ms": func(v string) error {
		if v != "0" && (v == "-1" || v[0] != '-') {
			return nil
		}
		return errors.New("requirement failed: log.retention.ms must be unlimited (-1) or, greater than or equal to 1")
	},
}

func notZero(message string) func(string) error {
	return func(v string) error {
		if v == "0" {
			return errors.New(message)
		}
		return nil
	}
}

func invalidLimit(key string) string {
	return "Invalid value org.apache.kafka.common.config.ConfigException: Invalid " + key + " 0 for configuration Invalid dynamic configuration"
}

// checkConnectionOverrides wants entries of an address, a colon and a number. Entries at the end may be empty.
func checkConnectionOverrides(v string) error {
	var wrong []string
	for _, entry := range strings.Split(strings.TrimRight(v, ", "), ",") {
		entry = strings.TrimSpace(entry)
		colon := strings.LastIndexByte(entry, ':')
		if entry == "" && !strings.Contains(v, ":") {
			return nil
		}
		if colon < 0 {
			return fmt.Errorf("Error parsing configuration property 'max.connections.per.ip.overrides': begin 0, end -1, length %d", len(entry))
		}
		limit := strings.TrimSpace(entry[colon+1:])
		if _, err := strconv.ParseInt(limit, 10, 32); err != nil {
			return fmt.Errorf("%s: %q", notANumber, limit)
		}
		if host := strings.TrimSpace(entry[:colon]); !hostName.MatchString(host) {
			wrong = append(wrong, host)
		}
	}
	if len(wrong) > 0 {
		return fmt.Errorf("max.connections.per.ip.overrides contains invalid addresses : %s", strings.Join(wrong, ","))
	}
	return nil
}

var hostName = regexp.MustCompile(`^[0-9a-zA-Z\-%._:]*$`)

// notANumber is what Kafka's answers say of a number that can't be read.
const notANumber = "For input string"

// Pools whose size may be changed while the broker runs, by no more than half or double.
var threadKeys = []string{
	"num.io.threads", "num.network.threads", "num.replica.fetchers", "num.recovery.threads.per.data.dir", "background.threads",
}

func (d *decider) checkThreads(changed map[string]*string) error {
	for _, key := range threadKeys {
		if changed[key] == nil {
			continue
		}
		next, err := strconv.ParseInt(strings.TrimSpace(*changed[key]), 10, 64)
		now := d.broker().Int(key)
		limit := ""
		switch {
		case err != nil || next >= now/2 && next <= 2*now:
			continue
		case next < now:
			limit = "value should be at least half the current value "
		default:
			limit = "value should not be greater than double the current value "
		}
		return reject(kerr.InvalidRequest,
			"Invalid value org.apache.kafka.common.config.ConfigException: Dynamic thread count update validation failed for %s=%d, %s%d for configuration Invalid dynamic configuration",
			key, next, limit, now)
	}
	return nil
}

// checkMinInsync keeps min.insync.replicas what the eligible leader replicas (KIP-966) rest on: one value for the cluster, always set.
func checkMinInsync(name string, changed map[string]*string, merged map[string]string) error {
	_, alters := changed[minInsyncReplicas]
	_, has := merged[minInsyncReplicas]
	switch {
	case name != "" && alters:
		return reject(kerr.InvalidConfig, "Broker-level min.insync.replicas cannot be altered while ELR is enabled.")
	case name == "" && !has:
		return reject(kerr.InvalidConfig, "Cluster-level min.insync.replicas cannot be removed while ELR is enabled.")
	}
	return nil
}

// Groups.

// groupRange bounds a setting of groups by two of the broker's, either of which may be none.
type groupRange struct{ key, low, high string }

var groupRanges = []groupRange{
	{"consumer.heartbeat.interval.ms", "group.consumer.min.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms"},
	{"consumer.session.timeout.ms", "group.consumer.min.session.timeout.ms", "group.consumer.max.session.timeout.ms"},
	{"consumer.assignment.interval.ms", "group.consumer.min.assignment.interval.ms", "group.consumer.max.assignment.interval.ms"},
	{"share.heartbeat.interval.ms", "group.share.min.heartbeat.interval.ms", "group.share.max.heartbeat.interval.ms"},
	{"share.session.timeout.ms", "group.share.min.session.timeout.ms", "group.share.max.session.timeout.ms"},
	{"share.assignment.interval.ms", "group.share.min.assignment.interval.ms", "group.share.max.assignment.interval.ms"},
	{"share.record.lock.duration.ms", "group.share.min.record.lock.duration.ms", "group.share.max.record.lock.duration.ms"},
	{"share.delivery.count.limit", "group.share.min.delivery.count.limit", "group.share.max.delivery.count.limit"},
	{"share.partition.max.record.locks", "group.share.min.partition.max.record.locks", "group.share.max.partition.max.record.locks"},
	{"streams.heartbeat.interval.ms", "group.streams.min.heartbeat.interval.ms", "group.streams.max.heartbeat.interval.ms"},
	{"streams.session.timeout.ms", "group.streams.min.session.timeout.ms", "group.streams.max.session.timeout.ms"},
	{"streams.assignment.interval.ms", "group.streams.min.assignment.interval.ms", "group.streams.max.assignment.interval.ms"},
	{"streams.num.standby.replicas", "", "group.streams.max.standby.replicas"},
	{"streams.task.offset.interval.ms", "group.streams.min.task.offset.interval.ms", ""},
}

func (r groupRange) check(b *config.Broker, value int64) error {
	low, high := int64(math.MinInt64), int64(math.MaxInt64)
	if r.low != "" {
		low = b.Int(r.low)
	}
	if r.high != "" {
		high = b.Int(r.high)
	}
	switch {
	case value >= low && value <= high:
		return nil
	case r.low == "":
		return reject(kerr.InvalidConfig, "%s must be less than or equal to %d", r.key, high)
	case r.high == "":
		return reject(kerr.InvalidConfig, "%s must be greater than or equal to %d", r.key, low)
	}
	return reject(kerr.InvalidConfig, "%s must be in the range %d to %d inclusive.", r.key, low, high)
}

func checkGroupConfigs(d *decider, name string, changed map[string]*string, merged map[string]string) error {
	if name == "" {
		return reject(kerr.InvalidRequest, "Default group resources are not allowed.")
	}
	for _, key := range setKeys(changed) {
		if err := config.CheckGroup(key, merged[key]); err != nil {
			return invalidConfig(err)
		}
	}
	b := d.broker()
	for _, r := range groupRanges {
		value, ok := intValue(merged, r.key, 0)
		if _, set := merged[r.key]; !set || !ok {
			continue
		}
		if err := r.check(b, value); err != nil {
			return err
		}
	}
	if assignor, ok := merged["streams.assignor.name"]; ok && !slices.Contains(b.List("group.streams.assignors"), assignor) {
		return reject(kerr.InvalidConfig, "streams.assignor.name '%s' is not a registered task assignor. Registered assignors are: [%s].",
			assignor, strings.Join(b.List("group.streams.assignors"), ", "))
	}
	return nil
}

// Client metrics.

// checkClientMetrics has two codes, as Kafka checks what a subscription is in one place and its types in another.
func checkClientMetrics(_ *decider, name string, changed map[string]*string, merged map[string]string) error {
	if name == "" {
		return reject(kerr.InvalidRequest, "Subscription name can't be empty")
	}
	for _, key := range setKeys(changed) {
		value := merged[key]
		err := config.CheckClientMetrics(key, value)
		_, isInt := intValue(merged, key, 0)
		switch known := key == "interval.ms" || key == "match" || key == "metrics"; {
		case err != nil && (!known || key == "interval.ms" && isInt):
			return reject(kerr.InvalidRequest, "%s", err.Error())
		case err != nil:
			return invalidConfig(err)
		}
	}
	return nil
}
