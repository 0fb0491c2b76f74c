package differential

import (
	"encoding/binary"
	"encoding/hex"
	"errors"
	"fmt"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kmsg"
)

// verb runs a command that is no request of an API.
func (r *runner) verb(c *command) (string, error) {
	words := strings.Fields(c.args)
	arg := func(i int) string {
		if i < len(words) {
			return words[i]
		}
		return ""
	}
	switch c.verb {
	case "wait": // shows the answer of what was only sent before
		if n := arg(0); n != "" {
			c.conn = n
		}
		return r.answer(c, time.Now())
	case "silent": // nothing is answered within the time
		return r.silent(c)
	case "connect": // makes a connection with another client id than its name: Client=text
		return "", r.connect(c.conn, c.args)
	case "close":
		if cn := r.conns[c.conn]; cn != nil {
			cn.sock.Close()
			delete(r.conns, c.conn)
		}
		return "", nil
	case "raw":
		return r.raw(c)
	case "topic": // makes a topic: name, partitions, configs
		return "", r.topic(arg(0), arg(1), words[min(2, len(words)):])
	case "settle": // waits until a transaction has no markers to write
		_, err := r.internal("DescribeTransactions v0 TransactionalIDs=["+c.args+"] | while /Prepare/", c.conn)
		return "", err
	case "warm":
		r.warm()
		return "", nil
	case "restart":
		return "", r.restart(arg(0))
	}
	return "", fmt.Errorf("no such command")
}

// internal runs a command whose answer is not shown, on a connection of its own.
func (r *runner) internal(source, _ string) (string, error) {
	c, err := parseCommand("internal: " + source)
	if err != nil {
		return "", err
	}
	names, seen := r.names, r.seen
	defer func() { r.names, r.seen = names, seen }()
	r.names, r.seen = names.clone(), nil
	return r.execute(c)
}

func (r *runner) clusterID() string {
	req := kmsg.NewPtrMetadataRequest()
	req.Version = 9
	req.Topics = []kmsg.MetadataRequestTopic{}
	c, err := r.conn("internal")
	if err == nil {
		err = c.send(req)
	}
	if err != nil {
		r.t.Fatal(err)
	}
	resp, _, err := c.receive(patience)
	if err != nil {
		r.t.Fatal(err)
	}
	return *resp.(*kmsg.MetadataResponse).ClusterID
}

// warm waits until both coordinators and the first producer ids are there.
func (r *runner) warm() {
	for _, s := range []string{
		"FindCoordinator v4 CoordinatorType=0 CoordinatorKeys=[x] | while /COORDINATOR/",
		"FindCoordinator v4 CoordinatorType=1 CoordinatorKeys=[x] | while /COORDINATOR/",
		"InitProducerID v4 TransactionalID=null | while /COORDINATOR/",
		"InitProducerID v4 TransactionalID=%warm TransactionTimeoutMillis=1000 | while /COORDINATOR/",
		"ListGroups v5 | while /LOAD/",
		"ListTransactions v2 | while /LOAD/",
	} {
		if _, err := r.internal(s, ""); err != nil {
			r.t.Fatalf("%s: %v", s, err)
		}
	}
}

func (r *runner) topic(name, partitions string, configs []string) error {
	var list []string
	for _, kv := range configs {
		k, v, _ := strings.Cut(kv, "=")
		list = append(list, fmt.Sprintf("Name=%s Value=%q", k, v))
	}
	create := fmt.Sprintf("CreateTopics v7 Topics=[Topic=%s NumPartitions=%s ReplicationFactor=1 Configs=[%s]]", name, partitions, strings.Join(list, "; "))
	c, err := parseCommand("internal: " + create)
	if err != nil {
		return err
	}
	seen := r.seen
	r.seen = nil
	defer func() { r.seen = seen }()
	text, err := r.execute(c) // learns the id
	if err == nil && strings.Contains(text, "ErrorCode") {
		err = errors.New(text)
	}
	if err != nil {
		return err
	}
	_, err = r.internal("ListOffsets v7 ReplicaID=-1 Topics=["+everyPartition(name, partitions)+"] | while /ErrorCode/", "")
	return err
}

