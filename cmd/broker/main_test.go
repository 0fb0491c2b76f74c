package main

import (
	"bytes"
	"net/http"
	"net/http/httptest"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"go.uber.org/goleak"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

func command(t *testing.T, env []string, args ...string) (code int, stdout, stderr string) {
	t.Helper()
	var out, errs bytes.Buffer
	code = run(args, env, &out, &errs)
	return code, out.String(), errs.String()
}

// What is wrong with a command line is said in one line, and the exit code tells that nothing was started.
func TestCommandLine(t *testing.T) {
	file := filepath.Join(t.TempDir(), "server.properties")
	if err := os.WriteFile(file, []byte("num.partitions=zero\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		args   string
		env    []string
		code   int
		stdout string
		stderr string
	}{
		{args: "--help", stdout: "broker health"},
		{args: "serve --help", stdout: "--set key=value"},
		{args: "help", stdout: "broker --version"},
		{args: "--version", stdout: "oncelog "},
		{args: "version", stdout: "oncelog "},
		{args: "bogus", code: 2, stderr: `unknown command "bogus"`},
		{args: "--bogus", code: 2, stderr: "-bogus"},
		{args: "serve extra", code: 2, stderr: `unexpected argument "extra"`},
		{args: "--set num.partitions", code: 2, stderr: "not key=value"},
		{args: "--log-level loud", code: 2, stderr: `log level "loud"`},
		{env: []string{"ONCELOG_LOG_FORMAT=xml"}, code: 2, stderr: `log format "xml" is none of text, json`},
		{args: "--set num.partitions=zero", code: 1, stderr: "num.partitions=zero"},
		{env: []string{"KAFKA_NUM_PARTITIONS=zero"}, code: 1, stderr: "num.partitions=zero"},
		{args: "--config " + file, code: 1, stderr: "num.partitions=zero"},
		{args: "--config /does/not/exist", code: 1, stderr: "/does/not/exist"},
		{args: "--set authorizer.class.name=org.apache.kafka.metadata.authorizer.StandardAuthorizer", code: 1, stderr: "authorizer.class.name"},
		{args: "--set listeners=SASL_PLAINTEXT://127.0.0.1:0", code: 1, stderr: "SASL_PLAINTEXT"},
		{args: "--set remote.log.storage.system.enable=true", code: 1, stderr: "remote.log.storage.system.enable"},
		{args: "health a b", code: 2, stderr: "at most one URL"},
		{args: "health 127.0.0.1:1", code: 1, stderr: "not healthy"},
	} {
		code, stdout, stderr := command(t, test.env, strings.Fields(test.args)...)
		if code != test.code || !strings.Contains(stdout, test.stdout) || !strings.Contains(stderr, test.stderr) {
			t.Errorf("%q %v: code %d\n%s%s", test.args, test.env, code, stdout, stderr)
		}
		if code != 0 && strings.Count(stderr, "\n") != 1 {
			t.Errorf("%q %v: not one line:\n%s", test.args, test.env, stderr)
		}
	}
}

func TestHealth(t *testing.T) {
	status := http.StatusOK
	s := httptest.NewServer(http.HandlerFunc(func(w http.ResponseWriter, r *http.Request) {
		w.WriteHeader(status)
		w.Write([]byte(r.URL.Path))
	}))
	defer s.Close()
	defer http.DefaultClient.CloseIdleConnections()
	for url, path := range map[string]string{s.URL: "/readyz", s.URL + "/healthz": "/healthz", strings.TrimPrefix(s.URL, "http://"): "/readyz"} {
		if code, stdout, stderr := command(t, nil, "health", url); code != 0 || stdout != path+"\n" {
			t.Errorf("%s: code %d %s%s", url, code, stdout, stderr)
		}
	}
	status = http.StatusServiceUnavailable
	if code, _, stderr := command(t, nil, "health", s.URL); code != 1 || !strings.Contains(stderr, "503") {
		t.Errorf("code %d %s", code, stderr)
	}
}
