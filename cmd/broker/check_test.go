package main

import (
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"oncelog/internal/vfs"
)

// goldenCopy copies a log directory that Kafka wrote.
func goldenCopy(t *testing.T, set string) string {
	t.Helper()
	dir := filepath.Join(t.TempDir(), "data")
	if err := os.CopyFS(dir, os.DirFS(filepath.Join("../../tests/golden/testdata", set, "data"))); err != nil {
		t.Fatal(err)
	}
	return dir
}

func TestCheckCommand(t *testing.T) {
	good, bad, used := goldenCopy(t, "txn"), goldenCopy(t, "txn"), goldenCopy(t, "txn")
	if err := os.Truncate(filepath.Join(bad, "txn-1/00000000000000000003.log"), 10); err != nil {
		t.Fatal(err)
	}
	lock, err := vfs.OS.Lock(filepath.Join(used, ".lock"))
	if err != nil {
		t.Fatal(err)
	}
	defer lock.Close()
	for _, tt := range []struct {
		args     string
		code     int
		out, err string // parts of them
	}{
		{"check " + good, 0, "2 partitions, 10 segments, 36 batches, 45 records, 3223 bytes: 0 errors, 0 warnings", ""},
		{"check --quiet " + good, 0, "", ""},
		{"check " + bad, 1, "error txn-1/00000000000000000003.log: 10 bytes at the end", ""},
		{"check " + bad + " --json", 1, `"severity": "error"`, ""},
		{"check " + used, 2, "", "add --live"},
		{"check --live " + used, 0, "0 errors", ""},
		{"check " + filepath.Join(good, "nowhere"), 2, "", "no such file"},
		{"check", 2, "", "it takes one directory"},
		{"check --help", 0, "The exit code is", ""},
	} {
		var out, err strings.Builder
		if code := run(strings.Fields(tt.args), nil, &out, &err); code != tt.code || !strings.Contains(out.String(), tt.out) || !strings.Contains(err.String(), tt.err) {
			t.Errorf("%s: code %d\n%.600s%s", tt.args, code, out.String(), err.String())
		}
		if strings.Contains(tt.args, "--quiet") && out.String() != "" {
			t.Errorf("%s: %s", tt.args, out.String())
		}
		var report struct {
			Partitions int
			Findings   []struct{ Severity, Path, What string }
		}
		if strings.Contains(tt.args, "--json") {
			if err := json.Unmarshal([]byte(out.String()), &report); err != nil || report.Partitions != 2 || len(report.Findings) == 0 {
				t.Errorf("%v: %s", err, out.String())
			}
		}
	}
}