// changesMetadata are the APIs after whose answer an Apache Kafka needs a moment until other answers agree with it.
var changesMetadata = map[string]bool{
	"CreateTopics": true, "DeleteTopics": true, "CreatePartitions": true, "AlterConfigs": true, "IncrementalAlterConfigs": true,
	"AlterClientQuotas": true, "AlterUserSCRAMCredentials": true, "AlterPartitionAssignments": true, "UpdateFeatures": true,
	"CreateACLs": true, "DeleteACLs": true, "ElectLeaders": true, "AddRaftVoter": true,
}

// catchUp waits until the broker knows all that the controller has decided: also of a topic that is made now.
func (r *runner) catchUp() error {
	r.synced++
	names := r.names
	defer func() { r.names = names }()
	r.names = names.clone()
	return r.topic(fmt.Sprintf("%%catch-up-%d", r.synced), "1", nil)
}

func everyPartition(topic, partitions string) string {
	var ps []string
	var n int
	fmt.Sscan(partitions, &n)
	for i := range n {
		ps = append(ps, fmt.Sprintf("Partition=%d CurrentLeaderEpoch=-1 Timestamp=-1", i))
	}
	return "Topic=" + topic + " Partitions=[" + strings.Join(ps, "; ") + "]"
}

// connect takes Client=TEXT, or Client=null.
func (r *runner) connect(name, args string) error {
	to := struct{ Client *string }{}
	rd := &reader{text: args, names: r.names}
	if err := rd.fillStruct(&to); err != nil {
		return err
	}
	c, err := dial(r.peer.Addr(), to.Client)
	if err == nil {
		r.conns[name] = c
	}
	return err
}

func (r *runner) silent(c *command) (string, error) {
	within, err := time.ParseDuration(c.args)
	if err != nil {
		return "", err
	}
	_, err = r.conns[c.conn].frame(within)
	if errors.Is(err, errNoAnswer) {
		return "", nil
	}
	return "", fmt.Errorf("not silent: %v", err)
}

// raw sends a frame: Key, Version and Client make its header, Tags (hex) its tags, Body (bytes) the rest; Size is told instead of
// the true one; Frame (bytes) is all of it. An answer to what can't be told from Key and Version is shown in hex.
func (r *runner) raw(c *command) (string, error) {
	f := struct {
		Key, Version int16
		Client       *string
		Tags         string
		Body, Frame  []byte
		Size         *int32
	}{Key: -1}
	rd := &reader{text: c.args, names: r.names}
	if err := rd.fillStruct(&f); err != nil {
		return "", err
	}
	cn, err := r.conn(c.conn)
	if err != nil {
		return "", err
	}
	cn.last++
	frame := f.Frame
	if frame == nil {
		tags, err := hex.DecodeString(f.Tags)
		if err != nil {
			return "", err
		}
		rest := append(append(header(f.Key, f.Version, cn.last, f.Client, false), tags...), f.Body...)
		size := uint32(len(rest))
		if f.Size != nil {
			size = uint32(*f.Size)
		}
		frame = append(binary.BigEndian.AppendUint32(nil, size), rest...)
	}
	cn.sent = append(cn.sent, sent{decodable(f.Key, f.Version), cn.last})
	if err := cn.write(frame); err != nil || c.async {
		return "", err
	}
	return r.answer(c, time.Now())
}

// decodable gives a request with the answer of the kind that is to be expected, nil if none is.
func decodable(key, version int16) kmsg.Request {
	req := kmsg.RequestForKey(key)
	if req == nil || (version < 0 || version > req.MaxVersion()) && key != 18 {
		return nil
	}
	req.SetVersion(version)
	return req
}

func (r *runner) restart(how string) error {
	for name, cn := range r.conns {
		cn.sock.Close()
		delete(r.conns, name)
	}
	switch how {
	case "kill":
		r.peer.Kill()
	case "stop":
		r.peer.Stop()
	default:
		return errors.New("want kill or stop")
	}
	r.peer.Restart()
	return nil
}
