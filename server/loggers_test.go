package server

import (
	"bytes"
	"fmt"
	"log/slog"
	"slices"
	"strings"
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// lines collects what is logged.
type lines struct {
	mu sync.Mutex
	b  bytes.Buffer
}

func (l *lines) Write(b []byte) (int, error) {
	l.mu.Lock()
	defer l.mu.Unlock()
	return l.b.Write(b)
}

func (l *lines) count(s string) int {
	l.mu.Lock()
	defer l.mu.Unlock()
	return strings.Count(l.b.String(), s)
}

// level is what DescribeConfigs says of some loggers.
func (c *client) levels(names ...string) string {
	c.t.Helper()
	req := kmsg.NewPtrDescribeConfigsRequest()
	req.Version = 4
	r := kmsg.NewDescribeConfigsRequestResource()
	r.ResourceType, r.ResourceName, r.ConfigNames = ofLogger, "1", names
	req.Resources = append(req.Resources, r)
	var got []string
	for _, row := range do[*kmsg.DescribeConfigsResponse](c, req).Resources[0].Configs {
		got = append(got, row.Name+"="+*row.Value)
	}
	return strings.Join(got, " ")
}

// What Apache Kafka answers, but for the one that has two levels of a component.
func TestLogLevels(t *testing.T) {
	out := new(lines)
	s := startServerWith(t, Options{Config: testConfig(t, t.TempDir()), Logger: slog.New(slog.NewTextHandler(out, nil))})
	c := dial(t, s)
	const apis, server = "kafka.server.KafkaApis", "kafka.server.BrokerServer"
	for _, row := range []struct{ alter, want, levels string }{
		{apis + "=DEBUG", "0 null", "DEBUG"},
		{apis + "=trace", "40 Cannot set the log level of " + apis + " to trace as it is not a supported log level. Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN", "DEBUG"},
		{apis + "=OFF", "40 Cannot set the log level of " + apis + " to OFF as it is not a supported log level. Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN", "DEBUG"},
		{apis + "=FATAL", "0 null", "FATAL"},
		{"!" + apis, "0 null", "INFO"},
		{"!" + apis, "0 null", "INFO"},
		{"no.such=INFO", "40 Logger no.such does not exist!", "INFO"},
		{"!no.such", "40 Logger no.such does not exist!", "INFO"},
		{"root=WARN", "0 null", "WARN"},
		{"!root", "42 Removing the log level of the root logger is not allowed", "WARN"},
		{"root=INFO", "0 null", "INFO"},
	} {
		if got := c.alter(ofLogger, "1", row.alter); got != row.want {
			t.Errorf("%s: %s", row.alter, got)
		}
		if got := c.levels(apis); got != apis+"="+row.levels {
			t.Errorf("after %s: %s", row.alter, got)
		}
	}
	for _, row := range []struct{ want, node string }{
		{"42 Node id must be an integer, but it is: ", ""}, {"42 Node id must be an integer, but it is: x", "x"}, {"42 Unexpected node id. Expected 1, but received 9", "9"},
	} {
		if got := c.alter(ofLogger, row.node, "root=INFO"); got != row.want {
			t.Errorf("node %q: %s", row.node, got)
		}
	}
	// All of a resource or nothing.
	if got := c.alter(ofLogger, "1", apis+"=ERROR", "no.such=INFO"); got != "40 Logger no.such does not exist!" || c.levels(apis) != apis+"=INFO" {
		t.Errorf("%s, then %s", got, c.levels(apis))
	}
	if got := c.alter(ofLogger, "1", apis+"=ERROR", apis+"=INFO"); got != "42 Error due to duplicate config keys" {
		t.Error(got)
	}
	// The component logs from the lower of two levels on.
	c.alter(ofLogger, "1", apis+"=ERROR", server+"=WARN")
	for _, level := range []slog.Level{slog.LevelDebug, slog.LevelInfo, slog.LevelWarn, slog.LevelError} {
		s.log.Log(t.Context(), level, "say", "level", level)
	}
	if n := out.count("msg=say"); n != 2 {
		t.Errorf("%d lines", n)
	}
	if names, _ := s.loggers.describe(); len(names) < 30 || !slices.IsSorted(names) || !slices.Contains(names, "root") {
		t.Errorf("loggers %v", names)
	}
}

// Operations that make no sense, and resources of other kinds beside loggers.
func TestLogLevelsAmongOtherResources(t *testing.T) {
	s := startServer(t)
	c := dial(t, s)
	c.createTopic("t", 1)
	req := kmsg.NewPtrIncrementalAlterConfigsRequest()
	req.Version = 1
	add := func(kind kmsg.ConfigResourceType, name, key string, value *string, op kmsg.IncrementalAlterConfigOp) {
		r := kmsg.NewIncrementalAlterConfigsRequestResource()
		r.ResourceType, r.ResourceName = kind, name
		r.Configs = []kmsg.IncrementalAlterConfigsRequestResourceConfig{{Name: key, Value: value, Op: op}}
		req.Resources = append(req.Resources, r)
	}
	ask := func() (got []string) {
		for _, r := range do[*kmsg.IncrementalAlterConfigsResponse](c, req).Resources {
			got = append(got, fmt.Sprint(int8(r.ResourceType), " ", r.ResourceName, " ", r.ErrorCode, " ", orNull(r.ErrorMessage)))
		}
		return got
	}
	add(kmsg.ConfigResourceTypeTopic, "t", "flush.ms", new("5"), 0)
	add(ofLogger, "1", "root", new("DEBUG"), 0)
	add(kmsg.ConfigResourceTypeTopic, "u", "flush.ms", new("5"), 0)
	want := []string{"2 t 0 null", "8 1 0 null", "2 u 3 The topic 'u' does not exist."}
	if got := ask(); !slices.Equal(got, want) || s.topicConfig("t").FlushMs != 5 || c.levels("root") != "root=DEBUG" {
		t.Errorf("%q", got)
	}
	add(ofLogger, "1", "root", new("INFO"), 0)
	want[1] = "8 1 42 Each resource must appear at most once."
	if got := ask(); !slices.Equal(got, append(want, want[1])) || c.levels("root") != "root=DEBUG" {
		t.Errorf("%q", got)
	}
	for op, want := range map[kmsg.IncrementalAlterConfigOp]string{
		2: "APPEND operation is not allowed for the BROKER_LOGGER resource",
		3: "SUBTRACT operation is not allowed for the BROKER_LOGGER resource",
		9: "Unknown operation type 9 is not allowed for the BROKER_LOGGER resource",
	} {
		req.Resources = nil
		add(ofLogger, "1", "root", new("INFO"), op)
		if got := ask(); got[0] != "8 1 42 "+want {
			t.Errorf("%q", got)
		}
	}
	req.Resources = nil
	add(ofLogger, "1", "root", nil, 0)
	if got := ask(); got[0] != "8 1 42 Null value not supported for : root" {
		t.Errorf("%q", got)
	}
	req.Resources, req.ValidateOnly = nil, true
	add(ofLogger, "1", "root", new("INFO"), 0)
	if got := ask(); got[0] != "8 1 0 null" || c.levels("root") != "root=DEBUG" {
		t.Errorf("validating only: %q, then %s", got, c.levels("root"))
	}
}

// The request logger writes a line per request, while it is asked to.
func TestRequestsAreLogged(t *testing.T) {
	out := new(lines)
	s := startServerWith(t, Options{Config: testConfig(t, t.TempDir()), Logger: slog.New(slog.NewTextHandler(out, nil))})
	c := dial(t, s)
	do[*kmsg.ApiVersionsResponse](c, apiVersions(3))
	c.alter(ofLogger, "1", "kafka.request.logger=DEBUG")
	do[*kmsg.ApiVersionsResponse](c, apiVersions(3))
	c.alter(ofLogger, "1", "!kafka.request.logger")
	do[*kmsg.ApiVersionsResponse](c, apiVersions(3))
	if out.count("api=ApiVersions version=3") != 1 || out.count("clientId=test") != 2 {
		t.Error(out.b.String())
	}
}
