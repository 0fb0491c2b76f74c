//lint:file-ignore ST1005 Kafka's own words, which clients see

package config

import (
	"errors"
	"fmt"
	"maps"
	"math"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// value is a value of a key, read.
type value struct {
	text string // canonical
	i    int64  // Int, Short, Long; Boolean as 0 and 1
	f    float64
	list []string
}

// rule is what a key allows beside its type. The zero rule allows all.
type rule struct {
	allowed string // in words, after the name of the type
	check   func(name string, v value) error
	repeats bool // elements of a list may be named again; else they are left out
}

func invalid(name, text, reason string) error {
	return fmt.Errorf("Invalid value %s for configuration %s: %s", text, name, reason)
}

// parse reads a value as Kafka does: its errors are Kafka's words.
func (d *Def) parse(s string) (value, error) {
	v := value{text: strings.TrimSpace(s)}
	var err error
	switch d.Type {
	case Boolean:
		v.text = strings.ToLower(v.text)
		if v.text != "true" && v.text != "false" {
			return v, invalid(d.Name, s, "Expected value to be either true or false")
		}
		if v.text == "true" {
			v.i = 1
		}
	case Int, Short, Long:
		if v.i, err = strconv.ParseInt(v.text, 10, d.bits()); err != nil {
			return v, invalid(d.Name, s, "Not a number of type "+d.Type.String())
		}
		v.text = strconv.FormatInt(v.i, 10)
	case Double:
		if v.f, err = parseDouble(v.text); err != nil {
			return v, invalid(d.Name, s, "Not a number of type DOUBLE")
		}
		v.text = formatDouble(v.f)
	case List:
		v.list = splitList(v.text, d.check.repeats)
		v.text = strings.Join(v.list, ",")
	case Class, Password:
		v.text = s
	}
	if d.check.check != nil {
		if err := d.check.check(d.Name, v); err != nil {
			return v, err
		}
	}
	return v, nil
}

func (d *Def) bits() int {
	switch d.Type {
	case Short:
		return 16
	case Int:
		return 32
	}
	return 64
}

// splitList reads a list: elements are trimmed, and those that are named again are left out unless repeats.
func splitList(s string, repeats bool) []string {
	if s == "" {
		return nil
	}
	var list []string
	for _, e := range strings.Split(s, ",") {
		if e = strings.TrimSpace(e); repeats || !slices.Contains(list, e) {
			list = append(list, e)
		}
	}
	return list
}

// parseDouble reads what Java's Double.parseDouble reads.
func parseDouble(s string) (float64, error) {
	if strings.Contains(s, "_") || strings.EqualFold(s, "inf") || strings.EqualFold(strings.TrimLeft(s, "+-"), "inf") {
		return 0, strconv.ErrSyntax
	}
	if n := len(s); n > 1 && strings.ContainsRune("dDfF", rune(s[n-1])) && s[n-2] >= '.' && s[n-2] <= '9' {
		s = s[:n-1]
	}
	f, err := strconv.ParseFloat(s, 64)
	if errors.Is(err, strconv.ErrRange) {
		err = nil // Java: infinity
	}
	return f, err
}

// formatDouble writes what Java's Double.toString writes.
func formatDouble(f float64) string {
	switch {
	case math.IsNaN(f):
		return "NaN"
	case math.IsInf(f, 1):
		return "Infinity"
	case math.IsInf(f, -1):
		return "-Infinity"
	}
	if a := math.Abs(f); a == 0 || a >= 1e-3 && a < 1e7 {
		s := strconv.FormatFloat(f, 'f', -1, 64)
		if !strings.Contains(s, ".") {
			s += ".0"
		}
		return s
	}
	mantissa, exponent, _ := strings.Cut(strconv.FormatFloat(f, 'E', -1, 64), "E")
	if !strings.Contains(mantissa, ".") {
		mantissa += ".0"
	}
	n, _ := strconv.Atoi(exponent)
	return mantissa + "E" + strconv.Itoa(n)
}

// String returns Kafka's name of the type.
func (t Type) String() string {
	names := [...]string{"UNKNOWN", "BOOLEAN", "STRING", "INT", "SHORT", "LONG", "DOUBLE", "LIST", "CLASS", "PASSWORD"}
	if t < 0 || int(t) >= len(names) {
		return names[0]
	}
	return names[t]
}

// Allowed says in words what values the key takes.
func (d *Def) Allowed() string {
	words := [...]string{Boolean: "true or false", String: "a text", Int: "an integer", Short: "a short integer", Long: "a long integer",
		Double: "a number", List: "a list separated by commas", Class: "a class name", Password: "a text"}
	if d.check.allowed == "" {
		return words[d.Type]
	}
	if strings.HasPrefix(d.check.allowed, "=") {
		return d.check.allowed[1:]
	}
	return words[d.Type] + " " + d.check.allowed
}

// number is v as a number, whatever its type.
func (v value) number() float64 {
	if v.f != 0 {
		return v.f
	}
	return float64(v.i)
}

func bound(f float64) string { return strconv.FormatFloat(f, 'f', -1, 64) }

func atLeast(low float64) rule {
	return rule{allowed: "of at least " + bound(low), check: func(name string, v value) error {
		if v.number() < low {
			return invalid(name, v.text, "Value must be at least "+bound(low))
		}
		return nil
	}}
}

func between(low, high float64) rule {
	return rule{allowed: "from " + bound(low) + " to " + bound(high), check: func(name string, v value) error {
		if n := v.number(); n > high {
			return invalid(name, v.text, "Value must be no more than "+bound(high))
		}
		return atLeast(low).check(name, v)
	}}
}

var gzipLevel = rule{allowed: "from 1 to 9, or -1", check: func(name string, v value) error {
	if v.i != -1 && (v.i < 1 || v.i > 9) {
		return invalid(name, v.text, "Value must be between 1 and 9 or equal to -1")
	}
	return nil
}}

func oneOf(values ...string) rule {
	all := strings.Join(values, ", ")
	return rule{allowed: "=one of " + all, check: func(name string, v value) error {
		if !slices.Contains(values, v.text) {
			return invalid(name, v.text, "String must be one of: "+all)
		}
		return nil
	}}
}

func oneOfAnyCase(values ...string) rule {
	all := strings.Join(values, ", ")
	return rule{allowed: "=one of " + all + ", in any case", check: func(name string, v value) error {
		if !slices.ContainsFunc(values, func(s string) bool { return strings.EqualFold(s, v.text) }) {
			return invalid(name, v.text, "String must be one of (case insensitive): "+all)
		}
		return nil
	}}
}

var nonEmpty = rule{allowed: "that is not empty", check: func(name string, v value) error {
	if v.text == "" {
		return invalid(name, v.text, "String must be non-empty")
	}
	return nil
}}

// listOf allows an empty list, and elements of values, or any if there are no values.
func listOf(values ...string) rule {
	all := strings.Join(values, ", ")
	r := rule{allowed: "of " + all, check: func(name string, v value) error {
		for _, e := range v.list {
			switch {
			case e == "":
				return fmt.Errorf("Configuration '%s' values must not be empty.", name)
			case len(values) > 0 && !slices.Contains(values, e):
				return invalid(name, e, "String must be one of: "+all)
			}
		}
		return nil
	}}
	if len(values) == 0 {
		r.allowed = ""
	}
	return r
}

func nonEmptyListOf(values ...string) rule {
	r := listOf(values...)
	elements := r.check
	valid := "any non-empty value"
	if len(values) > 0 {
		valid = "[" + strings.Join(values, ", ") + "]"
	}
	r.allowed = strings.TrimSpace(r.allowed + " that is not empty")
	r.check = func(name string, v value) error {
		if len(v.list) == 0 {
			return fmt.Errorf("Configuration '%s' must not be empty. Valid values include: %s", name, valid)
		}
		return elements(name, v)
	}
	return r
}

var throttledPattern = regexp.MustCompile(`^\d+:\d+$`)

var throttledReplicas = rule{allowed: "of partition:broker, or *", check: func(name string, v value) error {
	if len(v.list) == 1 && v.list[0] == "*" {
		return nil
	}
	for _, e := range v.list {
		if e != "" && !throttledPattern.MatchString(e) {
			return invalid(name, "["+strings.Join(v.list, ", ")+"]",
				name+" must be the literal '*' or a list of replicas in the following format: [partitionId]:[brokerId],[partitionId]:[brokerId],...")
		}
	}
	return nil
}, repeats: true}

var endpointPattern = regexp.MustCompile(`^(?:\[([0-9a-fA-F:.%]+)\]|([^:\[\]]*)):(\d+)$`)

// splitEndpoint reads host:port, [v6 address]:port.
func splitEndpoint(s string) (host string, port int32, ok bool) {
	m := endpointPattern.FindStringSubmatch(s)
	if m == nil {
		return "", 0, false
	}
	n, err := strconv.ParseUint(m[3], 10, 16)
	return m[1] + m[2], int32(n), err == nil
}

var bootstrapServers = rule{allowed: "of host:port", check: func(name string, v value) error {
	for _, e := range v.list {
		if host, _, ok := splitEndpoint(e); !ok || host == "" {
			return fmt.Errorf("Failed to parse host name from %s for the configuration %s. Each entry should be in the form \"{host}:{port}\"", e, name)
		}
	}
	return nil
}}

var voters = rule{allowed: "of id@host:port", check: func(name string, v value) error {
	for _, e := range v.list {
		if _, _, ok := splitVoter(e); !ok {
			return fmt.Errorf("Invalid configuration value for %s. Each entry should be in the form `{id}@{host}:{port}`.", name)
		}
	}
	return nil
}}

func splitVoter(s string) (id int32, endpoint string, ok bool) {
	before, endpoint, ok := strings.Cut(s, "@")
	if !ok {
		return 0, "", false
	}
	n, err := strconv.ParseInt(before, 10, 32)
	_, _, ok = splitEndpoint(endpoint)
	return int32(n), endpoint, ok && err == nil && n >= 0
}

var hostPort = rule{allowed: "=host:port, or nothing", check: func(name string, v value) error {
	if v.text == "" {
		return nil
	}
	_, port, err := net.SplitHostPort(v.text)
	if err == nil {
		_, err = strconv.ParseUint(port, 10, 16)
	}
	if err != nil {
		return invalid(name, v.text, "Expected host:port")
	}
	return nil
}}

var durationPattern = regexp.MustCompile(`(?i)^by_duration:P(?:\d+D)?(?:T(?:\d+H)?(?:\d+M)?(?:\d+(?:[.,]\d{0,9})?S)?)?$`)

var offsetReset = rule{allowed: "=latest, earliest, or by_duration:PnDTnHnMn.nS", check: func(name string, v value) error {
	if v.text != "latest" && v.text != "earliest" && !durationPattern.MatchString(v.text) {
		return invalid(name, v.text, fmt.Sprintf("Invalid value `%s` for configuration %s. The value must be either 'earliest', 'latest' or of the format 'by_duration:<PnDTnHnMn.nS>'.", v.text, name))
	}
	return nil
}}

var pushInterval = rule{allowed: "from 100 to 3600000", check: func(name string, v value) error {
	if v.i < 100 || v.i > 3600000 {
		return fmt.Errorf("Invalid value %s for %s, interval must be between 100 and 3600000 (1 hour)", v.text, name)
	}
	return nil
}}

var clientMatch = rule{allowed: "of property=pattern", check: func(_ string, v value) error {
	_, err := parseClientMatch(v.list)
	return err
}}

// CheckBroker says, in Kafka's words, why a key of the broker cannot have that value; nil if it can. Keys that nobody knows take any value.
func CheckBroker(name, value string) error {
	d := brokerKeys().find(baseKey(name))
	if d == nil {
		return nil
	}
	_, err := d.parse(value)
	return err
}

// CheckTopic says, in Kafka's words, why a topic cannot have that setting; nil if it can.
func CheckTopic(name, value string) error {
	d := topicKeys().find(name)
	if d == nil {
		return fmt.Errorf("Unknown topic config name: %s", name)
	}
	if _, err := d.parse(value); err != nil {
		return err
	}
	if name == "remote.storage.enable" && strings.EqualFold(strings.TrimSpace(value), "true") {
		return errors.New("Tiered Storage functionality is disabled in the broker. Topic cannot be configured with remote log storage.")
	}
	return nil
}

// CheckTopicConfigs checks all settings of a topic together, in Kafka's order: names, each value, then values that exclude each other.
func CheckTopicConfigs(overrides map[string]string) error {
	for _, name := range slices.Sorted(maps.Keys(overrides)) {
		if topicKeys().find(name) == nil {
			return fmt.Errorf("Unknown topic config name: %s", name)
		}
	}
	lag := map[string]int64{}
	for i := range topicKeys().defs {
		d := &topicKeys().defs[i]
		s, ok := overrides[d.Name]
		if !ok {
			s = d.Default
		}
		if ok || d.Default != "" {
			v, err := d.parse(s)
			if err != nil {
				return err
			}
			lag[d.Name] = v.i
		}
	}
	if low, high := lag["min.compaction.lag.ms"], lag["max.compaction.lag.ms"]; low > high {
		return fmt.Errorf("conflict topic config setting min.compaction.lag.ms (%d) > max.compaction.lag.ms (%d)", low, high)
	}
	if s, ok := overrides["remote.storage.enable"]; ok {
		return CheckTopic("remote.storage.enable", s)
	}
	return nil
}

// CheckGroup says, in Kafka's words, why a group cannot have that setting; nil if it can.
func CheckGroup(name, value string) error {
	d := groupKeys().find(name)
	if d == nil {
		return fmt.Errorf("Unknown group config name: %s", name)
	}
	_, err := d.parse(value)
	return err
}

// CheckClientMetrics says, in Kafka's words, why a client metrics subscription cannot have that setting; nil if it can.
func CheckClientMetrics(name, value string) error {
	d := metricsKeys().find(name)
	if d == nil {
		return fmt.Errorf("Unknown client metrics configuration: %s", name)
	}
	_, err := d.parse(value)
	return err
}
