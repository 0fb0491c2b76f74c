package config

import (
	"fmt"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// Listener is an address, to listen on or to tell clients.
type Listener struct {
	Name     string // upper case
	Host     string // "": all interfaces, or in advertised.listeners the host name of this machine
	Port     int32  // 0 to listen on: any free one
	Protocol string // PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL
}

// listeners is what the keys about listeners come to.
type listeners struct {
	clients, controllers []Listener
	advertised           []Listener
}

// Listeners returns where clients are served. There is at least one.
func (b *Broker) Listeners() []Listener { return b.listeners.clients }

// ControllerListeners returns the listeners of controller.listener.names that are configured.
func (b *Broker) ControllerListeners() []Listener { return b.listeners.controllers }

// AdvertisedListeners returns what clients are told to connect to, without controllers; empty if advertised.listeners is not set.
func (b *Broker) AdvertisedListeners() []Listener { return b.listeners.advertised }

// InterBrokerListener returns the name of the listener on which brokers talk to each other: inter.broker.listener.name, else the one named like
// security.inter.broker.protocol, else the first.
func (b *Broker) InterBrokerListener() string {
	name := strings.ToUpper(b.String("inter.broker.listener.name"))
	if name == "" {
		name = b.String("security.inter.broker.protocol")
	}
	if !named(b.listeners.clients, name) {
		name = b.listeners.clients[0].Name
	}
	return name
}

func named(ls []Listener, name string) bool {
	return slices.ContainsFunc(ls, func(l Listener) bool { return l.Name == name })
}

var listenerPattern = regexp.MustCompile(`^(.+)://\[?([0-9a-zA-Z\-%._:]*)\]?:(\d+)$`)

const listenerForm = "NAME://host:port"

// parseListeners reads the entries of a key; the protocols come later.
func (b *Broker) parseListeners(key string) ([]Listener, error) {
	var all []Listener
	for _, entry := range b.List(key) {
		m := listenerPattern.FindStringSubmatch(entry)
		if m == nil {
			return nil, &Error{Key: key, Value: entry, Reason: "not a listener", Allowed: listenerForm}
		}
		port, err := strconv.ParseUint(m[3], 10, 16)
		if err != nil {
			return nil, &Error{Key: key, Value: entry, Reason: "port is out of range", Allowed: "0 to 65535"}
		}
		l := Listener{Name: strings.ToUpper(m[1]), Host: m[2], Port: int32(port)}
		if named(all, l.Name) {
			return nil, &Error{Key: key, Value: b.String(key), Reason: "listener " + l.Name + " stands in it twice", Allowed: "one entry of each name"}
		}
		all = append(all, l)
	}
	return all, nil
}

func (b *Broker) readListeners() (listeners, error) {
	var r listeners
	all, err := b.parseListeners("listeners")
	if err != nil {
		return r, err
	}
	for i, l := range all {
		for _, other := range all[:i] {
			if l.Port != 0 && l.Port == other.Port && (l.Host == other.Host || l.Host == "" || other.Host == "") {
				return r, &Error{Key: "listeners", Value: b.String("listeners"), Reason: fmt.Sprintf("%s and %s have the same port", other.Name, l.Name), Allowed: "a port for each"}
			}
		}
	}
	protocols, err := b.protocols()
	if err != nil {
		return r, err
	}
	controllers := b.controllerNames()
	for _, l := range all {
		isController := slices.Contains(controllers, l.Name)
		if l.Protocol = protocols[l.Name]; l.Protocol == "" {
			if !isController {
				return r, &Error{Key: "listeners", Value: b.String("listeners"), Reason: "no security protocol is defined for listener " + l.Name,
					Allowed: "a name of listener.security.protocol.map"}
			}
			l.Protocol = plaintext
		}
		if isController {
			r.controllers = append(r.controllers, l)
		} else {
			r.clients = append(r.clients, l)
		}
	}
	if len(r.clients) == 0 {
		return r, &Error{Key: "listeners", Value: b.String("listeners"), Reason: "no listener for clients", Allowed: "at least one that is not in controller.listener.names"}
	}
	if name := strings.ToUpper(b.String("inter.broker.listener.name")); name != "" && !named(r.clients, name) {
		return r, &Error{Key: "inter.broker.listener.name", Value: name, Reason: "no such listener", Allowed: names(r.clients)}
	}
	r.advertised, err = b.readAdvertised(r.clients, controllers)
	return r, err
}

func names(ls []Listener) string {
	var all []string
	for _, l := range ls {
		all = append(all, l.Name)
	}
	return strings.Join(all, " or ")
}

func (b *Broker) controllerNames() []string {
	var all []string
	for _, name := range b.List("controller.listener.names") {
		all = append(all, strings.ToUpper(name))
	}
	return all
}

func (b *Broker) readAdvertised(clients []Listener, controllers []string) ([]Listener, error) {
	all, err := b.parseListeners("advertised.listeners")
	if err != nil {
		return nil, err
	}
	var advertised []Listener
	for _, l := range all {
		i := slices.IndexFunc(clients, func(c Listener) bool { return c.Name == l.Name })
		switch {
		case slices.Contains(controllers, l.Name):
			continue
		case i < 0:
			return nil, &Error{Key: "advertised.listeners", Value: b.String("advertised.listeners"), Reason: "no listener is named " + l.Name, Allowed: "the names of listeners: " + names(clients)}
		case l.Host == "0.0.0.0" || l.Host == "::":
			return nil, &Error{Key: "advertised.listeners", Value: b.String("advertised.listeners"), Reason: "clients cannot connect to " + l.Host, Allowed: "an address that can be routed"}
		}
		l.Protocol = clients[i].Protocol
		advertised = append(advertised, l)
	}
	return advertised, nil
}

const plaintext = "PLAINTEXT"

var securityProtocols = []string{plaintext, "SSL", "SASL_PLAINTEXT", "SASL_SSL"}

// protocols reads listener.security.protocol.map.
func (b *Broker) protocols() (map[string]string, error) {
	const key = "listener.security.protocol.map"
	protocols := map[string]string{}
	for _, entry := range strings.Split(b.String(key), ",") {
		if entry = strings.TrimSpace(entry); entry == "" {
			continue
		}
		name, protocol, ok := strings.Cut(entry, ":")
		protocol = strings.ToUpper(strings.TrimSpace(protocol))
		if !ok || !slices.Contains(securityProtocols, protocol) {
			return nil, &Error{Key: key, Value: entry, Reason: "not a protocol of a listener", Allowed: "NAME:PROTOCOL with one of " + strings.Join(securityProtocols, ", ")}
		}
		protocols[strings.ToUpper(strings.TrimSpace(name))] = protocol
	}
	return protocols, nil
}

// Supported refuses, with one line, what this version cannot do and must not pretend to: security, tiered storage, and
// clusters of several nodes.
func (b *Broker) Supported() error {
	for _, l := range slices.Concat(b.listeners.clients, b.listeners.controllers) {
		if l.Protocol != plaintext {
			return &Error{Key: "listeners", Value: l.Name, Reason: "security protocol " + l.Protocol + " is not supported yet", Allowed: plaintext}
		}
	}
	if p := b.String("security.inter.broker.protocol"); p != plaintext {
		return &Error{Key: "security.inter.broker.protocol", Value: p, Reason: "not supported yet", Allowed: plaintext}
	}
	if s := b.String("authorizer.class.name"); s != "" {
		return &Error{Key: "authorizer.class.name", Value: s, Reason: "authorization is not supported yet", Allowed: "nothing"}
	}
	if b.Bool("remote.log.storage.system.enable") {
		return &Error{Key: "remote.log.storage.system.enable", Value: "true", Reason: "tiered storage is not supported yet", Allowed: "false"}
	}
	return b.alone()
}

// alone refuses to be one node of several.
func (b *Broker) alone() error {
	if roles := b.List("process.roles"); len(roles) == 1 {
		return &Error{Key: "process.roles", Value: roles[0], Reason: "clusters of several nodes are not supported yet", Allowed: "broker,controller"}
	}
	for _, voter := range b.List("controller.quorum.voters") {
		if id, _, _ := splitVoter(voter); id != b.NodeID() {
			return &Error{Key: "controller.quorum.voters", Value: b.String("controller.quorum.voters"), Reason: "clusters of several nodes are not supported yet",
				Allowed: fmt.Sprintf("this node alone, %d@host:port", b.NodeID())}
		}
	}
	if servers := b.List("controller.quorum.bootstrap.servers"); len(servers) > 1 {
		return &Error{Key: "controller.quorum.bootstrap.servers", Value: strings.Join(servers, ","), Reason: "clusters of several nodes are not supported yet", Allowed: "this node alone"}
	}
	return nil
}
