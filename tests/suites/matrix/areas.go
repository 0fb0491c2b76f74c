package main

import (
	"fmt"
	"os"
	"regexp"
	"slices"
	"strings"
)

// areas are what a client's steps are about; the first whose pattern matches a step has it.
var areas = []struct {
	name  string
	steps *regexp.Regexp
}{
	{"produce", regexp.MustCompile(`^(produce_|topic_codec_)`)},
	{"read, offsets", regexp.MustCompile(`^(consume_|offsets_)`)},
	{"KIP-848 groups", regexp.MustCompile(`^(consumer_protocol_|group_consumer_protocol|group_rebalance_consumer)`)},
	{"share groups", regexp.MustCompile(`^(share_|admin_share_)`)},
	{"classic groups", regexp.MustCompile(`^(classic_|commit_|group_)`)},
	{"transactions", regexp.MustCompile(`^txn`)},
	{"admin", regexp.MustCompile(`^admin`)},
}

func areaOf(step string) string {
	for _, a := range areas {
		if a.steps.MatchString(step) {
			return a.name
		}
	}
	return ""
}

// client is one part of a suite that runs the same steps with several clients.
type client struct{ part, name string }

// clientNames are the parts of those suites. Versions stand in the suites' own files.
var clientNames = map[string]map[string]string{
	"java-clients": {"4.4.0": "Java, kafka-clients 4.4.0", "3.9.1": "Java, kafka-clients 3.9.1", "2.8.2": "Java, kafka-clients 2.8.2"},
	"python":       {"kafka_python": "Python, kafka-python 3.0.12", "aio": "Python, aiokafka 0.14.0", "confluent": "Python, confluent-kafka 2.16.1"},
	"node":         {"kafkajs": "Node, kafkajs 2.2.4", "platformatic": "Node, @platformatic/kafka 1.35.0", "confluent": "Node, @confluentinc/kafka-javascript 1.10.1"},
	"rust":         {"own": "Rust, rdkafka 0.39.0"},
}

// clients are the suite's clients, in the order in which they ran.
func (s suite) clients() []client {
	var list []client
	for _, step := range s.steps {
		part, _, _ := strings.Cut(step, "/")
		name := clientNames[s.name][part]
		if name != "" && !slices.ContainsFunc(list, func(c client) bool { return c.part == part }) {
			list = append(list, client{part, name})
		}
	}
	return list
}

// exception is one line of tests/suites/exceptions.
type exception struct {
	text, suite string
	steps       *regexp.Regexp
	reason      string
}

// readExceptions reads lines of 'suite steps  # reason'. Each must have a reason.
func readExceptions(file string) ([]exception, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	var list []exception
	for line := range strings.Lines(string(text)) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		rule, reason, _ := strings.Cut(line, "# ")
		f := strings.Fields(rule)
		if len(f) != 2 || reason == "" {
			return nil, fmt.Errorf("%s: %q: want suite, steps and # reason", file, line)
		}
		steps, err := regexp.Compile("^(" + f[1] + ")$")
		if err != nil {
			return nil, fmt.Errorf("%s: %w", file, err)
		}
		list = append(list, exception{text: line, suite: f[0], steps: steps, reason: reason})
	}
	return list, nil
}
