package differential

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"strconv"
	"strings"
)

// script is one file of testdata, as parsed: enough to run it, and to write it again with other answers.
type script struct {
	name     string
	path     string
	own      bool     // wants a broker of its own, fresh, with these settings
	settings []string // key=value
	body     []*node
}

// node is a piece of a script: text that stays as it is, a step, or a loop around nodes.
type node struct {
	line int
	text []string // the lines of the script that make it, without answers

	step *step
	loop *loop
}

// loop runs its body once for each item, with the variable set to it.
type loop struct {
	variable string
	items    []string
	body     []*node
	end      string // the line that closes it
}

// step is one command and what is answered to it.
type step struct {
	line     int
	source   string  // the command, on one line
	answered bool    // it has answers; without, the command must print nothing
	blocks   []block // the first is Apache Kafka's; a second is ours, where it differs
}

// block is a recorded answer.
type block struct {
	differs string // the name of the difference; "" for Apache Kafka's answer
	lines   []string
}

const rule = "----"

func readScript(path string) (*script, error) {
	data, err := os.ReadFile(path)
	if err != nil {
		return nil, err
	}
	s := &script{name: strings.TrimSuffix(filepath.Base(path), ".txt"), path: path}
	p := &parser{script: s, lines: strings.Split(strings.TrimSuffix(string(data), "\n"), "\n"), macros: map[string]string{}}
	s.body, err = p.nodes(false)
	if err != nil {
		return nil, fmt.Errorf("%s:%d: %w", path, p.at+1, err)
	}
	return s, nil
}

// parser reads the lines of a script one after the other.
type parser struct {
	script *script
	lines  []string
	at     int
	macros map[string]string // set by let
}

func (p *parser) nodes(inLoop bool) ([]*node, error) {
	var body []*node
	for p.at < len(p.lines) {
		line := p.lines[p.at]
		word, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		n := &node{line: p.at + 1, text: []string{line}}
		switch {
		case word == "end" && inLoop:
			return body, nil
		case word == "" || strings.HasPrefix(word, "#"):
			p.at++
		case word == "broker":
			p.script.own = true
			for _, s := range strings.Fields(rest) {
				if s != "own" {
					p.script.settings = append(p.script.settings, s)
				}
			}
			p.at++
		case word == "let":
			name, value, ok := strings.Cut(rest, " ")
			if !ok {
				return nil, fmt.Errorf("let %s has no value", name)
			}
			p.macros[name] = p.expand(value)
			p.at++
		case word == "for":
			if err := p.loop(n, rest); err != nil {
				return nil, err
			}
		default:
			if err := p.step(n); err != nil {
				return nil, err
			}
		}
		body = append(body, n)
	}
	if inLoop {
		return nil, fmt.Errorf("a loop has no end")
	}
	return body, nil
}

func (p *parser) expand(s string) string { return expand(s, p.macros) }

var variable = regexp.MustCompile(`\$([a-z][a-zA-Z0-9]*)|\$\{([a-z][a-zA-Z0-9]*)\}`)

// expand replaces $name and ${name} by the values of those names that have one. Names begin with a small letter: $P1 and
// its kind, which stand for what a broker made up, are none.
func expand(s string, values map[string]string) string {
	return variable.ReplaceAllStringFunc(s, func(ref string) string {
		if v, ok := values[strings.Trim(ref, "${}")]; ok {
			return v
		}
		return ref
	})
}

func (p *parser) loop(n *node, rest string) error {
	variable, list, ok := strings.Cut(rest, " in ")
	if !ok {
		return fmt.Errorf("for %q: want NAME in ITEMS", rest)
	}
	n.loop = &loop{variable: variable, items: items(p.expand(list))}
	p.at++
	var err error
	if n.loop.body, err = p.nodes(true); err != nil {
		return err
	}
	n.loop.end = p.lines[p.at]
	p.at++
	return nil
}

var item = regexp.MustCompile(`"[^"]*"|[^ ]+`)

// items are words, or texts in quotes; a word of the form 3-7 is all numbers in between.
func items(list string) []string {
	var all []string
	for _, w := range item.FindAllString(list, -1) {
		if w[0] == '"' {
			all = append(all, strings.Trim(w, `"`))
			continue
		}
		first, last, ok := strings.Cut(w, "-")
		a, err1 := strconv.Atoi(first)
		b, err2 := strconv.Atoi(last)
		if !ok || err1 != nil || err2 != nil {
			all = append(all, w)
			continue
		}
		for ; a <= b; a++ {
			all = append(all, strconv.Itoa(a))
		}
	}
	return all
}

// step reads a command, the indented lines that continue it, and the answers.
func (p *parser) step(n *node) error {
	s := &step{line: p.at + 1}
	n.step, n.text = s, nil
	command := []string{}
	indent := len(p.lines[p.at]) - len(strings.TrimLeft(p.lines[p.at], " "))
	for p.at < len(p.lines) {
		line := p.lines[p.at]
		text := strings.TrimLeft(line, " ")
		if text == "" || text == rule || strings.HasPrefix(text, rule+" ") || len(command) > 0 && len(line)-len(text) <= indent {
			break
		}
		command = append(command, text)
		n.text = append(n.text, line)
		p.at++
	}
	s.source = p.expand(strings.Join(command, " "))
	for p.at < len(p.lines) {
		line, ok := strings.CutPrefix(p.lines[p.at], rule)
		if !ok {
			break
		}
		b := block{}
		if line != "" {
			name, ok := strings.CutPrefix(line, " differs ")
			if !ok {
				return fmt.Errorf("%q: want %s differs NAME", p.lines[p.at], rule)
			}
			b.differs = name
		}
		for p.at++; p.at < len(p.lines) && p.lines[p.at] != "" && !strings.HasPrefix(p.lines[p.at], rule); p.at++ {
			b.lines = append(b.lines, p.lines[p.at])
		}
		s.answered = true
		s.blocks = append(s.blocks, b)
	}
	return nil
}

// write puts the script with its present answers back into its file.
func (s *script) write() error {
	w := &writer{}
	w.nodes(s.body)
	return os.WriteFile(s.path, []byte(w.String()), 0o644)
}

// writer writes nodes. A blank line ends answers.
type writer struct {
	strings.Builder
	answers bool // were written last
}

func (w *writer) line(l string) {
	if w.answers && l != "" {
		w.WriteString("\n")
	}
	w.answers = false
	w.WriteString(l + "\n")
}

func (w *writer) nodes(body []*node) {
	for _, n := range body {
		for _, l := range n.text {
			w.line(l)
		}
		if n.loop != nil {
			w.nodes(n.loop.body)
			w.line(n.loop.end)
		}
		if n.step == nil {
			continue
		}
		for _, b := range n.step.blocks {
			w.block(b)
		}
		w.answers = len(n.step.blocks) > 0
	}
}

func (w *writer) block(b block) {
	w.WriteString(rule)
	if b.differs != "" {
		w.WriteString(" differs " + b.differs)
	}
	w.WriteString("\n")
	for _, l := range b.lines {
		w.WriteString(l + "\n")
	}
}

// steps calls f for every step of the script.
func (s *script) steps(f func(*step)) { eachStep(s.body, f) }

func eachStep(body []*node, f func(*step)) {
	for _, n := range body {
		if n.step != nil {
			f(n.step)
		}
		if n.loop != nil {
			eachStep(n.loop.body, f)
		}
	}
}
