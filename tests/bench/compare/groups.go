package main

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// offsetLoad is offset commits of four partitions each.
type offsetLoad struct {
	groups, connections int
	commits             int // in all, at full scale
}

func (l offsetLoad) run(ctx context.Context, b *bed) (result, error) {
	topic, err := b.createTopic(ctx, 4)
	if err != nil {
		return result{}, err
	}
	each, perConn := max(b.n(l.commits)/l.connections, 1), l.groups/l.connections
	wires, frames := make([]*wire, l.connections), make([][][]byte, l.connections)
	for i := range wires {
		if wires[i], err = dial(ctx, b.address); err != nil {
			return result{}, err
		}
		defer wires[i].close()
		for k := range perConn {
			req := commitRequest(fmt.Sprint(topic, "-", i, "-", k), topic)
			if err := wires[i].coordinator(ctx, req.Group); err != nil {
				return result{}, err
			}
			frames[i] = append(frames[i], frame(req))
		}
	}
	if err := b.begin(); err != nil {
		return result{}, err
	}
	latencies, failures := make([][]time.Duration, l.connections), make([]error, l.connections)
	var group sync.WaitGroup
	for i, w := range wires {
		group.Go(func() {
			latencies[i], failures[i] = w.pipeline(frames[i], each, func(answer []byte) error {
				resp := kmsg.NewPtrOffsetCommitResponse()
				resp.Version = 8
				if err := decode(answer, resp); err != nil {
					return err
				}
				return kerr.ErrorForCode(resp.Topics[0].Partitions[0].ErrorCode)
			})
		})
	}
	group.Wait()
	if err := errors.Join(append(failures, b.end())...); err != nil {
		return result{}, err
	}
	r := result{work: float64(each * l.connections), unit: "commit", latencies: slices.Concat(latencies...)}
	return r, b.deleteTopic(ctx, topic)
}

func commitRequest(group, topic string) *kmsg.OffsetCommitRequest {
	req := kmsg.NewPtrOffsetCommitRequest()
	req.Version, req.Group, req.Generation = 8, group, -1
	t := kmsg.NewOffsetCommitRequestTopic()
	t.Topic = topic
	for p := range int32(4) {
		row := kmsg.NewOffsetCommitRequestTopicPartition()
		row.Partition, row.Offset = p, 1234
		t.Partitions = append(t.Partitions, row)
	}
	req.Topics = append(req.Topics, t)
	return req
}

