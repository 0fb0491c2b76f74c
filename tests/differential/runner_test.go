package differential

import (
	"errors"
	"fmt"
	"maps"
	"net"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// runner runs one script against one broker.
type runner struct {
	t      *testing.T
	script *script
	peer   peer
	names  *names
	vars   map[string]string
	labels []string // of the loops around
	conns  map[string]*conn
	words  []string // names in the script that have a variable in them
	got    map[*step][]outcome
	seen   *coverage
	synced int // calls of catchUp
}

// outcome is what a step printed in one turn of the loops around it.
type outcome struct {
	label string
	text  string
}

func newRunner(t *testing.T, s *script, p peer, seen *coverage) *runner {
	r := &runner{t: t, script: s, peer: p, names: newNames(), vars: map[string]string{}, conns: map[string]*conn{}, got: map[*step][]outcome{}, seen: seen}
	host, port, err := net.SplitHostPort(p.Addr())
	if err != nil {
		t.Fatal(err)
	}
	n, _ := strconv.Atoi(port)
	r.names.host, r.names.port = host, int32(n)
	withVariable := regexp.MustCompile(`%[A-Za-z0-9._-]*\$[a-z{][A-Za-z0-9._}-]*`)
	s.steps(func(st *step) { r.words = append(r.words, withVariable.FindAllString(st.source, -1)...) })
	slices.SortFunc(r.words, func(a, b string) int { return len(b) - len(a) })
	r.words = slices.Compact(r.words)
	t.Cleanup(func() {
		for _, c := range r.conns {
			c.sock.Close()
		}
	})
	return r
}

func (r *runner) run() {
	r.names.cluster = r.clusterID()
	if !r.script.own {
		r.warm()
	}
	r.nodes(r.script.body)
}

func (r *runner) nodes(body []*node) {
	for _, n := range body {
		switch {
		case n.step != nil:
			r.step(n.step)
		case n.loop != nil:
			for _, item := range n.loop.items {
				r.turn(n.loop.variable, item, func() { r.nodes(n.loop.body) })
			}
		}
	}
}

// turn runs f with a variable set. What brokers make up in it is forgotten afterwards, so that each turn has the same names.
func (r *runner) turn(variable, item string, f func()) {
	names, vars, labels := r.names, r.vars, r.labels
	defer func() { r.names, r.vars, r.labels = names, vars, labels }()
	r.names = names.clone()
	r.vars = maps.Clone(vars)
	r.vars[variable] = item
	label := item
	switch {
	case variable == "v":
		label = "v" + item
	case !plain(item):
		label = strconv.Quote(item)
	}
	r.labels = append(slices.Clone(labels), label)
	f()
}

// step runs a step, once for each version that it names.
func (r *runner) step(s *step) {
	c, err := parseCommand(expand(s.source, r.vars))
	if err != nil {
		r.fatalf(s, "%v", err)
	}
	if len(c.versions) < 2 {
		r.once(s)
		return
	}
	for _, v := range c.versions {
		r.turn("v", v, func() { r.once(s) })
	}
}

func (r *runner) once(s *step) {
	c, err := parseCommand(expand(s.source, r.vars))
	if err != nil {
		r.fatalf(s, "%v", err)
	}
	if v, ok := r.vars["v"]; ok && len(c.versions) > 1 {
		c.versions = []string{v}
	}
	text, err := r.execute(c)
	if err == nil && *kafkaFlag != "" && changesMetadata[c.verb] {
		err = r.catchUp()
	}
	if err != nil {
		r.fatalf(s, "%v", err)
	}
	r.got[s] = append(r.got[s], outcome{strings.Join(r.labels, " "), r.generic(text)})
}

// generic puts the variables back into the names that were made with them.
func (r *runner) generic(text string) string {
	for _, w := range r.words {
		if e := expand(w, r.vars); e != w && !strings.Contains(e, "$") {
			text = regexp.MustCompile(regexp.QuoteMeta(e)+`\b`).ReplaceAllLiteralString(text, w)
		}
	}
	return text
}

func (r *runner) fatalf(s *step, format string, args ...any) {
	r.t.Helper()
	r.t.Fatalf("%s:%d: %s %s: %s", r.script.path, s.line, strings.Join(r.labels, " "), s.source, fmt.Sprintf(format, args...))
}

// execute runs a command, again and again if it waits for something.
func (r *runner) execute(c *command) (string, error) {
	if c.until == nil && c.while == nil {
		return r.try(c)
	}
	deadline := time.Now().Add(pollFor)
	before := r.names
	for {
		r.names = before.clone()
		text, err := r.try(c)
		if err != nil || (c.until == nil || c.until.MatchString(text)) && (c.while == nil || !c.while.MatchString(text)) {
			return text, err
		}
		if time.Now().After(deadline) {
			return "", fmt.Errorf("still %s", text)
		}
		<-time.After(20 * time.Millisecond)
	}
}

func (r *runner) try(c *command) (string, error) {
	if len(c.versions) == 0 {
		return r.verb(c)
	}
	version, err := strconv.Atoi(c.versions[0])
	if err != nil {
		return "", err
	}
	req, err := parseRequest(apiKeys[c.verb], int16(version), c.args, r.names)
	if err != nil {
		return "", err
	}
	cn, err := r.conn(c.conn)
	if err != nil {
		return "", err
	}
	for i := 1; i < c.repeat; i++ {
		if err := cn.send(req); err != nil {
			return "", err
		}
		if i%100 == 0 || i == c.repeat-1 {
			for len(cn.sent) > 0 {
				if _, _, err := cn.receive(c.patience); err != nil {
					return "", err
				}
			}
		}
	}
	start := time.Now()
	if err := cn.send(req); err != nil {
		return "", err
	}
	if p, ok := req.(*kmsg.ProduceRequest); ok && p.Acks == 0 {
		return "", nil
	}
	if c.async {
		return "", nil
	}
	return r.answer(c, start)
}

// answer shows the next answer on the command's connection.
func (r *runner) answer(c *command, start time.Time) (string, error) {
	cn := r.conns[c.conn]
	if cn == nil || len(cn.sent) == 0 {
		return "", fmt.Errorf("nothing was asked on %s", c.conn)
	}
	req := cn.sent[0].req
	resp, text, err := cn.receive(c.patience)
	switch {
	case errors.Is(err, errClosed) || errors.Is(err, errNoAnswer):
		cn.sock.Close()
		delete(r.conns, c.conn)
		text = err.Error()
	case err != nil:
		return "", err
	case resp != nil:
		p := &printer{names: r.names, command: c, codes: map[int16]bool{}}
		shown := p.response(resp)
		if text != "" {
			shown += "\n" + text
		}
		text = shown
		r.seen.add(req, resp, p.codes)
	}
	if c.timed > 0 {
		if d := time.Since(start); d < c.timed*9/10 {
			text += "\nat once"
		} else {
			text += "\nlater"
		}
	}
	return text, nil
}

// conn gives a connection of the script, which is made when it is first used.
func (r *runner) conn(name string) (*conn, error) {
	if c := r.conns[name]; c != nil {
		return c, nil
	}
	c, err := dial(r.peer.Addr(), &name)
	if err == nil {
		r.conns[name] = c
	}
	return c, err
}
