package server

import (
	"cmp"
	"context"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"sync"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/cluster"
	"oncelog/config"
)

// DescribeConfigs (32), versions 1 to 4.
//
// Behavior
//   - Resources: topics, brokers (this one by its id, "" for the cluster's defaults), this broker's loggers, groups, client
//     metrics subscriptions. Groups and subscriptions need not exist: they have their defaults then.
//   - A topic shows all its settings; the cluster's defaults are only what was set there; of loggers there is one, root, with
//     the level that the process was started with.
//   - The value comes from the first of: the resource itself, the broker's dynamic settings, the cluster's, the broker's
//     file, the default. All of those that say something are the synonyms, under the broker's names where a topic or a group
//     inherits, and the first one's source is the value's.
//   - Settings that can be given in several units (log.retention.ms, .minutes, .hours) are synonyms of each other; those
//     stronger than the one that is asked for are left out.
//   - Passwords have no value in any answer.
//   - The list of names filters: unknown ones are left out, an empty list is as good as null. Entries come ascending by name;
//     Kafka's order is that of a hash map.
//   - ErrorMessage is "" on success and for an unknown topic.
//   - A resource of an unknown type makes the whole request INVALID_REQUEST.
//
// Version notes
//   - 3: types, and documentation if asked for (of loggers always, and empty).

func (s *Server) handleDescribeConfigs(r *request) pending {
	req := r.body.(*kmsg.DescribeConfigsRequest)
	resp := req.ResponseKind().(*kmsg.DescribeConfigsResponse)
	known := !slices.ContainsFunc(req.Resources, func(rr kmsg.DescribeConfigsRequestResource) bool {
		return configDescribers[rr.ResourceType] == nil
	})
	d := configDescriber{s: s, im: s.image(), cfg: s.cfg(), docs: req.IncludeDocumentation}
	d.broker = d.im.Config(kmsg.ConfigResourceTypeBroker, strconv.Itoa(int(s.nodeID)))
	d.cluster = d.im.Config(kmsg.ConfigResourceTypeBroker, "")
	for _, rr := range req.Resources {
		row := kmsg.NewDescribeConfigsResponseResource()
		row.ResourceType, row.ResourceName, row.ErrorMessage = rr.ResourceType, rr.ResourceName, new("")
		if known {
			configs, err := configDescribers[rr.ResourceType](&d, rr.ResourceName)
			if err != nil {
				row.ErrorCode = errorCode(err)
				row.ErrorMessage = cmp.Or(errorMessage(err), row.ErrorMessage)
			}
			row.Configs = wantedConfigs(configs, rr.ConfigNames, req.IncludeSynonyms)
		} else {
			row.ErrorCode, row.ErrorMessage = kerr.InvalidRequest.Code, new(malformedRequest)
		}
		resp.Resources = append(resp.Resources, row)
	}
	return answer(resp)
}

// malformedRequest is what Kafka says to a request that could not have been built by a sound client.
const malformedRequest = "This most likely occurs because of a request being malformed by the client library or the message was sent to an incompatible broker. See the broker logs for more details."

type configRow = kmsg.DescribeConfigsResponseResourceConfig
type configSynonym = kmsg.DescribeConfigsResponseResourceConfigConfigSynonym

// wantedConfigs drops what was not asked for.
func wantedConfigs(rows []configRow, names []string, synonyms bool) []configRow {
	if len(names) > 0 {
		wanted := make(map[string]bool, len(names))
		for _, n := range names {
			wanted[n] = true
		}
		rows = slices.DeleteFunc(rows, func(c configRow) bool { return !wanted[c.Name] })
	}
	if !synonyms {
		for i := range rows {
			rows[i].ConfigSynonyms = nil
		}
	}
	return rows
}

