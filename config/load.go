package config

import (
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
)

// LoadOptions says where Load reads from. The zero value is the broker's configuration out of the box.
type LoadOptions struct {
	File string   // path of a .properties file; "" means the lines of OutOfTheBox
	Env  []string // NAME=value, as os.Environ gives them
	Set  []string // key=value, as given on the command line
}

// OutOfTheBox is the configuration file of a broker that was given none.
const OutOfTheBox = "listeners=PLAINTEXT://127.0.0.1:9092\nlog.dirs=./data\nnode.id=1\n"

// Report is what the user should hear about a configuration that is good.
type Report struct {
	WithoutEffect []string // keys that were set and change nothing here, ascending
	Unknown       []string // keys that nobody knows, ascending
	Warnings      []string // what else is odd, a sentence each
}

// Error is a value that a key cannot have. Its text is one line that names key, value and what is allowed.
type Error struct {
	Key, Value string
	Reason     string // a sentence
	Allowed    string // in words; "" if Reason says it
}

// Error returns the line.
func (e *Error) Error() string {
	s := e.Key + "=" + e.Value + ": " + e.Reason
	if e.Allowed != "" {
		s += "; allowed is " + e.Allowed
	}
	return strings.ReplaceAll(s, "\n", " ")
}

// Load reads a configuration: defaults, then the file, then the environment, then the settings of the command line; the later wins.
// Errors are *Error, or those of reading the file.
func Load(o LoadOptions) (*Broker, Report, error) {
	text := OutOfTheBox
	if o.File != "" {
		raw, err := os.ReadFile(o.File)
		if err != nil {
			return nil, Report{}, err
		}
		text = string(raw)
	}
	given, err := parseProperties(text)
	if err != nil {
		return nil, Report{}, fmt.Errorf("%s: %w", o.File, err)
	}
	maps.Copy(given, fromEnv(o.Env))
	for _, s := range o.Set {
		key, value, ok := strings.Cut(s, "=")
		if key = strings.TrimSpace(key); !ok || key == "" {
			return nil, Report{}, &Error{Key: "--set", Value: s, Reason: "not a setting", Allowed: "key=value"}
		}
		given[key] = value
	}
	return resolve(given)
}

// noSettings are variables of the environment that begin with KAFKA_ and are for the JVM and its start scripts.
var noSettings = []string{"KAFKA_HEAP_OPTS", "KAFKA_OPTS", "KAFKA_LOG4J_OPTS", "KAFKA_JVM_PERFORMANCE_OPTS", "KAFKA_VERSION"}

// fromEnv turns KAFKA_FOO_BAR=x into foo.bar=x; __ stands for _, ___ for -.
func fromEnv(env []string) map[string]string {
	given := map[string]string{}
	names := strings.NewReplacer("___", "-", "__", "_", "_", ".")
	for _, e := range env {
		name, value, _ := strings.Cut(e, "=")
		key, ok := strings.CutPrefix(name, "KAFKA_")
		if ok && key != "" && !slices.Contains(noSettings, name) {
			given[lower(names.Replace(key))] = value
		}
	}
	return given
}

func lower(s string) string { return strings.ToLower(s) }

// resolve checks what was given and makes a Broker of it.
func resolve(given map[string]string) (*Broker, Report, error) {
	var report Report
	static, extra := map[string]string{}, map[string]string{}
	for _, key := range slices.Sorted(maps.Keys(given)) {
		d := brokerKeys().find(baseKey(key))
		if d == nil {
			report.Unknown = append(report.Unknown, key)
			extra[key] = given[key]
			continue
		}
		v, err := d.parse(given[key])
		if err != nil {
			return nil, report, d.refuse(key, given[key], err)
		}
		if d.Use == Accepted {
			report.WithoutEffect = append(report.WithoutEffect, key)
		}
		if key == d.Name {
			static[key] = v.text
		} else {
			extra[key] = v.text
		}
	}
	b := newBroker(static, extra)
	if err := b.settle(&report); err != nil {
		return nil, report, err
	}
	return b, report, nil
}

// refuse turns Kafka's words about a value into a line for the user. Secrets stay secret.
func (d *Def) refuse(key, value string, err error) error {
	if d.Sensitive {
		value = "[hidden]"
	}
	reason := err.Error()
	if _, after, ok := strings.Cut(reason, " for configuration "+d.Name+": "); ok {
		reason = after
	}
	return &Error{Key: key, Value: value, Reason: reason, Allowed: d.Allowed()}
}

// settle checks the values that depend on each other and reads the listeners.
func (b *Broker) settle(report *Report) error {
	if err := b.settleIDs(); err != nil {
		return err
	}
	for _, p := range ordered {
		if low, high := b.Int(p[0]), b.Int(p[1]); low > high {
			return &Error{Key: p[0], Value: b.String(p[0]), Reason: fmt.Sprintf("greater than %s, which is %d", p[1], high)}
		}
	}
	if b.Int("max.connections.per.ip") == 0 && b.String("max.connections.per.ip.overrides") == "" {
		return &Error{Key: "max.connections.per.ip", Value: "0", Reason: "nobody could connect", Allowed: "0 only with max.connections.per.ip.overrides"}
	}
	var err error
	b.listeners, err = b.readListeners()
	if err != nil {
		return err
	}
	if b.Int("log.index.size.max.bytes") < minIndexBytes {
		report.Warnings = append(report.Warnings, fmt.Sprintf("log.index.size.max.bytes=%s is less than an index entry; %d is used", b.String("log.index.size.max.bytes"), minIndexBytes))
	}
	return nil
}

// settleIDs makes node.id and broker.id agree.
func (b *Broker) settleIDs() error {
	node, nodeSet := b.static["node.id"]
	broker, brokerSet := b.static["broker.id"]
	switch {
	case nodeSet && brokerSet && node != broker:
		return &Error{Key: "broker.id", Value: broker, Reason: "not the node.id, which is " + node, Allowed: "the same value, or to leave it out"}
	case nodeSet:
		b.static["broker.id"] = node
	case brokerSet && b.Int("broker.id") >= 0:
		b.static["node.id"] = broker
	}
	b.resolve()
	return nil
}

// ordered are keys of which the first must not be greater than the second.
var ordered = [][2]string{
	{"group.min.session.timeout.ms", "group.max.session.timeout.ms"},
	{"group.consumer.min.heartbeat.interval.ms", "group.consumer.heartbeat.interval.ms"},
	{"group.consumer.heartbeat.interval.ms", "group.consumer.max.heartbeat.interval.ms"},
	{"group.consumer.min.session.timeout.ms", "group.consumer.session.timeout.ms"},
	{"group.consumer.session.timeout.ms", "group.consumer.max.session.timeout.ms"},
	{"group.share.min.heartbeat.interval.ms", "group.share.heartbeat.interval.ms"},
	{"group.share.heartbeat.interval.ms", "group.share.max.heartbeat.interval.ms"},
	{"group.share.min.session.timeout.ms", "group.share.session.timeout.ms"},
	{"group.share.session.timeout.ms", "group.share.max.session.timeout.ms"},
	{"group.streams.min.heartbeat.interval.ms", "group.streams.heartbeat.interval.ms"},
	{"group.streams.heartbeat.interval.ms", "group.streams.max.heartbeat.interval.ms"},
	{"group.streams.min.session.timeout.ms", "group.streams.session.timeout.ms"},
	{"group.streams.session.timeout.ms", "group.streams.max.session.timeout.ms"},
}
