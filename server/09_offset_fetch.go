package server

import (
	"context"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/cluster"
	"oncelog/coordinator"
	"oncelog/groupcoordinator"
)

// OffsetFetch (9), versions 1 to 10.
//
// Behavior
//   - Gives committed offsets of groups; -1 without an error for a partition that has none, known or not, also of a
//     group that isn't there.
//   - Null instead of topics asks for all that is committed.
//   - With RequireStable a partition that an open transaction holds an offset for is UNSTABLE_OFFSET_COMMIT.
//   - Sees every commit before it: the answer waits until those are committed themselves.
//
// Version notes: v1 has no error of its own, it goes to each partition; v2 lets topics be null; v5 adds the leader
// epoch; v6 is flexible; v7 adds RequireStable; v8 asks for several groups; v9 adds member and epoch, which classic
// groups don't look at; v10 has topic ids instead of names: an unknown one is UNKNOWN_TOPIC_ID and comes last, and of
// all that is committed only existing topics are shown.

func (s *Server) handleOffsetFetch(r *request) pending {
	req := r.body.(*kmsg.OffsetFetchRequest)
	groups := req.Groups
	if req.Version < 8 {
		groups = []kmsg.OffsetFetchRequestGroup{groupOfOffsetFetch(req)}
	}
	fetches := make([]offsetFetch, len(groups))
	all := make(map[string]int) // of groups whose offsets are all asked for: where they are asked for first
	ready := true
	for i := range groups {
		f := &fetches[i]
		f.group, f.first = groups[i].Group, i
		if groups[i].Topics == nil {
			if first, again := all[f.group]; again {
				f.first = first
				continue
			}
			all[f.group] = i
		}
		s.fetchOffsets(f, req, groups[i])
		ready = ready && (f.err != nil || f.pending.Ready())
	}
	finish := func(ctx context.Context) kmsg.Response {
		resp := req.ResponseKind().(*kmsg.OffsetFetchResponse)
		again := newRepeats()
		for i := range fetches {
			f := &fetches[i]
			if f.first < i {
				resp.Groups = append(resp.Groups, resp.Groups[f.first])
			} else {
				resp.Groups = append(resp.Groups, s.finishOffsetFetch(ctx, req, f))
			}
			if g := &resp.Groups[i]; (f.first < i || groups[i].Topics != nil) && !again.take(sizeOfOffsets(g)) {
				g.Topics, g.ErrorCode = nil, errorCode(errRepeats)
			}
		}
		if req.Version < 8 {
			flattenOffsetFetch(req, resp)
		}
		return resp
	}
	if ready {
		return answer(finish(context.Background()))
	}
	return await(finish)
}

// offsetFetch is the part of a request that goes to one group.
type offsetFetch struct {
	group   string
	first   int                                  // the part that has asked for the same already, or this one
	refused []kmsg.OffsetFetchResponseGroupTopic // topics that don't exist
	pending coordinator.Pending
	err     error // of finding the group's coordinator
}

// groupOfOffsetFetch is a request for one group in the shape of those for several.
func groupOfOffsetFetch(req *kmsg.OffsetFetchRequest) kmsg.OffsetFetchRequestGroup {
	g := kmsg.NewOffsetFetchRequestGroup()
	g.Group = req.Group
	if req.Topics != nil {
		g.Topics = make([]kmsg.OffsetFetchRequestGroupTopic, len(req.Topics))
	}
	for i, t := range req.Topics {
		g.Topics[i].Topic, g.Topics[i].Partitions = t.Topic, t.Partitions
	}
	return g
}

func (s *Server) fetchOffsets(f *offsetFetch, req *kmsg.OffsetFetchRequest, g kmsg.OffsetFetchRequestGroup) {
	if req.Version >= 10 {
		f.refused = nameTopics(s.image(), &g)
	}
	shard, err := s.groupShard(g.Group)
	if err != nil {
		f.err = err
		return
	}
	stable := req.Version >= 7 && req.RequireStable
	f.pending = shard.Do(func(m *groupcoordinator.Machine, _ time.Time, to coordinator.Token) coordinator.Output {
		return m.OffsetFetch(to, &g, stable)
	})
}

