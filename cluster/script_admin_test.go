package cluster

import (
	"fmt"
	"math"
	"strconv"
	"strings"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// admin runs the commands that are about neither topics nor configs.
func (s *script) admin(td *datadriven.TestData) (records []record, ok bool) {
	switch td.Cmd {
	case "features":
		return s.features(td), true
	case "quotas":
		return s.quotas(td), true
	case "scram":
		return s.scram(td), true
	case "elect":
		s.elect(td)
		return nil, true
	case "reassign":
		s.reassign(td)
		return nil, true
	case "logdirs":
		return s.logDirs(td), true
	case "place":
		return s.place(td), true
	case "unregister":
		var id int
		td.ScanArgs(s.t, "id", &id)
		records, err := s.d.unregister(int32(id))
		s.answer("broker %d", err, id)
		return records, true
	}
	return nil, false
}

// features [v=]: an update per line: name level kind, where the kind is a number (v0: whether to allow a downgrade)
func (s *script) features(td *datadriven.TestData) []record {
	req := kmsg.NewPtrUpdateFeaturesRequest()
	version := 2
	td.MaybeScanArgs(s.t, "v", &version)
	req.Version = int16(version)
	for line := range strings.Lines(td.Input) {
		name, rest := unquoteFirst(strings.TrimSpace(line))
		words := strings.Fields(rest)
		u := kmsg.NewUpdateFeaturesRequestFeatureUpdate()
		u.Feature, u.MaxVersionLevel, u.UpgradeType = name, int16(atoi(s.t, words[0])), int8(atoi(s.t, words[1]))
		u.AllowDowngrade = u.UpgradeType != 0
		req.FeatureUpdates = append(req.FeatureUpdates, u)
	}
	records, err := s.d.updateFeatures(req)
	s.answer("features", err)
	return records
}

// quotas: an entity per line: type=name,type=name key=value !key ...; the name <null> is the default, nowhere.invalid cannot be resolved
func (s *script) quotas(td *datadriven.TestData) []record {
	req := kmsg.NewPtrAlterClientQuotasRequest()
	req.Version = 1
	for line := range strings.Lines(td.Input) {
		words := strings.Fields(line)
		e := kmsg.NewAlterClientQuotasRequestEntry()
		for _, part := range strings.Split(words[0], ",") {
			if kind, name, ok := strings.Cut(part, "="); ok {
				p := kmsg.NewAlterClientQuotasRequestEntryEntity()
				p.Type, p.Name = kind, nullable(name)
				e.Entity = append(e.Entity, p)
			}
		}
		for _, w := range words[1:] {
			o := kmsg.NewAlterClientQuotasRequestEntryOp()
			if key, value, ok := strings.Cut(w, "="); ok {
				v, err := strconv.ParseFloat(value, 64)
				if err != nil {
					s.t.Fatal(err)
				}
				o.Key, o.Value = key, v
			} else {
				o.Key, o.Remove, o.Value = strings.TrimPrefix(w, "!"), true, math.NaN()
			}
			e.Ops = append(e.Ops, o)
		}
		req.Entries = append(req.Entries, e)
	}
	resp, records := s.d.alterClientQuotas(req, map[string]bool{"nowhere.invalid": true})
	for _, e := range resp.Entries {
		var parts []string
		for _, p := range e.Entity {
			name := "<null>"
			if p.Name != nil {
				name = *p.Name
			}
			parts = append(parts, p.Type+"="+name)
		}
		s.result("%s", e.ErrorCode, e.ErrorMessage, strings.Join(parts, ","))
	}
	return records
}

// scram: a credential per line: "user" mechanism iterations for one that is set, !"user" mechanism for one that is removed
func (s *script) scram(td *datadriven.TestData) []record {
	req := kmsg.NewPtrAlterUserSCRAMCredentialsRequest()
	for line := range strings.Lines(td.Input) {
		line, remove := strings.CutPrefix(strings.TrimSpace(line), "!")
		user, rest := unquoteFirst(line)
		words := strings.Fields(rest)
		if remove {
			d := kmsg.NewAlterUserSCRAMCredentialsRequestDeletion()
			d.Name, d.Mechanism = user, int8(atoi(s.t, words[0]))
			req.Deletions = append(req.Deletions, d)
			continue
		}
		u := kmsg.NewAlterUserSCRAMCredentialsRequestUpsertion()
		u.Name, u.Mechanism, u.Iterations = user, int8(atoi(s.t, words[0])), int32(atoi(s.t, words[1]))
		u.Salt, u.SaltedPassword = []byte("salt"), []byte("salted")
		if len(words) > 2 {
			u.SaltedPassword = nil
		}
		req.Upsertions = append(req.Upsertions, u)
	}
	as, records := s.d.alterCredentials(credentialsWanted(req))
	for _, r := range as.answer(req).Results {
		s.result("%q", r.ErrorCode, r.ErrorMessage, r.User)
	}
	return records
}

// logdirs id= epoch= dirs=abc: the directories that a broker can use, each named by a letter
func (s *script) logDirs(td *datadriven.TestData) []record {
	var id int
	var epoch int64
	var dirs string
	td.ScanArgs(s.t, "id", &id)
	td.ScanArgs(s.t, "epoch", &epoch)
	td.MaybeScanArgs(s.t, "dirs", &dirs)
	records, err := s.d.setLogDirs(int32(id), epoch, readDirs(dirs))
	s.answer("broker %d", err, id)
	return records
}

// place id=: where a broker's replicas are: topic index directory per line
func (s *script) place(td *datadriven.TestData) []record {
	var id int
	td.ScanArgs(s.t, "id", &id)
	var placements []Placement
	for line := range strings.Lines(td.Input) {
		words := strings.Fields(line)
		a := Placement{Index: int32(atoi(s.t, words[1])), Directory: readDirs(words[2])[0]}
		if t := s.im.Topic(words[0]); t != nil {
			a.TopicID = t.ID
		}
		placements = append(placements, a)
	}
	return s.d.assignDirectories(int32(id), placements)
}

// readDirs makes an id of each letter.
func readDirs(s string) (dirs [][16]byte) {
	for _, c := range []byte(s) {
		dirs = append(dirs, [16]byte{15: c})
	}
	return dirs
}

func showDirs(dirs [][16]byte) string {
	var b strings.Builder
	for _, dir := range dirs {
		b.WriteByte(dir[15])
	}
	return b.String()
}

// elect [type=] [all]: a topic per line: name partitions
func (s *script) elect(td *datadriven.TestData) {
	req := kmsg.NewPtrElectLeadersRequest()
	req.Version = 2
	kind := 0
	td.MaybeScanArgs(s.t, "type", &kind)
	req.ElectionType = int8(kind)
	for line := range strings.Lines(td.Input) {
		words := strings.Fields(line)
		t := kmsg.NewElectLeadersRequestTopic()
		t.Topic, t.Partitions = words[0], ints(s.t, words[1])
		req.Topics = append(req.Topics, t)
	}
	if td.HasArg("all") {
		req.Topics = nil
	}
	for _, t := range s.d.electLeaders(req).Topics {
		fmt.Fprintf(&s.out, "%s, %d partitions\n", t.Topic, len(t.Partitions))
		for _, p := range t.Partitions {
			s.result("  %d", p.ErrorCode, p.ErrorMessage, p.Partition)
		}
	}
}

// reassign: a partition per line: topic index replicas, "cancel" for null and "none" for an empty list
func (s *script) reassign(td *datadriven.TestData) {
	req := kmsg.NewPtrAlterPartitionAssignmentsRequest()
	req.Version = 1
	for line := range strings.Lines(td.Input) {
		words := strings.Fields(line)
		p := kmsg.NewAlterPartitionAssignmentsRequestTopicPartition()
		p.Partition = int32(atoi(s.t, words[1]))
		switch words[2] {
		case "cancel":
		case "none":
			p.Replicas = []int32{}
		default:
			p.Replicas = ints(s.t, words[2])
		}
		if n := len(req.Topics); n > 0 && req.Topics[n-1].Topic == words[0] {
			req.Topics[n-1].Partitions = append(req.Topics[n-1].Partitions, p)
			continue
		}
		t := kmsg.NewAlterPartitionAssignmentsRequestTopic()
		t.Topic, t.Partitions = words[0], append(t.Partitions, p)
		req.Topics = append(req.Topics, t)
	}
	for _, t := range s.d.alterAssignments(req).Topics {
		for _, p := range t.Partitions {
			s.result("%s-%d", p.ErrorCode, p.ErrorMessage, t.Topic, p.Partition)
		}
	}
}
