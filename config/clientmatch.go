//lint:file-ignore ST1005 Kafka's own words, which clients see

package config

import (
	"fmt"
	"regexp"
	"slices"
	"strings"
)

// Properties of a client that a client metrics subscription can select by (KIP-714).
const (
	ClientID              = "client_id"
	ClientInstanceID      = "client_instance_id"
	ClientSoftwareName    = "client_software_name"
	ClientSoftwareVersion = "client_software_version"
	ClientSourceAddress   = "client_source_address"
	ClientSourcePort      = "client_source_port"
)

var clientProperties = []string{ClientID, ClientInstanceID, ClientSoftwareName, ClientSoftwareVersion, ClientSourceAddress, ClientSourcePort}

// ClientMatch selects clients: a pattern by property, each of which must match the whole of it. The empty one selects all. It is immutable.
type ClientMatch map[string]*regexp.Regexp

// ParseClientMatch reads the setting "match" of a client metrics subscription: property=pattern, separated by commas. Of a property that
// comes twice the last pattern holds.
func ParseClientMatch(match string) (ClientMatch, error) {
	return parseClientMatch(splitList(strings.TrimSpace(match), false))
}

func parseClientMatch(list []string) (ClientMatch, error) {
	m := ClientMatch{}
	for _, e := range list {
		if e == "" {
			return nil, fmt.Errorf("Configuration 'match' values must not be empty.")
		}
		property, pattern, ok := strings.Cut(strings.TrimRight(e, "="), "=")
		property = strings.TrimSpace(property)
		if !ok || strings.Contains(pattern, "=") || !slices.Contains(clientProperties, property) {
			return nil, fmt.Errorf("Illegal client matching pattern: %s", e)
		}
		pattern = strings.TrimSpace(pattern)
		if _, err := regexp.Compile(pattern); err != nil {
			return nil, fmt.Errorf("Illegal client matching pattern: %s", e)
		}
		m[property] = regexp.MustCompile("^(?:" + pattern + ")$")
	}
	return m, nil
}

// Selects tells whether a client with these properties is selected. A property that it doesn't have matches nothing.
func (m ClientMatch) Selects(properties map[string]string) bool {
	for property, re := range m {
		value, ok := properties[property]
		if !ok || !re.MatchString(value) {
			return false
		}
	}
	return true
}
