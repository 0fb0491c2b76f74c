package main

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// What the page says comes from the results alone: counts of steps that pass on Kafka, areas by client, exceptions with their steps.
func TestSectionFromResults(t *testing.T) {
	dir := t.TempDir()
	put := func(name, text string) {
		t.Helper()
		file := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	put("suites/exceptions", "# why\n\npython aio/group_x|aio/group_y  # groups are not served yet\npython aio/gone  # fixed long ago\n")
	put("suites/python/suite.sh", "# Python clients (4 min)\nneed python3\n")
	put("suites/python/expected.txt", "# Kafka\nPASS aio/produce_none\nPASS aio/group_x\nPASS aio/txn_commit\nPASS aio/txn_lost\nFAIL aio/admin_x  # its own fault\nPASS kafka_python/produce_none\n")
	put("results/python.txt", "PASS aio/produce_none\nFAIL aio/group_x  # no such API\nPASS aio/txn_commit\nFAIL aio/admin_x\n")
	put("page.md", "before\n"+sectionBegin+"old\n"+sectionEnd+"after\n")
	if err := write(filepath.Join(dir, "page.md"), filepath.Join(dir, "suites"), filepath.Join(dir, "results")); err != nil {
		t.Fatal(err)
	}
	text, err := os.ReadFile(filepath.Join(dir, "page.md"))
	if err != nil {
		t.Fatal(err)
	}
	page := string(text)
	if !strings.HasPrefix(page, "before\n"+sectionBegin) || !strings.HasSuffix(page, sectionEnd+"after\n") || strings.Contains(page, "old") {
		t.Errorf("not only the section was replaced:\n%s", page)
	}
	for _, want := range []string{
		"| python | Python clients (4 min) | 2 of 4 |",
		"| Python, aiokafka 0.14.0 | 1 | – | – | – | 0 of 1 | 1 of 2 | – |",
		"| python | `aio/group_x` | groups are not served yet |",
		"| python | `aio/txn_lost` | not explained yet |",
	} {
		if !strings.Contains(page, want) {
			t.Errorf("the page has no %q:\n%s", want, page)
		}
	}
	if strings.Contains(page, "fixed long ago") || strings.Contains(page, "kafka-python") {
		t.Errorf("the page has what didn't run:\n%s", page)
	}
}

// Each suite says what it is and knows its outcome on Kafka, and each exception is about steps that pass there.
func TestSuitesAreWhole(t *testing.T) {
	all, err := readSuites("..", t.TempDir())
	if err != nil {
		t.Fatal(err)
	}
	rules, err := readExceptions("../exceptions")
	if err != nil {
		t.Fatal(err)
	}
	about := regexp.MustCompile(`^[A-Z0-9a-z].*min`)
	for _, s := range all {
		if !about.MatchString(s.about) {
			t.Errorf("%s: its first line %q doesn't say what it is and how long it takes", s.name, s.about)
		}
		for _, e := range s.exceptions {
			if !anyPasses(s.kafka, e.steps) {
				t.Errorf("%s: no step that passes on Kafka is %q", s.name, e.steps)
			}
		}
		rules = without(rules, s.name)
	}
	for _, e := range rules {
		t.Errorf("an exception is about %s, which is no suite", e.suite)
	}
}

func anyPasses(outcome map[string]string, steps *regexp.Regexp) bool {
	for step, o := range outcome {
		if o == "PASS" && steps.MatchString(step) {
			return true
		}
	}
	return false
}

func without(list []exception, suite string) []exception {
	var rest []exception
	for _, e := range list {
		if e.suite != suite {
			rest = append(rest, e)
		}
	}
	return rest
}

// A line that can't be read is an error, not a rule less.
func TestExceptionsNeedReasons(t *testing.T) {
	for _, line := range []string{"kgo TestX", "kgo  # why", "kgo TestX|(  # why"} {
		file := filepath.Join(t.TempDir(), "exceptions")
		if err := os.WriteFile(file, []byte(line+"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		if _, err := readExceptions(file); err == nil {
			t.Errorf("%q was read", line)
		}
	}
}

func TestAreas(t *testing.T) {
	for step, want := range map[string]string{
		"produce_gzip": "produce", "topic_codec_lz4": "produce", "offsets_by_time": "read, offsets", "consume_long_poll": "read, offsets",
		"classic_rebalance": "classic groups", "group_static": "classic groups", "group_rebalance_consumer": "KIP-848 groups",
		"consumer_protocol_txn": "KIP-848 groups", "txn": "transactions", "txn_fencing": "transactions", "admin": "admin",
		"admin_share_groups": "share groups", "something_else": "",
	} {
		if got := areaOf(step); got != want {
			t.Errorf("%s is %q, want %q", step, got, want)
		}
	}
}
