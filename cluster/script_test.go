package cluster

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/config"
)

// TestScripts runs the decisions of testdata/*.txt, each on the image that those before it made, without raft. Every command shows the answer and
// the records; `image` shows what they made of the image. -rewrite takes what comes out for right: read the diff.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/scripts", func(t *testing.T, path string) {
		s := script{t: t, im: emptyImage(), d: decider{static: testConfig(t), nodeID: 1, newID: countingIDs()}}
		datadriven.RunTest(t, path, s.run)
	})
}

type script struct {
	t   *testing.T
	im  *Image
	d   decider
	out strings.Builder
}

func (s *script) run(t *testing.T, td *datadriven.TestData) string {
	s.out.Reset()
	s.d.im, s.d.defaults, s.d.inDirectory = s.im, nil, nil
	var records []record
	switch td.Cmd {
	case "node": // settings of the node: a restart
		s.d.static = testConfig(t, strings.Fields(td.Input)...)
	case "register":
		records = s.register(td)
	case "create":
		records = s.create(td)
	case "delete":
		records = s.delete(td)
	case "partitions":
		records = s.partitions(td)
	case "alter", "incremental":
		records = s.alter(td)
	case "producerids":
		var id int
		var epoch int64
		td.ScanArgs(t, "broker", &id)
		td.ScanArgs(t, "epoch", &epoch)
		first, rs, err := s.d.allocateProducerIDs(int32(id), epoch)
		s.answer("first %d", err, first)
		records = rs
	case "image":
		return describe(s.im)
	default:
		var ok bool
		if records, ok = s.admin(td); !ok {
			td.Fatalf(t, "no such command")
		}
	}
	for _, r := range records {
		fmt.Fprintf(&s.out, "-> %s\n", showRecord(r))
	}
	if len(records) > 0 {
		before := describe(s.im)
		s.im = mustReplay(t, s.im, records...)
		if before != describe(s.d.im) {
			t.Error("replay has changed the image before")
		}
		s.checkFold()
	}
	return s.out.String()
}

// checkFold: the image equals the one that its snapshot makes.
func (s *script) checkFold() {
	again, err := decodeSnapshot(encodeSnapshot(s.im))
	if err != nil {
		s.t.Fatal(err)
	}
	if describe(again) != describe(s.im) {
		s.t.Errorf("image\n%s\nits snapshot\n%s", describe(s.im), describe(again))
	}
}

// answer shows one answer: its code and text, or what format makes of args.
func (s *script) answer(format string, err error, args ...any) {
	code, text := codeAndText(err)
	s.result(format, code, text, args...)
}

func (s *script) result(format string, code int16, text *string, args ...any) {
	fmt.Fprintf(&s.out, format, args...)
	if code == 0 {
		s.out.WriteString(": ok")
	} else {
		fmt.Fprintf(&s.out, ": %s (%d)", kerr.ErrorForCode(code).(*kerr.Error).Message, code)
	}
	if text != nil {
		fmt.Fprintf(&s.out, " %q", *text)
	}
	s.out.WriteString("\n")
}

// register [id=] [life=] [cluster=] [dirs=]
func (s *script) register(td *datadriven.TestData) []record {
	r := Registration{BrokerID: 1, ClusterID: "c", Endpoints: []Endpoint{{"PLAINTEXT", "h", 9092, "PLAINTEXT"}}}
	life := 1
	td.MaybeScanArgs(s.t, "life", &life)
	r.Incarnation[15] = byte(life)
	id := 1
	td.MaybeScanArgs(s.t, "id", &id)
	r.BrokerID = int32(id)
	td.MaybeScanArgs(s.t, "cluster", &r.ClusterID)
	if td.HasArg("dir") {
		r.LogDirs = [][16]byte{{15: 0xd}}
	}
	var dirs string
	td.MaybeScanArgs(s.t, "dirs", &dirs)
	r.LogDirs = append(r.LogDirs, readDirs(dirs)...)
	records, err := s.d.register(r)
	s.answer("broker %d", err, id)
	return records
}

