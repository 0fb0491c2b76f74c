package server

import (
	"cmp"
	"maps"
	"slices"
	"strconv"

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
//   - A topic shows all its settings; the cluster's defaults are only what was set there; loggers are those of Kafka that have
//     a counterpart here, with their levels.
//   - The value comes from the first of: the resource itself, the broker's dynamic settings, the cluster's, the broker's
//     file, the default. All of those that say something are the synonyms, under the broker's names where a topic or a group
//     inherits, and the first one's source is the value's.
//   - Settings that can be given in several units (log.retention.ms, .minutes, .hours) are synonyms of each other; those
//     stronger than the one that is asked for are left out.
//   - Passwords have no value in any answer.
//   - The list of names filters: unknown ones are left out, an empty list is as good as null. Entries come ascending by name;
//     Kafka's order is that of a hash map.
//   - ErrorMessage is "" on success and for an unknown topic.
//   - What makes an answer too large is INVALID_REQUEST: see repeats.
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
	again := newRepeats()
	topics := make(map[string]bool)
	for _, rr := range req.Resources {
		row := kmsg.NewDescribeConfigsResponseResource()
		row.ResourceType, row.ResourceName, row.ErrorMessage = rr.ResourceType, rr.ResourceName, new("")
		if known {
			first := rr.ResourceType == kmsg.ConfigResourceTypeTopic && !topics[rr.ResourceName]
			topics[rr.ResourceName] = topics[rr.ResourceName] || first
			err := errRepeats
			if first || !again.spent() {
				row.Configs, err = configDescribers[rr.ResourceType](&d, rr.ResourceName)
				row.Configs = wantedConfigs(row.Configs, rr.ConfigNames, req.IncludeSynonyms)
			}
			if !first && !again.take(sizeOfConfigs(row.Configs)) {
				row.Configs, err = nil, errRepeats
			}
			if err != nil {
				row.ErrorCode = errorCode(err)
				row.ErrorMessage = cmp.Or(errorMessage(err), row.ErrorMessage)
			}
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

// configDescriber describes the resources of one request, from one image.
type configDescriber struct {
	s    *Server
	im   *cluster.Image
	cfg  *config.Broker
	docs bool
}

func (d *configDescriber) topic(name string) ([]configRow, error) {
	if err := cluster.CheckTopicName(name); err != nil {
		return nil, err
	}
	if d.im.Topic(name) == nil {
		return nil, kerr.UnknownTopicOrPartition
	}
	own := d.im.Config(kmsg.ConfigResourceTypeTopic, name)
	names := namesOf(config.TopicDefs())
	for key := range own { // internal ones are shown if they are set
		if !slices.Contains(names, key) {
			names = append(names, key)
		}
	}
	return d.rows(names, func(key string) (config.Entry, bool) { return d.cfg.DescribeTopic(key, own) }), nil
}

func (d *configDescriber) group(name string) ([]configRow, error) {
	if name == "" {
		return nil, withMessage(kerr.InvalidRequest, "Group name must not be empty")
	}
	own := d.im.Config(kmsg.ConfigResourceTypeGroupConfig, name)
	return d.rows(namesOf(config.GroupDefs()), func(key string) (config.Entry, bool) { return d.cfg.DescribeGroup(key, own) }), nil
}

// clientMetrics describes a subscription, which inherits nothing from anywhere.
func (d *configDescriber) clientMetrics(name string) ([]configRow, error) {
	if name == "" {
		return nil, withMessage(kerr.InvalidRequest, "Client metrics subscription name must not be empty")
	}
	own := d.im.Config(kmsg.ConfigResourceTypeClientMetrics, name)
	var rows []configRow
	for _, def := range config.ClientMetricsDefs() {
		e := config.Entry{Def: def, Value: def.Default, Source: config.Default}
		if value, ok := own[def.Name]; ok {
			e.Value, e.Source = value, config.Source(kmsg.ConfigSourceClientMetricsConfig)
			e.Synonyms = []config.Synonym{{Name: def.Name, Value: value, Source: e.Source}}
		}
		rows = append(rows, d.row(e))
	}
	return rows, nil
}

// brokerOrCluster describes this broker, or with an empty name what is set for all brokers.
func (d *configDescriber) brokerOrCluster(name string) ([]configRow, error) {
	if name == "" {
		return d.clusterDefaults(), nil
	}
	if err := d.checkBroker(name, "Unexpected broker id, expected %d or empty string, but received %s"); err != nil {
		return nil, err
	}
	return d.rows(append(namesOf(config.BrokerDefs()), d.cfg.Extra()...), d.cfg.Describe), nil
}

func (d *configDescriber) clusterDefaults() []configRow {
	set := d.im.Config(kmsg.ConfigResourceTypeBroker, "")
	return d.rows(slices.Collect(maps.Keys(set)), func(key string) (config.Entry, bool) {
		e, ok := d.cfg.Describe(key)
		e.Value, e.Source = set[key], config.DynamicDefaultBroker
		if e.Def.Sensitive {
			e.Value = ""
		}
		e.Null = e.Def.Sensitive
		e.Synonyms = []config.Synonym{{Name: key, Value: e.Value, Null: e.Null, Source: e.Source}}
		return e, ok
	})
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

// loggers describes the levels of loggers.
func (d *configDescriber) loggers(name string) ([]configRow, error) {
	if name == "" {
		return nil, withMessage(kerr.InvalidRequest, "Broker id must not be empty")
	}
	if err := d.checkBroker(name, "Unexpected broker id, expected %d but received %s"); err != nil {
		return nil, err
	}
	names, levels := d.s.loggers.describe()
	rows := make([]configRow, len(names))
	for i := range names {
		rows[i] = kmsg.NewDescribeConfigsResponseResourceConfig()
		rows[i].Name, rows[i].Value = names[i], &levels[i]
		rows[i].Source, rows[i].Documentation = kmsg.ConfigSourceDynamicBrokerLoggerConfig, new("")
	}
	return rows, nil
}

func namesOf(defs []config.Def) []string {
	names := make([]string, len(defs))
	for i := range defs {
		names[i] = defs[i].Name
	}
	return names
}

// rows describes settings, ascending by name.
func (d *configDescriber) rows(names []string, describe func(string) (config.Entry, bool)) []configRow {
	slices.Sort(names)
	rows := make([]configRow, 0, len(names))
	for _, name := range names {
		if e, ok := describe(name); ok {
			rows = append(rows, d.row(e))
		}
	}
	return rows
}

func (d *configDescriber) row(e config.Entry) configRow {
	row := kmsg.NewDescribeConfigsResponseResourceConfig()
	row.Name, row.ReadOnly, row.IsSensitive = e.Def.Name, e.Def.ReadOnly, e.Def.Sensitive
	row.ConfigType, row.Source = kmsg.ConfigType(e.Def.Type), kmsg.ConfigSource(e.Source)
	row.Value = unlessNull(e.Value, e.Null)
	for _, s := range e.Synonyms {
		row.ConfigSynonyms = append(row.ConfigSynonyms, kmsg.DescribeConfigsResponseResourceConfigConfigSynonym{
			Name: s.Name, Value: unlessNull(s.Value, s.Null), Source: kmsg.ConfigSource(s.Source)})
	}
	if d.docs {
		row.Documentation = &e.Def.Doc
	}
	return row
}

func unlessNull(value string, null bool) *string {
	if null {
		return nil
	}
	return &value
}
