package cluster

import (
	"context"
	"errors"
	"fmt"
	"io"
	"log/slog"
	"strconv"
	"time"

	"github.com/hashicorp/go-hclog"
	"github.com/hashicorp/raft"
)

// A lone voter has nobody to hear from, so its timers only cost: they sleep for longer than anything waits. What starts an election instead is
// the message by which a leader hands over its office, sent to it from a second transport. It leads in well under a millisecond.
const (
	sleepingTimeout = time.Hour
	electionWait    = 5 * time.Second // the most that one election, disk included, may take
)

// Snapshots: raft looks every two to four minutes whether there are enough entries for one.
const (
	snapshotInterval  = 2 * time.Minute
	snapshotThreshold = 2048 // entries
	trailingLogs      = 256  // entries kept behind a snapshot
)

// voter is this node as the only voter of its metadata.
type voter struct {
	raft   *raft.Raft
	id     raft.ServerID
	stores Stores
	self   *raft.InmemTransport // raft's
	nudge  *raft.InmemTransport // ours, to send it messages
}

func openVoter(nodeID int32, machine raft.FSM, stores Stores, logger hclog.Logger) (*voter, error) {
	v := &voter{id: raft.ServerID(strconv.Itoa(int(nodeID))), stores: stores}
	_, v.self = raft.NewInmemTransport(raft.ServerAddress(v.id))
	_, v.nudge = raft.NewInmemTransport("")
	v.nudge.Connect(v.self.LocalAddr(), v.self)

	conf := raft.DefaultConfig()
	conf.LocalID = v.id
	conf.Logger = logger
	conf.HeartbeatTimeout, conf.ElectionTimeout = sleepingTimeout, sleepingTimeout
	conf.LeaderLeaseTimeout, conf.CommitTimeout = sleepingTimeout, sleepingTimeout
	conf.SnapshotInterval, conf.SnapshotThreshold, conf.TrailingLogs = snapshotInterval, snapshotThreshold, trailingLogs
	conf.NoLegacyTelemetry = true

	some, err := raft.HasExistingState(stores.Log, stores.Stable, stores.Snapshots)
	if err == nil && !some {
		err = raft.BootstrapCluster(conf, stores.Log, stores.Stable, stores.Snapshots, v.self, raft.Configuration{
			Servers: []raft.Server{{Suffrage: raft.Voter, ID: v.id, Address: v.self.LocalAddr()}},
		})
	}
	if err == nil {
		v.raft, err = raft.NewRaft(conf, machine, stores.Log, stores.Stable, stores.Snapshots, v.self)
	}
	if err != nil {
		return nil, errors.Join(err, v.close())
	}
	return v, nil
}

// elect makes the voter lead and waits until the image holds all that was committed before. It returns the term.
func (v *voter) elect(ctx context.Context) (term uint64, err error) {
	for len(v.raft.LeaderCh()) > 0 {
		<-v.raft.LeaderCh() // news of earlier terms
	}
	if v.raft.State() != raft.Leader {
		req := raft.TimeoutNowRequest{RPCHeader: raft.RPCHeader{ProtocolVersion: raft.ProtocolVersionMax}}
		if err := v.nudge.TimeoutNow(v.id, v.self.LocalAddr(), &req, &raft.TimeoutNowResponse{}); err != nil {
			return 0, fmt.Errorf("calling an election: %w", err)
		}
		ctx, cancel := context.WithTimeout(ctx, electionWait)
		defer cancel()
		select {
		case <-v.raft.LeaderCh():
		case <-ctx.Done():
			return 0, fmt.Errorf("election: %w", ctx.Err())
		}
	}
	if err := v.raft.Barrier(electionWait).Error(); err != nil {
		return 0, fmt.Errorf("barrier: %w", err)
	}
	return v.raft.CurrentTerm(), nil
}

func (v *voter) close() error {
	var err error
	if v.raft != nil {
		err = v.raft.Shutdown().Error()
	}
	return errors.Join(err, v.self.Close(), v.nudge.Close(), v.stores.Close())
}

// raftLogger hands raft's log lines to slog, one level down: what raft says of elections and snapshots matters to who looks for it.
func raftLogger(logger *slog.Logger) hclog.Logger {
	l := hclog.NewInterceptLogger(&hclog.LoggerOptions{Name: "raft", Level: hclog.Off, Output: io.Discard})
	l.RegisterSink(sink{logger})
	return l
}

type sink struct{ logger *slog.Logger }

func (s sink) Accept(_ string, level hclog.Level, msg string, args ...any) {
	to := slog.LevelDebug
	switch level {
	case hclog.Warn:
		to = slog.LevelInfo
	case hclog.Error:
		to = slog.LevelError
	}
	s.logger.Log(context.Background(), to, "raft: "+msg, args...)
}