// configDescribers give a resource's settings, by its type.
var configDescribers = map[kmsg.ConfigResourceType]func(*configDescriber, string) ([]configRow, error){
	kmsg.ConfigResourceTypeTopic:         (*configDescriber).topic,
	kmsg.ConfigResourceTypeBroker:        (*configDescriber).brokerOrCluster,
	kmsg.ConfigResourceTypeBrokerLogger:  (*configDescriber).loggers,
	kmsg.ConfigResourceTypeGroupConfig:   (*configDescriber).group,
	kmsg.ConfigResourceTypeClientMetrics: (*configDescriber).clientMetrics,
}

// brokerDefs are the broker's settings by name.
var brokerDefs = sync.OnceValue(func() map[string]config.Def {
	defs := map[string]config.Def{}
	for _, def := range config.BrokerDefs() {
		defs[def.Name] = def
	}
	return defs
})

// configDescriber describes the resources of one request, from one image.
type configDescriber struct {
	s               *Server
	im              *cluster.Image
	cfg             *config.Broker
	broker, cluster map[string]string // dynamic settings of this node, and the cluster's defaults
	docs            bool
}

func (d *configDescriber) topic(name string) ([]configRow, error) {
	if err := cluster.CheckTopicName(name); err != nil {
		return nil, err
	}
	if d.im.Topic(name) == nil {
		return nil, kerr.UnknownTopicOrPartition
	}
	own := d.im.Config(kmsg.ConfigResourceTypeTopic, name)
	return d.inheriting(config.TopicDefs(), own, kmsg.ConfigSourceDynamicTopicConfig, topicSynonyms), nil
}

func (d *configDescriber) group(name string) ([]configRow, error) {
	if name == "" {
		return nil, withMessage(kerr.InvalidRequest, "Group name must not be empty")
	}
	own := d.im.Config(kmsg.ConfigResourceTypeGroupConfig, name)
	return d.inheriting(config.GroupDefs(), own, kmsg.ConfigSourceGroupConfig, groupSynonyms), nil
}

func (d *configDescriber) clientMetrics(name string) ([]configRow, error) {
	if name == "" {
		return nil, withMessage(kerr.InvalidRequest, "Client metrics subscription name must not be empty")
	}
	own := d.im.Config(kmsg.ConfigResourceTypeClientMetrics, name)
	return d.inheriting(clientMetricsDefs, own, kmsg.ConfigSourceClientMetricsConfig, noSynonyms), nil
}

// inheriting describes the settings of something that has its own and takes the broker's for the rest.
func (d *configDescriber) inheriting(defs []config.Def, own map[string]string, source kmsg.ConfigSource, synonyms func(*configDescriber, config.Def) []configSynonym) []configRow {
	rows := make([]configRow, 0, len(defs))
	for _, def := range defs {
		inherited := synonyms(d, def)
		value, set := own[def.Name]
		if strings.HasPrefix(def.Name, "internal.") && !set {
			continue
		}
		row := d.row(def)
		switch {
		case set:
			row.ConfigSynonyms = append([]configSynonym{{Name: def.Name, Value: visible(def, &value), Source: source}}, inherited...)
			row.Value = visible(def, &value)
		case len(inherited) > 0:
			row.ConfigSynonyms = inherited
			row.Value = inherited[0].Value
		default:
			row.Value = visible(def, d.inheritedInOtherUnits(def))
		}
		row.Source = sourceOf(row.ConfigSynonyms)
		rows = append(rows, row)
	}
	return rows
}

// inheritedInOtherUnits is the value of a topic's setting whose broker setting is given in another unit, if at all.
func (d *configDescriber) inheritedInOtherUnits(def config.Def) *string {
	resolved := d.cfg.Topic(nil)
	switch def.Name {
	case "retention.ms":
		return new(strconv.FormatInt(resolved.RetentionMs, 10))
	case "segment.ms":
		return new(strconv.FormatInt(resolved.SegmentMs, 10))
	case "segment.jitter.ms":
		return new(strconv.FormatInt(resolved.SegmentJitterMs, 10))
	case "flush.ms":
		return new(strconv.FormatInt(resolved.FlushMs, 10))
	}
	return defaultOf(def)
}