// coordinator waits until the group's coordinator takes requests.
func (w *wire) coordinator(ctx context.Context, group string) error {
	for {
		find := kmsg.NewPtrFindCoordinatorRequest()
		find.Version, find.CoordinatorKey = 3, group
		resp, err := w.ask(find)
		if err != nil {
			return err
		}
		if resp.(*kmsg.FindCoordinatorResponse).ErrorCode == 0 {
			fetch := kmsg.NewPtrOffsetFetchRequest()
			fetch.Version, fetch.Group = 7, group
			if resp, err = w.ask(fetch); err != nil {
				return err
			}
			if resp.(*kmsg.OffsetFetchResponse).ErrorCode == 0 {
				return nil
			}
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
}

// pipeline sends frames in turn, n in all and as many at a time as there are frames, and checks the answers.
func (w *wire) pipeline(frames [][]byte, n int, check func([]byte) error) ([]time.Duration, error) {
	latencies := make([]time.Duration, 0, n)
	began := make([]time.Time, len(frames))
	for sent, got := 0, 0; got < n; got++ {
		for ; sent < min(got+len(frames), n); sent++ {
			began[sent%len(frames)] = time.Now()
			if err := w.send(frames[sent%len(frames)]); err != nil {
				return nil, err
			}
		}
		answer, err := w.receive()
		if err != nil {
			return nil, err
		}
		latencies = append(latencies, time.Since(began[got%len(frames)]))
		if err := check(answer); err != nil {
			return nil, err
		}
	}
	return latencies, nil
}

// heartbeatLoad is a group's members that tell that they live, over and over.
type heartbeatLoad struct {
	groups, perGroup int
	beats            int // in all, at full scale
}

// joined is a member of a group.
type joined struct {
	group, id  string
	generation int32
}

// join makes n members of a group, each over a connection of its own, and tells how long the rebalance took.
func join(ctx context.Context, address, group string, n int) ([]joined, time.Duration, error) {
	members, wires, failures := make([]joined, n), make([]*wire, n), make([]error, n)
	for i := range members {
		w, err := dial(ctx, address)
		if err != nil {
			return nil, 0, err
		}
		defer w.close()
		if i == 0 {
			if err := w.coordinator(ctx, group); err != nil {
				return nil, 0, err
			}
		}
		resp, err := w.ask(joinRequest(group, ""))
		if err != nil {
			return nil, 0, err
		}
		wires[i], members[i] = w, joined{group: group, id: resp.(*kmsg.JoinGroupResponse).MemberID}
	}
	began := time.Now()
	var all sync.WaitGroup
	for i := range members {
		all.Go(func() { failures[i] = members[i].join(wires[i]) })
	}
	all.Wait()
	return members, time.Since(began), errors.Join(failures...)
}

// join joins and syncs one member. All of a group come at the same time, so there is one generation.
func (m *joined) join(w *wire) error {
	got, err := w.ask(joinRequest(m.group, m.id))
	if err != nil {
		return err
	}
	resp := got.(*kmsg.JoinGroupResponse)
	if err := kerr.ErrorForCode(resp.ErrorCode); err != nil {
		return fmt.Errorf("join: %w", err)
	}
	m.generation = resp.Generation
	req := kmsg.NewPtrSyncGroupRequest()
	req.Version, req.Group, req.MemberID, req.Generation = 5, m.group, m.id, m.generation
	kind, name := "consumer", "range"
	req.ProtocolType, req.Protocol = &kind, &name
	for _, to := range resp.Members { // only the leader is told of them
		a := kmsg.NewSyncGroupRequestGroupAssignment()
		a.MemberID, a.MemberAssignment = to.MemberID, make([]byte, 100)
		req.GroupAssignment = append(req.GroupAssignment, a)
	}
	if got, err = w.ask(req); err != nil {
		return err
	}
	return kerr.ErrorForCode(got.(*kmsg.SyncGroupResponse).ErrorCode)
}

func joinRequest(group, id string) *kmsg.JoinGroupRequest {
	req := kmsg.NewPtrJoinGroupRequest()
	req.Version, req.Group, req.MemberID, req.ProtocolType = 7, group, id, "consumer"
	req.SessionTimeoutMillis, req.RebalanceTimeoutMillis = 60000, 60000
	p := kmsg.NewJoinGroupRequestProtocol()
	p.Name, p.Metadata = "range", make([]byte, 100)
	req.Protocols = append(req.Protocols, p)
	return req
}

func (l heartbeatLoad) run(ctx context.Context, b *bed) (result, error) {
	wires, frames := make([]*wire, l.groups), make([][][]byte, l.groups)
	for i := range wires {
		w, err := dial(ctx, b.address)
		if err != nil {
			return result{}, err
		}
		defer w.close()
		members, _, err := join(ctx, b.address, fmt.Sprint("heartbeat-", time.Now().UnixNano(), "-", i), l.perGroup)
		if err != nil {
			return result{}, err
		}
		for _, m := range members {
			req := kmsg.NewPtrHeartbeatRequest()
			req.Version, req.Group, req.MemberID, req.Generation = 4, m.group, m.id, m.generation
			frames[i] = append(frames[i], frame(req))
		}
		wires[i] = w
	}
	if err := b.begin(); err != nil {
		return result{}, err
	}
	each := max(b.n(l.beats)/l.groups, 1)
	latencies, failures := make([][]time.Duration, l.groups), make([]error, l.groups)
	var group sync.WaitGroup
	for i, w := range wires {
		group.Go(func() {
			latencies[i], failures[i] = w.pipeline(frames[i], each, func(answer []byte) error {
				resp := kmsg.NewPtrHeartbeatResponse()
				resp.Version = 4
				return errors.Join(decode(answer, resp), kerr.ErrorForCode(resp.ErrorCode))
			})
		})
	}
	group.Wait()
	if err := errors.Join(append(failures, b.end())...); err != nil {
		return result{}, err
	}
	return result{work: float64(each * l.groups), unit: "heartbeat", latencies: slices.Concat(latencies...)}, nil
}

// joinLoad is rebalances of a group of many members.
type joinLoad struct{ members, rebalances int }

func (l joinLoad) run(ctx context.Context, b *bed) (result, error) {
	if err := b.begin(); err != nil {
		return result{}, err
	}
	r := result{unit: "member"}
	for i := range b.n(l.rebalances) {
		_, took, err := join(ctx, b.address, fmt.Sprint("join-", time.Now().UnixNano(), "-", i), l.members)
		if err != nil {
			return result{}, err
		}
		r.latencies = append(r.latencies, took)
		r.work += float64(l.members)
	}
	return r, b.end()
}

func offsetLoads() []load {
	return []load{
		{name: "offsets/1", about: "OffsetCommit of 4 partitions, one at a time, 1 connection", run: offsetLoad{groups: 1, connections: 1, commits: 30000}.run,
			goals: []goal{{figure: cpuPer, most: .3}, {figure: rate, least: 1.5}}},
		{name: "offsets/64", about: "the same for 64 groups on 4 connections", run: offsetLoad{groups: 64, connections: 4, commits: 80000}.run,
			goals: []goal{{figure: cpuPer, most: .3}, {figure: rate, least: 2}}},
	}
}

func groupLoads() []load {
	quick := []string{"group.initial.rebalance.delay.ms=100"}
	return []load{
		{name: "groups/join", about: "joins of 100 members, rebalance delay 100 ms", settings: quick, run: joinLoad{members: 100, rebalances: 10}.run},
		{name: "groups/heartbeats", about: "heartbeats of 1,000 members in 10 groups", settings: quick, run: heartbeatLoad{groups: 10, perGroup: 100, beats: 200000}.run},
	}
}