// nameTopics gives the topics of a request their names. Those that have none are taken out, and answered.
func nameTopics(im *cluster.Image, g *kmsg.OffsetFetchRequestGroup) (refused []kmsg.OffsetFetchResponseGroupTopic) {
	keep := g.Topics[:0]
	for _, t := range g.Topics {
		if known := im.TopicByID(t.TopicID); known != nil {
			t.Topic = known.Name
			keep = append(keep, t)
			continue
		}
		row := kmsg.NewOffsetFetchResponseGroupTopic()
		row.TopicID = t.TopicID
		for _, p := range t.Partitions {
			row.Partitions = append(row.Partitions, noOffset(p, kerr.UnknownTopicID.Code))
		}
		refused = append(refused, row)
	}
	g.Topics = keep
	return refused
}

func noOffset(partition int32, code int16) kmsg.OffsetFetchResponseGroupTopicPartition {
	return kmsg.OffsetFetchResponseGroupTopicPartition{
		Partition: partition, Offset: -1, LeaderEpoch: -1, Metadata: kmsg.StringPtr(""), ErrorCode: code,
	}
}

// finishOffsetFetch waits for the answer of one group.
func (s *Server) finishOffsetFetch(ctx context.Context, req *kmsg.OffsetFetchRequest, f *offsetFetch) kmsg.OffsetFetchResponseGroup {
	v, err := any(nil), f.err
	if err == nil {
		v, err = f.pending.Await(ctx)
	}
	if err != nil {
		g := kmsg.NewOffsetFetchResponseGroup()
		g.Group, g.ErrorCode = f.group, s.groupCode(err)
		return g
	}
	g := *v.(*kmsg.OffsetFetchResponseGroup)
	if req.Version >= 10 {
		g.Topics = identified(s.image(), g.Topics)
	}
	g.Topics = append(g.Topics, f.refused...)
	return g
}

// identified gives topics their ids, and leaves out those that are gone: there is no way to name them.
func identified(im *cluster.Image, topics []kmsg.OffsetFetchResponseGroupTopic) []kmsg.OffsetFetchResponseGroupTopic {
	keep := topics[:0]
	for _, t := range topics {
		if t.TopicID == [16]byte{} {
			known := im.Topic(t.Topic)
			if known == nil {
				continue
			}
			t.TopicID = known.ID
		}
		keep = append(keep, t)
	}
	return keep
}

// flattenOffsetFetch brings the answer for one group into the shape before v8.
func flattenOffsetFetch(req *kmsg.OffsetFetchRequest, resp *kmsg.OffsetFetchResponse) {
	g := resp.Groups[0]
	resp.Groups = nil
	if g.ErrorCode != 0 {
		if req.Version >= 2 {
			resp.ErrorCode = g.ErrorCode
			return
		}
		for _, t := range req.Topics {
			row := kmsg.NewOffsetFetchResponseGroupTopic()
			row.Topic = t.Topic
			for _, p := range t.Partitions {
				row.Partitions = append(row.Partitions, noOffset(p, g.ErrorCode))
			}
			g.Topics = append(g.Topics, row)
		}
	}
	resp.Topics = make([]kmsg.OffsetFetchResponseTopic, len(g.Topics))
	for i, t := range g.Topics {
		row := &resp.Topics[i]
		row.Topic = t.Topic
		row.Partitions = make([]kmsg.OffsetFetchResponseTopicPartition, len(t.Partitions))
		for j, p := range t.Partitions {
			row.Partitions[j] = kmsg.OffsetFetchResponseTopicPartition{
				Partition: p.Partition, Offset: p.Offset, LeaderEpoch: p.LeaderEpoch, Metadata: p.Metadata, ErrorCode: p.ErrorCode,
			}
		}
	}
}
