package main

import (
	"flag"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

const page = "docs/compatibility.md"

// The section of the page that is ours.
const (
	sectionBegin = "<!-- clients: written by go run ./tests/suites/matrix -->\n"
	sectionEnd   = "<!-- end of clients -->\n"
)

func main() {
	flag.Parse()
	folder := flag.Arg(0)
	var err error
	if folder == "" {
		folder, err = os.UserCacheDir()
		folder = filepath.Join(folder, "oncelog", "suites", "results")
	}
	if err == nil {
		err = write(page, "tests/suites", folder)
	}
	if err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func write(page, suites, results string) error {
	all, err := readSuites(suites, results)
	if err != nil {
		return err
	}
	old, err := os.ReadFile(page)
	if err != nil {
		return err
	}
	before, rest, ok := strings.Cut(string(old), sectionBegin)
	_, after, ok2 := strings.Cut(rest, sectionEnd)
	if !ok || !ok2 {
		return fmt.Errorf("%s has no section for clients", page)
	}
	return os.WriteFile(page, []byte(before+sectionBegin+section(all)+sectionEnd+after), 0o644)
}

// suite is one of tests/suites with what happened in its last run and what happens on Apache Kafka.
type suite struct {
	name, about string
	steps       []string          // of ours, in order
	ours, kafka map[string]string // PASS, FAIL or SKIP of each step
	exceptions  []exception
}

func readSuites(folder, results string) ([]suite, error) {
	rules, err := readExceptions(filepath.Join(folder, "exceptions"))
	if err != nil {
		return nil, err
	}
	scripts, err := filepath.Glob(filepath.Join(folder, "*", "suite.sh"))
	if err != nil {
		return nil, err
	}
	var all []suite
	for _, script := range scripts {
		s := suite{name: filepath.Base(filepath.Dir(script))}
		for _, e := range rules {
			if e.suite == s.name {
				s.exceptions = append(s.exceptions, e)
			}
		}
		text, err := os.ReadFile(script)
		if err != nil {
			return nil, err
		}
		first, _, _ := strings.Cut(string(text), "\n")
		s.about = strings.TrimPrefix(first, "# ")
		if _, s.kafka, err = readSteps(filepath.Join(folder, s.name, "expected.txt")); err != nil {
			return nil, err
		}
		s.steps, s.ours, err = readSteps(filepath.Join(results, s.name+".txt"))
		if os.IsNotExist(err) {
			fmt.Fprintf(os.Stderr, "%s has not run yet\n", s.name)
		} else if err != nil {
			return nil, err
		}
		all = append(all, s)
	}
	return all, nil
}

// readSteps reads lines of 'PASS|FAIL|SKIP step  # reason'. The last of several of one step counts.
func readSteps(file string) (steps []string, outcome map[string]string, err error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, nil, err
	}
	outcome = map[string]string{}
	for line := range strings.Lines(string(text)) {
		f := strings.Fields(line)
		if len(f) < 2 || f[0] != "PASS" && f[0] != "FAIL" && f[0] != "SKIP" {
			continue
		}
		if _, ok := outcome[f[1]]; !ok {
			steps = append(steps, f[1])
		}
		outcome[f[1]] = f[0]
	}
	return steps, outcome, nil
}

// tally counts the steps that also pass on Apache Kafka, and those of them that pass here.
type tally struct{ pass, want int }

func (t tally) String() string {
	switch {
	case t.want == 0:
		return "–"
	case t.pass == t.want:
		return fmt.Sprint(t.pass)
	}
	return fmt.Sprintf("%d of %d", t.pass, t.want)
}

func section(all []suite) string {
	var b strings.Builder
	b.WriteString(`## Clients, suites and frameworks

Written by ` + "`tests/suites/run`" + ` and ` + "`go run ./tests/suites/matrix`" + `. Each step ran against Oncelog and is compared with Apache Kafka 4.4, on one node. Counted
are the steps that pass on Apache Kafka; where fewer pass here, "18 of 20" says so and the exceptions below name them all.

| Suite | What it is | Steps |
|---|---|---|
`)
	for _, s := range all {
		fmt.Fprintf(&b, "| %s | %s | %v |\n", s.name, s.about, s.count(""))
	}
	b.WriteString("\nThe programs that do the same with each client, by client and area:\n\n| Client |")
	for _, a := range areas {
		fmt.Fprintf(&b, " %s |", a.name)
	}
	b.WriteString("\n|---|" + strings.Repeat("---|", len(areas)) + "\n")
	for _, s := range all {
		for _, c := range s.clients() {
			fmt.Fprintf(&b, "| %s |", c.name)
			for _, a := range areas {
				fmt.Fprintf(&b, " %v |", s.countArea(c.part, a.name))
			}
			b.WriteString("\n")
		}
	}
	b.WriteString(exceptionTable(all))
	return b.String()
}

// ran tells whether the part that a step belongs to was run: of such a part, a step without an outcome is missing.
func (s suite) ran(step string) bool {
	part, _, parts := strings.Cut(step, "/")
	for _, other := range s.steps {
		if !parts || strings.HasPrefix(other, part+"/") {
			return true
		}
	}
	return false
}

// count counts the steps under a prefix.
func (s suite) count(prefix string) (t tally) {
	for step, outcome := range s.kafka {
		if outcome == "PASS" && strings.HasPrefix(step, prefix) && s.ran(step) {
			t.want++
			if s.ours[step] == "PASS" {
				t.pass++
			}
		}
	}
	// What Apache Kafka doesn't run, such as its own death, must pass all the same.
	for step, outcome := range s.ours {
		if s.kafka[step] == "" && strings.HasPrefix(step, prefix) {
			t.want++
			if outcome == "PASS" {
				t.pass++
			}
		}
	}
	return t
}

func (s suite) countArea(part, area string) (t tally) {
	for step, outcome := range s.kafka {
		rest, ok := strings.CutPrefix(step, part+"/")
		if ok && outcome == "PASS" && s.ran(step) && areaOf(rest) == area {
			t.want++
			if s.ours[step] == "PASS" {
				t.pass++
			}
		}
	}
	return t
}

// exceptionTable lists each exception of the file, with the steps of the last run that it covers.
func exceptionTable(all []suite) string {
	var b strings.Builder
	b.WriteString("\nExceptions, which pass on Apache Kafka 4.4:\n\n| Suite | Steps | Why not here |\n|---|---|---|\n")
	rows := 0
	for _, s := range all {
		for _, e := range s.exceptions {
			var covered []string
			for _, step := range slices.Sorted(maps.Keys(s.ours)) {
				if s.ours[step] != "PASS" && s.kafka[step] != "FAIL" && e.steps.MatchString(step) && s.excusedBy(step) == e.text {
					covered = append(covered, "`"+step+"`")
				}
			}
			if len(covered) > 0 {
				fmt.Fprintf(&b, "| %s | %s | %s |\n", s.name, strings.Join(covered, ", "), e.reason)
				rows++
			}
		}
	}
	for _, s := range all {
		for _, step := range slices.Sorted(maps.Keys(s.kafka)) {
			if s.kafka[step] == "PASS" && s.ran(step) && s.ours[step] != "PASS" && s.excusedBy(step) == "" {
				fmt.Fprintf(&b, "| %s | `%s` | not explained yet |\n", s.name, step)
				rows++
			}
		}
	}
	if rows == 0 {
		return "\nThere are no exceptions.\n"
	}
	return b.String()
}

// excusedBy is the text of the first exception that covers a step.
func (s suite) excusedBy(step string) string {
	for _, e := range s.exceptions {
		if e.steps.MatchString(step) {
			return e.text
		}
	}
	return ""
}
