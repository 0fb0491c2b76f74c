package cluster

import (
	"context"
	"log/slog"
	"testing"
	"time"
)

// TestLoneVoterLeadsAtOnce measures nothing that a slow machine could fail by little: it fails if a timer has to run.
func TestLoneVoterLeadsAtOnce(t *testing.T) {
	dir := t.TempDir()
	began := time.Now()
	stores, err := openStores(dir, slog.New(slog.DiscardHandler))
	if err != nil {
		t.Fatal(err)
	}
	opened := time.Since(began)
	b := newBoard()
	v, err := openVoter(1, &fsm{board: b}, stores, raftLogger(slog.New(slog.DiscardHandler)))
	if err != nil {
		t.Fatal(err)
	}
	made := time.Since(began)
	term, err := v.elect(context.Background())
	if err != nil {
		t.Fatal(err)
	}
	led := time.Since(began)
	f := v.raft.Apply(encodeEntry(term, []record{clusterRecord{"x"}}), 0)
	if err := f.Error(); err != nil || f.Response() != nil {
		t.Fatal(err, f.Response())
	}
	t.Logf("stores %v, raft %v, led %v, applied %v, term %d", opened, made, led, time.Since(began), term)
	if b.image.Load().ClusterID != "x" {
		t.Error("entry was not applied")
	}
	if err := v.close(); err != nil {
		t.Fatal(err)
	}
}
