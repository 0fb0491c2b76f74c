package differential

import (
	"fmt"
	"regexp"
	"strconv"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// command is a step, parsed, with all variables replaced.
type command struct {
	conn     string // the connection it uses
	async    bool   // only sends; a later wait has the answer
	verb     string
	args     string
	versions []string // of the request, as loop items; nil if the verb is none of an API

	until, while *regexp.Regexp
	timed        time.Duration // tells whether the answer took as long
	patience     time.Duration // for an answer
	repeat       int           // so many requests, pipelined; the last one's answer counts
	unordered    bool          // rows come in no order: sort them
	mask         []string      // fields whose values are not compared
	without      []rowFilter
	only         []rowFilter
}

// rowFilter picks the rows of arrays by the text of one of their fields.
type rowFilter struct {
	field   string
	pattern *regexp.Regexp
}

const (
	patience = 10 * time.Second
	pollFor  = 15 * time.Second
)

// apiKeys are the keys of the APIs by their names in kmsg.
var apiKeys = func() map[string]int16 {
	m := map[string]int16{}
	for k := range int16(kmsg.MaxKey + 1) {
		if name := kmsg.NameForKey(k); name != "Unknown" {
			m[name] = k
		}
	}
	return m
}()

var (
	connPrefix = regexp.MustCompile(`^([a-z][a-z0-9]*)([:&]) +`)
	versionArg = regexp.MustCompile(`^v(-?\d+(-\d+)?(,\d+(-\d+)?)*)( |$)`)
)

func parseCommand(source string) (*command, error) {
	parts := strings.Split(source, " | ")
	c := &command{conn: "c", patience: patience, repeat: 1}
	text := parts[0]
	if m := connPrefix.FindStringSubmatch(text); m != nil {
		c.conn, c.async, text = m[1], m[2] == "&", text[len(m[0]):]
	}
	c.verb, c.args, _ = strings.Cut(text, " ")
	if _, ok := apiKeys[c.verb]; ok {
		m := versionArg.FindString(c.args)
		if m == "" {
			return nil, fmt.Errorf("%s without a version", c.verb)
		}
		c.args = c.args[len(m):]
		list := strings.TrimSpace(m)[1:]
		if list[0] == '-' {
			c.versions = []string{list}
		} else {
			c.versions = items(strings.ReplaceAll(list, ",", " "))
		}
	}
	for _, m := range parts[1:] {
		if err := c.modify(m); err != nil {
			return nil, fmt.Errorf("| %s: %w", m, err)
		}
	}
	return c, nil
}

func (c *command) modify(m string) error {
	name, arg, _ := strings.Cut(strings.TrimSpace(m), " ")
	var err error
	switch name {
	case "until":
		c.until, err = pattern(arg)
	case "while":
		c.while, err = pattern(arg)
	case "timed":
		c.timed, err = time.ParseDuration(arg)
	case "for":
		c.patience, err = time.ParseDuration(arg)
	case "repeat":
		c.repeat, err = strconv.Atoi(arg)
	case "unordered":
		c.unordered = true
	case "mask":
		c.mask = append(c.mask, strings.Fields(arg)...)
	case "without", "only":
		field, re, _ := strings.Cut(arg, " ")
		f := rowFilter{field: field}
		f.pattern, err = pattern(re)
		if name == "only" {
			c.only = append(c.only, f)
		} else {
			c.without = append(c.without, f)
		}
	default:
		return fmt.Errorf("no such modifier")
	}
	return err
}

// pattern is a regular expression between slashes.
func pattern(s string) (*regexp.Regexp, error) {
	if len(s) < 2 || s[0] != '/' || s[len(s)-1] != '/' {
		return nil, fmt.Errorf("%q: want a pattern between slashes", s)
	}
	return regexp.Compile(s[1 : len(s)-1])
}
