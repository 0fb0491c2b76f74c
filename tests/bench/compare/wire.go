package main

import (
	"context"
	"encoding/binary"
	"errors"
	"fmt"
	"io/fs"
	"net"
	"path/filepath"
	"strings"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/protocol"
)

const (
	answerPatience = 2 * time.Minute
	answerMaxBytes = 256 << 20
	produceVersion = 9
)

// wire is a connection without a client library around it: what it costs is next to nothing, so that the broker is measured.
type wire struct {
	conn       net.Conn
	in         []byte
	start, end int // what has been read and not looked at yet
}

func dial(ctx context.Context, address string) (*wire, error) {
	conn, err := new(net.Dialer).DialContext(ctx, "tcp", address)
	if err != nil {
		return nil, err
	}
	return &wire{conn: conn, in: make([]byte, 4096)}, nil
}

func (w *wire) close() { w.conn.Close() }

// frame encodes a request. The correlation id, which is not looked at, is that of no other.
func frame(req kmsg.Request) []byte {
	return kmsg.NewRequestFormatter(kmsg.FormatterClientID("compare")).AppendRequest(nil, req, 1)
}

// send writes a frame.
func (w *wire) send(frame []byte) error {
	_, err := w.conn.Write(frame)
	return err
}

// receive reads one answer, header and all, which is good until the next call.
func (w *wire) receive() ([]byte, error) {
	if err := w.fill(4); err != nil {
		return nil, err
	}
	size := int(binary.BigEndian.Uint32(w.in[w.start:]))
	if size > answerMaxBytes {
		return nil, fmt.Errorf("answer of %d bytes", size)
	}
	if err := w.fill(4 + size); err != nil {
		return nil, err
	}
	answer := w.in[w.start+4 : w.start+4+size]
	w.start += 4 + size
	return answer, nil
}

// fill reads until n bytes are there.
func (w *wire) fill(n int) error {
	if w.start == w.end {
		w.start, w.end = 0, 0
	}
	if len(w.in)-w.start < n {
		in := w.in
		if len(in) < n {
			in = make([]byte, n)
		}
		w.end = copy(in, w.in[w.start:w.end])
		w.in, w.start = in, 0
	}
	for w.end-w.start < n {
		m, err := w.conn.Read(w.in[w.end:])
		w.end += m
		if err != nil {
			return err
		}
	}
	return nil
}

// decode reads the answer to a request of resp's kind and version.
func decode(answer []byte, resp kmsg.Response) error {
	skip := 4
	if resp.IsFlexible() && resp.Key() != int16(kmsg.ApiVersions) {
		skip = 5
	}
	return resp.ReadFrom(answer[skip:])
}

// ask sends a request and waits for its answer.
func (w *wire) ask(req kmsg.Request) (kmsg.Response, error) {
	if err := w.send(frame(req)); err != nil {
		return nil, err
	}
	answer, err := w.receive()
	if err != nil {
		return nil, err
	}
	resp := req.ResponseKind()
	resp.SetVersion(req.GetVersion())
	return resp, decode(answer, resp)
}

// createTopic makes a topic and waits until each of its partitions answers.
func (b *bed) createTopic(ctx context.Context, partitions int, configs ...string) (name string, err error) {
	name = fmt.Sprint("compare-", time.Now().UnixNano())
	w, err := dial(ctx, b.address)
	if err != nil {
		return "", err
	}
	defer w.close()
	t := kmsg.NewCreateTopicsRequestTopic()
	t.Topic, t.NumPartitions, t.ReplicationFactor = name, int32(partitions), 1
	for i := 0; i+1 < len(configs); i += 2 {
		c := kmsg.NewCreateTopicsRequestTopicConfig()
		c.Name, c.Value = configs[i], &configs[i+1]
		t.Configs = append(t.Configs, c)
	}
	req := kmsg.NewPtrCreateTopicsRequest()
	req.Version, req.TimeoutMillis, req.Topics = 5, int32(answerPatience.Milliseconds()), []kmsg.CreateTopicsRequestTopic{t}
	resp, err := w.ask(req)
	if err != nil {
		return "", err
	}
	if err := kerr.ErrorForCode(resp.(*kmsg.CreateTopicsResponse).Topics[0].ErrorCode); err != nil {
		return "", err
	}
	return name, b.awaitTopic(ctx, w, name, partitions)
}