// create [v=] [validate]: a topic per line: name partitions factor [0:1,2 ...] [key=value ...], a name in quotes if it is odd
func (s *script) create(td *datadriven.TestData) []record {
	req := kmsg.NewPtrCreateTopicsRequest()
	version := 7
	td.MaybeScanArgs(s.t, "v", &version)
	req.SetVersion(int16(version))
	req.ValidateOnly = td.HasArg("validate")
	for line := range strings.Lines(td.Input) {
		t := kmsg.NewCreateTopicsRequestTopic()
		name, rest := unquoteFirst(strings.TrimSpace(line))
		words := strings.Fields(rest)
		t.Topic = name
		t.NumPartitions, t.ReplicationFactor = int32(atoi(s.t, words[0])), int16(atoi(s.t, words[1]))
		for _, w := range words[2:] {
			if key, value, ok := strings.Cut(w, "="); ok {
				c := kmsg.NewCreateTopicsRequestTopicConfig()
				c.Name, c.Value = key, nullable(value)
				t.Configs = append(t.Configs, c)
				continue
			}
			index, replicas, _ := strings.Cut(w, ":")
			a := kmsg.NewCreateTopicsRequestTopicReplicaAssignment()
			a.Partition, a.Replicas = int32(atoi(s.t, index)), ints(s.t, replicas)
			t.ReplicaAssignment = append(t.ReplicaAssignment, a)
		}
		req.Topics = append(req.Topics, t)
	}
	resp, records := s.d.createTopics(req)
	for _, t := range resp.Topics {
		s.result("%s id %s %d/%d", t.ErrorCode, t.ErrorMessage, t.Topic, shortID(t.TopicID), t.NumPartitions, t.ReplicationFactor)
		if t.ErrorCode == 0 && td.HasArg("configs") {
			for _, c := range t.Configs {
				if c.Source != int8(config.Default) {
					fmt.Fprintf(&s.out, "   %s=%q source %d\n", c.Name, *c.Value, c.Source)
				}
			}
			fmt.Fprintf(&s.out, "   %d configs\n", len(t.Configs))
		}
	}
	return records
}

// delete [v=]: an entry per line: a name, id=hex, or both
func (s *script) delete(td *datadriven.TestData) []record {
	req := kmsg.NewPtrDeleteTopicsRequest()
	version := 6
	td.MaybeScanArgs(s.t, "v", &version)
	req.SetVersion(int16(version))
	for line := range strings.Lines(td.Input) {
		e := kmsg.NewDeleteTopicsRequestTopic()
		for _, w := range strings.Fields(line) {
			if id, ok := strings.CutPrefix(w, "id="); ok {
				n, err := strconv.ParseUint(id, 16, 8)
				if err != nil {
					s.t.Fatal(err)
				}
				e.TopicID[15] = byte(n)
				continue
			}
			name, _ := unquoteFirst(w)
			e.Topic = &name
			req.TopicNames = append(req.TopicNames, name)
		}
		req.Topics = append(req.Topics, e)
	}
	resp, records := s.d.deleteTopics(req)
	for _, t := range resp.Topics {
		name := "(null)"
		if t.Topic != nil {
			name = *t.Topic
		}
		s.result("%s id %s", t.ErrorCode, t.ErrorMessage, name, shortID(t.TopicID))
	}
	return records
}

// partitions [validate] [timeout=]: a topic per line: name count [1,2 ...]; "none" for an empty list of assignments
func (s *script) partitions(td *datadriven.TestData) []record {
	req := kmsg.NewPtrCreatePartitionsRequest()
	req.SetVersion(3)
	timeout := 1000
	td.MaybeScanArgs(s.t, "timeout", &timeout)
	req.TimeoutMillis, req.ValidateOnly = int32(timeout), td.HasArg("validate")
	for line := range strings.Lines(td.Input) {
		words := strings.Fields(line)
		t := kmsg.NewCreatePartitionsRequestTopic()
		t.Topic, t.Count = words[0], int32(atoi(s.t, words[1]))
		for _, w := range words[2:] {
			if w == "none" {
				t.Assignment = []kmsg.CreatePartitionsRequestTopicAssignment{}
				continue
			}
			a := kmsg.NewCreatePartitionsRequestTopicAssignment()
			if w != "-" {
				a.Replicas = ints(s.t, w)
			}
			t.Assignment = append(t.Assignment, a)
		}
		req.Topics = append(req.Topics, t)
	}
	resp, records := s.d.createPartitions(req)
	for _, t := range resp.Topics {
		s.result("%s", t.ErrorCode, t.ErrorMessage, t.Topic)
	}
	return records
}

