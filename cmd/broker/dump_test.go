package main

import (
	"strings"
	"testing"
)

func TestDumpCommand(t *testing.T) {
	const file = "../../tests/golden/testdata/txn/data/txn-1/00000000000000000000.log"
	for _, tt := range []struct {
		args     string
		code     int
		out, err string // parts of them
	}{
		{"dump " + file + " --deep-iteration", 0, "| offset: 0 ", ""},
		{"dump --print-data-log --files " + file, 0, " payload: ", ""},
		{"dump --transaction-log-decoder " + file, 0, " skipping.", ""},
		{"dump", 2, "", "no files"},
		{"dump --nonsense x", 2, "", "see broker dump --help"},
		{"dump --help", 0, "--offsets-decoder", ""},
		{"dump /nowhere/00000000000000000000.log", 1, "Dumping /nowhere", "no such file"},
	} {
		var out, err strings.Builder
		if code := run(strings.Fields(tt.args), nil, &out, &err); code != tt.code || !strings.Contains(out.String(), tt.out) || !strings.Contains(err.String(), tt.err) {
			t.Errorf("%s: code %d\n%.300s%s", tt.args, code, out.String(), err.String())
		}
	}
}
