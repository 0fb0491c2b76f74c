package differential

import (
	"crypto/sha256"
	"encoding/base64"
	"fmt"
	"maps"
	"math/rand/v2"
	"regexp"
	"strconv"
	"strings"
	"time"
)

// names translates between what a script says and what is on the wire: its own names, which get a tag so that scripts and
// runs don't meet, and what brokers make up, which gets a name when it is first seen.
type names struct {
	tag     string
	host    string
	port    int32
	cluster string
	now     time.Time // of the start

	byName  map[string]string // $P1, $U1, $S1, #%topic -> value
	byValue map[string]string // kind and value -> name
	made    map[string]bool   // values of producer ids and sessions that the script made up
	counts  map[byte]int      // of the names given so far, by kind
}

// The kinds of values that brokers make up.
const (
	kindProducer = 'P'
	kindSession  = 'S'
	kindUUID     = 'U'
	kindTopic    = '#'
)

func newNames() *names {
	const letters = "abcdefghijklmnopqrstuvwxyz"
	tag := []byte("d......-")
	for i := 1; i < 7; i++ {
		tag[i] = letters[rand.IntN(len(letters))]
	}
	return &names{
		tag: string(tag), now: time.Now(),
		byName: map[string]string{}, byValue: map[string]string{}, made: map[string]bool{}, counts: map[byte]int{},
	}
}

// clone is a copy that can be forgotten: what one turn of a loop, or one try of many, has named.
func (n *names) clone() *names {
	c := *n
	c.byName, c.byValue, c.made, c.counts = maps.Clone(n.byName), maps.Clone(n.byValue), maps.Clone(n.made), maps.Clone(n.counts)
	return &c
}

var madeUpRef = regexp.MustCompile(`\$[PSU]\d+`)

// wire gives the text that a string of the script stands for.
func (n *names) wire(s string) (string, error) {
	var missing error
	s = madeUpRef.ReplaceAllStringFunc(s, func(ref string) string {
		v, ok := n.byName[ref]
		if !ok {
			missing = fmt.Errorf("%s has not been seen", ref)
		}
		return v
	})
	return strings.ReplaceAll(s, "%", n.tag), missing
}

var (
	uuidText = regexp.MustCompile(`[0-9a-f]{8}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{4}-[0-9a-f]{12}`)
	idText   = regexp.MustCompile(`[A-Za-z0-9_-]{22}`)
	timeText = regexp.MustCompile(`\b1[0-9]{12}\b`)
	farText  = regexp.MustCompile(`-922337[0-9]{13}\b`) // now minus the largest number that there is
)

// shown gives a string from the wire as the transcript has it.
func (n *names) shown(s string) string {
	s = strings.ReplaceAll(s, n.tag, "%")
	if n.cluster != "" {
		s = strings.ReplaceAll(s, n.cluster, "$cluster")
	}
	s = uuidText.ReplaceAllStringFunc(s, func(u string) string { return n.name(kindUUID, u) })
	s = idText.ReplaceAllStringFunc(s, func(u string) string {
		if id, err := base64.RawURLEncoding.DecodeString(u); err == nil && n.byValue[string(kindTopic)+string(id)] != "" {
			return n.topicID([16]byte(id))
		}
		return u
	})
	s = strings.ReplaceAll(s, n.host+":"+strconv.Itoa(int(n.port)), "$host:$port")
	s = timeText.ReplaceAllStringFunc(s, func(t string) string {
		v, _ := strconv.ParseInt(t, 10, 64)
		if text, ok := n.time(v); ok {
			return text
		}
		return t
	})
	return farText.ReplaceAllString(s, "now-max")
}

// time shows a time in milliseconds that is not more than a day from now, to the minute. What is up to ten minutes away is
// now.
func (n *names) time(ms int64) (string, bool) {
	d := time.UnixMilli(ms).Sub(n.now).Round(time.Minute)
	switch {
	case d < -24*time.Hour || d > 24*time.Hour:
		return "", false
	case -10*time.Minute < d && d < 10*time.Minute:
		return "now", true
	}
	return fmt.Sprintf("now%+dm", int(d.Minutes())), true
}

// name gives the name of a value that the broker made up.
func (n *names) name(kind byte, value string) string {
	key := string(kind) + value
	if name, ok := n.byValue[key]; ok {
		return name
	}
	n.counts[kind]++
	name := fmt.Sprintf("$%c%d", kind, n.counts[kind])
	n.byValue[key], n.byName[name] = name, value
	return name
}

// number shows a producer or session id.
func (n *names) number(kind byte, v int64) string {
	text := strconv.FormatInt(v, 10)
	if v < 0 || kind == kindSession && v == 0 || n.made[string(kind)+text] {
		return text
	}
	return n.name(kind, text)
}

// learn notes that the topic has the id.
func (n *names) learn(topic string, id [16]byte) {
	if topic == "" || id == [16]byte{} || n.byValue[string(kindTopic)+string(id[:])] != "" {
		return
	}
	base := "#" + strings.ReplaceAll(topic, n.tag, "%")
	name := base
	for i := 2; n.byName[name] != ""; i++ {
		name = fmt.Sprintf("%s~%d", base, i)
	}
	n.byName[name], n.byValue[string(kindTopic)+string(id[:])] = string(id[:]), name
}

// topicID shows an id.
func (n *names) topicID(id [16]byte) string {
	if name := n.byValue[string(kindTopic)+string(id[:])]; name != "" {
		return name
	}
	if [12]byte(id[:12]) == [12]byte{0: 0xee} {
		return fmt.Sprintf("#%d", id[15])
	}
	return base64.RawURLEncoding.EncodeToString(id[:])
}

// id gives the id that #%topic, or #1 for one that nobody has, stands for.
func (n *names) id(ref string) [16]byte {
	if v, err := strconv.Atoi(ref[1:]); err == nil {
		return [16]byte{0: 0xee, 15: byte(v)}
	}
	if v, ok := n.byName[ref]; ok {
		return [16]byte([]byte(v))
	}
	sum := sha256.Sum256([]byte(ref + n.tag))
	id := [16]byte(sum[:16])
	id[0] &= 0x7f
	n.byName[ref], n.byValue[string(kindTopic)+string(id[:])] = string(id[:]), ref
	return id
}