// topicSynonyms are what a topic's setting comes from when the topic has none.
func topicSynonyms(d *configDescriber, def config.Def) []configSynonym {
	name := def.Broker
	if other, ok := topicUnits[def.Name]; ok {
		name = other
	}
	if name == "" {
		name = def.Name // the broker's setting has the same name, or there is none
	}
	broker, ok := brokerDefs()[name]
	if !ok {
		return nil
	}
	return d.synonyms(broker)
}

// topicUnits are the topic settings whose broker settings come in several units, and the broker's name of the same unit.
var topicUnits = map[string]string{
	"retention.ms":      "log.retention.ms",
	"segment.ms":        "log.roll.ms",
	"segment.jitter.ms": "log.roll.jitter.ms",
	"flush.ms":          "log.flush.interval.ms",
}

// groupSynonyms are what a group's setting comes from; one that no broker setting gives is its own synonym.
func groupSynonyms(d *configDescriber, def config.Def) []configSynonym {
	if def.Broker == "" {
		return []configSynonym{{Name: def.Name, Value: defaultOf(def), Source: kmsg.ConfigSourceDefaultConfig}}
	}
	return d.synonyms(brokerDefs()[def.Broker])
}

// clientMetricsDefs are the settings of a client metrics subscription (KIP-714).
var clientMetricsDefs = []config.Def{
	{Name: "interval.ms", Type: config.Type(kmsg.ConfigTypeInt), Default: "300000", Doc: "How often a client pushes its metrics, in milliseconds."},
	{Name: "match", Type: config.Type(kmsg.ConfigTypeList), Doc: "Which clients this is for: pairs of a selector and a regular expression, all of which must match. None matches all clients."},
	{Name: "metrics", Type: config.Type(kmsg.ConfigTypeList), Doc: "Prefixes of the names of the metrics that are wanted; \"*\" wants all, nothing wants none."},
}

func noSynonyms(*configDescriber, config.Def) []configSynonym { return nil }

// brokerOrCluster describes this broker, or with an empty name what is set for all brokers.
func (d *configDescriber) brokerOrCluster(name string) ([]configRow, error) {
	if name == "" {
		return d.clusterDefaults(), nil
	}
	if err := d.checkBroker(name, "Unexpected broker id, expected %d or empty string, but received %s"); err != nil {
		return nil, err
	}
	defs := config.BrokerDefs()
	rows := make([]configRow, 0, len(defs))
	for _, def := range defs {
		row := d.row(def)
		row.ConfigSynonyms = d.synonyms(def)
		row.Source = sourceOf(row.ConfigSynonyms)
		if value, null := d.cfg.Value(def.Name); !null {
			row.Value = visible(def, &value)
		}
		rows = append(rows, row)
	}
	return rows, nil
}

func (d *configDescriber) clusterDefaults() []configRow {
	var rows []configRow
	for _, name := range slices.Sorted(maps.Keys(d.cluster)) {
		def, ok := brokerDefs()[name]
		if !ok {
			continue
		}
		row := d.row(def)
		row.Value, row.Source = visible(def, new(d.cluster[name])), kmsg.ConfigSourceDynamicDefaultBrokerConfig
		row.ConfigSynonyms = []configSynonym{{Name: name, Value: row.Value, Source: row.Source}}
		rows = append(rows, row)
	}
	return rows
}

// checkBroker checks that a name is this node's id. Kafka reads it as Java reads an integer: signs and zeros may lead.
func (d *configDescriber) checkBroker(name, unexpected string) error {
	id, err := strconv.ParseInt(name, 10, 32)
	if err != nil {
		return withMessage(kerr.InvalidRequest, "Broker id must be an integer, but it is: %s", name)
	}
	if int32(id) != d.s.nodeID {
		return withMessage(kerr.InvalidRequest, unexpected, d.s.nodeID, name)
	}
	return nil
}