// alter, incremental: a resource per line: kind "name" op..., with kind a number, and op key=value for SET, +key=value, -key=value for APPEND
// and SUBTRACT, !key for DELETE, ?key=value for an operation that does not exist; the value <null> is null and · is a blank.
func (s *script) alter(td *datadriven.TestData) []record {
	var as []alteration
	for line := range strings.Lines(td.Input) {
		kind, rest, _ := strings.Cut(strings.TrimSpace(line), " ")
		a := alteration{kind: kmsg.ConfigResourceType(atoi(s.t, kind)), replace: td.Cmd == "alter"}
		a.name, rest = unquoteFirst(rest)
		for _, w := range strings.Fields(rest) {
			op := configOp{key: w}
			if i := strings.IndexByte("+-!?", w[0]); i >= 0 {
				op.op = []kmsg.IncrementalAlterConfigOp{2, 3, 1, 9}[i]
				op.key = w[1:]
			}
			if key, value, ok := strings.Cut(op.key, "="); ok {
				op.key, op.value = key, nullable(strings.ReplaceAll(value, "·", " "))
			}
			a.ops = append(a.ops, op)
		}
		as = append(as, a)
	}
	records := s.d.alterConfigs(as)
	for _, a := range as {
		s.answer("%d %q", a.err, a.kind, a.name)
	}
	return records
}

func showRecord(r record) string {
	switch r := r.(type) {
	case clusterRecord:
		return "cluster " + r.clusterID
	case featureRecord:
		return fmt.Sprintf("feature %s %d", r.name, r.level)
	case brokerRecord:
		return fmt.Sprintf("broker %d life %s", r.broker.ID, shortID(r.broker.Incarnation))
	case topicRecord:
		return fmt.Sprintf("topic %s id %s, %s", r.name, shortID(r.id), showPartitions(r.partitions))
	case partitionsRecord:
		return fmt.Sprintf("partitions of %s from %d, %s", shortID(r.topicID), r.first, showPartitions(r.partitions))
	case removeTopicRecord:
		return "remove topic " + shortID(r.topicID)
	case configRecord:
		value := "(removed)"
		if r.value != nil {
			value = strconv.Quote(*r.value)
		}
		return fmt.Sprintf("config %d %q %s %s", r.resource, r.name, r.key, value)
	case directoryRecord:
		return fmt.Sprintf("directory of %s-%d on %d is %s", shortID(r.topicID), r.index, r.brokerID, shortID(r.dir))
	case logDirsRecord:
		return fmt.Sprintf("log dirs of %d %s", r.brokerID, showDirs(r.dirs))
	case removeBrokerRecord:
		return fmt.Sprintf("remove broker %d", r.id)
	case quotaRecord:
		value := "(removed)"
		if r.value != nil {
			value = fmt.Sprint(*r.value)
		}
		return fmt.Sprintf("quota %s %s %s", showQuotaEntity(r.entity), r.key, value)
	case credentialRecord:
		if r.credential == nil {
			return fmt.Sprintf("credential %q mechanism %d (removed)", r.user, r.mechanism)
		}
		return fmt.Sprintf("credential %q mechanism %d iterations %d stored %x", r.user, r.mechanism, r.credential.Iterations, r.credential.StoredKey[:4])
	case producerIDsRecord:
		return fmt.Sprintf("producer ids for %d epoch %d, next %d", r.brokerID, r.brokerEpoch, r.next)
	}
	return fmt.Sprintf("%#v", r)
}

func showPartitions(ps []Partition) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%d partitions:", len(ps))
	for i, p := range ps[:min(len(ps), 4)] {
		fmt.Fprintf(&b, " %d:%v", i, p.Replicas)
		if len(p.ISR) != len(p.Replicas) {
			fmt.Fprintf(&b, "isr%v", p.ISR)
		}
		if len(p.Directories) > 0 && p.Directories[0] != [16]byte{} {
			b.WriteString("dir")
		}
	}
	return b.String()
}

func nullable(s string) *string {
	if s == "<null>" {
		return nil
	}
	return &s
}

func unquoteFirst(s string) (first, rest string) {
	if prefix, err := strconv.QuotedPrefix(s); err == nil {
		first, _ = strconv.Unquote(prefix)
		return first, strings.TrimSpace(s[len(prefix):])
	}
	first, rest, _ = strings.Cut(s, " ")
	return first, strings.TrimSpace(rest)
}

func atoi(t *testing.T, s string) int {
	t.Helper()
	n, err := strconv.Atoi(s)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

func ints(t *testing.T, s string) (ns []int32) {
	t.Helper()
	if s == "" {
		return nil
	}
	for _, w := range strings.Split(s, ",") {
		ns = append(ns, int32(atoi(t, w)))
	}
	return ns
}