// awaitTopic waits until all partitions of a topic can be read from.
func (b *bed) awaitTopic(ctx context.Context, w *wire, name string, partitions int) error {
	req := kmsg.NewPtrListOffsetsRequest()
	req.Version, req.ReplicaID = 5, -1
	t := kmsg.NewListOffsetsRequestTopic()
	t.Topic = name
	for p := range partitions {
		row := kmsg.NewListOffsetsRequestTopicPartition()
		row.Partition, row.Timestamp, row.CurrentLeaderEpoch = int32(p), -1, -1
		t.Partitions = append(t.Partitions, row)
	}
	req.Topics = append(req.Topics, t)
	for {
		resp, err := w.ask(req)
		if err != nil {
			return err
		}
		ready := true
		for _, p := range resp.(*kmsg.ListOffsetsResponse).Topics[0].Partitions {
			ready = ready && p.ErrorCode == 0
		}
		if ready {
			return nil
		}
		if err := pause(ctx, 10*time.Millisecond); err != nil {
			return err
		}
	}
}

// deleteTopic removes a topic and waits until its folders are gone, so that the next load finds an empty disk and a broker with nothing left to do.
func (b *bed) deleteTopic(ctx context.Context, name string) error {
	w, err := dial(ctx, b.address)
	if err != nil {
		return err
	}
	defer w.close()
	req := kmsg.NewPtrDeleteTopicsRequest()
	req.Version, req.TimeoutMillis, req.TopicNames = 5, int32(answerPatience.Milliseconds()), []string{name}
	resp, err := w.ask(req)
	if err != nil {
		return err
	}
	if err := kerr.ErrorForCode(resp.(*kmsg.DeleteTopicsResponse).Topics[0].ErrorCode); err != nil {
		return err
	}
	return b.awaitRemoval(ctx, name)
}

// awaitRemoval waits until no folder of the broker begins with the topic's name: deleted ones are renamed first.
func (b *bed) awaitRemoval(ctx context.Context, name string) error {
	ctx, cancel := context.WithTimeout(ctx, answerPatience)
	defer cancel()
	for {
		found := false
		err := filepath.WalkDir(b.broker.dir, func(_ string, d fs.DirEntry, err error) error {
			if errors.Is(err, fs.ErrNotExist) {
				return nil // removed meanwhile
			}
			if err == nil && d.IsDir() && strings.HasPrefix(d.Name(), name) {
				found = true
				return fs.SkipAll
			}
			return err
		})
		if err != nil || !found {
			return err
		}
		if err := pause(ctx, 100*time.Millisecond); err != nil {
			return fmt.Errorf("folders of %s are not removed: %w", name, err)
		}
	}
}

// produceFrame is a Produce request of one batch of records of the same value.
func produceFrame(topic string, partition int32, acks int16, value []byte, records int) ([]byte, error) {
	batch, err := batchOf(time.Now().UnixMilli(), value, records)
	if err != nil {
		return nil, err
	}
	return batchFrame(topic, partition, acks, batch), nil
}

func batchOf(timestamp int64, value []byte, records int) (protocol.Batch, error) {
	list := make([]protocol.Record, records)
	for i := range list {
		list[i] = protocol.Record{Value: value}
	}
	return protocol.AppendBatch(nil, protocol.BatchSpec{LeaderEpoch: -1, BaseTimestamp: timestamp, ProducerID: -1, ProducerEpoch: -1}, list)
}

// batchFrame is a Produce request of a batch.
func batchFrame(topic string, partition int32, acks int16, batch protocol.Batch) []byte {
	req := kmsg.NewPtrProduceRequest()
	req.Version, req.Acks, req.TimeoutMillis = produceVersion, acks, int32(answerPatience.Milliseconds())
	p := kmsg.NewProduceRequestTopicPartition()
	p.Partition, p.Records = partition, batch
	req.Topics = []kmsg.ProduceRequestTopic{{Topic: topic, Partitions: []kmsg.ProduceRequestTopicPartition{p}}}
	return frame(req)
}