// loggers describes the one logger.
func (d *configDescriber) loggers(name string) ([]configRow, error) {
	if name == "" {
		return nil, withMessage(kerr.InvalidRequest, "Broker id must not be empty")
	}
	if err := d.checkBroker(name, "Unexpected broker id, expected %d but received %s"); err != nil {
		return nil, err
	}
	row := kmsg.NewDescribeConfigsResponseResourceConfig()
	row.Name, row.Value = "root", new(d.s.logLevel())
	row.Source, row.Documentation = kmsg.ConfigSourceDynamicBrokerLoggerConfig, new("")
	return []configRow{row}, nil
}

// logLevel is the least level that is logged, in Kafka's words.
func (s *Server) logLevel() string {
	for _, l := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn} {
		if s.log.Enabled(context.Background(), l) {
			return l.String()
		}
	}
	return slog.LevelError.String()
}

// row is what all answers about a setting have.
func (d *configDescriber) row(def config.Def) configRow {
	row := kmsg.NewDescribeConfigsResponseResourceConfig()
	row.Name, row.ReadOnly, row.IsSensitive = def.Name, def.ReadOnly, def.Sensitive
	row.ConfigType = kmsg.ConfigType(def.Type)
	if d.docs {
		row.Documentation = &def.Doc
	}
	return row
}

// synonyms are all that says something about a broker setting, the strongest first.
func (d *configDescriber) synonyms(def config.Def) []configSynonym {
	var all []configSynonym
	names := brokerSynonyms(def.Name)
	add := func(source kmsg.ConfigSource, value func(config.Def) *string) {
		for _, name := range names {
			nd := brokerDefs()[name]
			if v := value(nd); v != nil {
				all = append(all, configSynonym{Name: name, Value: visible(nd, v), Source: source})
			}
		}
	}
	add(kmsg.ConfigSourceDynamicBrokerConfig, in(d.broker))
	add(kmsg.ConfigSourceDynamicDefaultBrokerConfig, in(d.cluster))
	add(kmsg.ConfigSourceStaticBrokerConfig, d.static)
	add(kmsg.ConfigSourceDefaultConfig, defaultOf)
	first := slices.IndexFunc(all, func(s configSynonym) bool { return s.Name == def.Name })
	if first < 0 {
		return nil
	}
	return all[first:]
}

func in(set map[string]string) func(config.Def) *string {
	return func(def config.Def) *string {
		if v, ok := set[def.Name]; ok {
			return &v
		}
		return nil
	}
}

// static is the value that the broker was started with, nil if none was given. broker.id is node.id by another name.
func (d *configDescriber) static(def config.Def) *string {
	name := def.Name
	if name == "broker.id" && !d.s.static.IsSet(name) {
		name = "node.id"
	}
	if !d.s.static.IsSet(name) {
		return nil
	}
	v, null := d.s.static.Value(name)
	if null {
		return nil
	}
	return &v
}

// defaultOf is a setting's default, nil if it has none.
func defaultOf(def config.Def) *string {
	if def.NoDefault || def.NullDefault {
		return nil
	}
	return &def.Default
}

// visible hides secrets.
func visible(def config.Def, value *string) *string {
	if def.Sensitive {
		return nil
	}
	return value
}

func sourceOf(synonyms []configSynonym) kmsg.ConfigSource {
	if len(synonyms) == 0 {
		return kmsg.ConfigSourceDefaultConfig
	}
	return synonyms[0].Source
}

// brokerSynonyms are the names under which a broker setting can be given, the strongest first.
func brokerSynonyms(name string) []string {
	for _, units := range [][]string{
		{"log.retention.ms", "log.retention.minutes", "log.retention.hours"},
		{"log.roll.ms", "log.roll.hours"},
		{"log.roll.jitter.ms", "log.roll.jitter.hours"},
	} {
		if slices.Contains(units, name) {
			return units
		}
	}
	if name == "log.flush.interval.ms" {
		return []string{name, "log.flush.scheduler.interval.ms"}
	}
	return []string{name}
}
