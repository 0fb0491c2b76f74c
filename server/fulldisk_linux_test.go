package server

import (
	"errors"
	"fmt"
	"os"
	"strings"
	"syscall"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/protocol"
)

// smallDisk is a file system of its own, of some MiB.
func smallDisk(t *testing.T, mib int) string {
	t.Helper()
	dir := t.TempDir()
	if err := syscall.Mount("tmpfs", dir, "tmpfs", 0, fmt.Sprintf("size=%dm", mib)); err != nil {
		t.Skip("needs the right to mount: ", err)
	}
	t.Cleanup(func() {
		if err := syscall.Unmount(dir, 0); err != nil {
			t.Error(err)
		}
	})
	return dir
}

// fillDisk takes all the room that is left.
func fillDisk(t *testing.T, dir string) (free func()) {
	t.Helper()
	f, err := os.CreateTemp(dir, ".filler-")
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for chunk := make([]byte, 4096); err == nil; {
		_, err = f.Write(chunk)
	}
	return func() {
		if err := os.Remove(f.Name()); err != nil {
			t.Error(err)
		}
	}
}

// On a full disk appends and changes of metadata are refused with errors that clients try again, reads go on, and all works again without a
// restart once there is room: records, topics, transactions.
func TestFullDiskEndToEnd(t *testing.T) {
	for _, setting := range []string{"log.flush.interval.messages=1000", "log.flush.interval.messages=1"} {
		t.Run(setting, func(t *testing.T) {
			disk := smallDisk(t, 64)
			s := startServer(t, "log.dirs="+disk, setting)
			c := dial(t, s)
			c.createTopic("t", 1)
			b := func() []byte { return batch(t, 1, 20000) }
			next := int64(0)
			for range 5 {
				if got := c.produce("t", 0, b()); got != next {
					t.Fatalf("offset %d, want %d", got, next)
				}
				next++
			}
			frees := []func(){fillDisk(t, disk)}
			for refused := 0; refused < 5; {
				for _, acks := range []int16{-1, 1} {
					p := do[*kmsg.ProduceResponse](c, produceRequest(9, "t", 0, acks, b())).Topics[0].Partitions[0]
					switch p.ErrorCode {
					case 0: // a page was left
						next++
					case kerr.KafkaStorageError.Code:
						refused++
					default:
						t.Fatalf("produce: error %d", p.ErrorCode)
					}
				}
			}
			if got := fetchedEnd(c, "t"); got != next {
				t.Errorf("read up to %d, want %d", got, next)
			}
			create := func(name string) error {
				req := kmsg.NewPtrCreateTopicsRequest()
				req.Version, req.TimeoutMillis = 7, 10000
				rt := kmsg.NewCreateTopicsRequestTopic()
				rt.Topic, rt.NumPartitions, rt.ReplicationFactor = name, 1, 1
				req.Topics = append(req.Topics, rt)
				return kerr.ErrorForCode(do[*kmsg.CreateTopicsResponse](c, req).Topics[0].ErrorCode)
			}
			for i := 0; ; i++ {
				frees = append(frees, fillDisk(t, disk)) // what the metadata's reserve gives up is gone at once
				err := create(fmt.Sprint("more-", i))
				if errors.Is(err, kerr.KafkaStorageError) {
					break
				}
				if err != nil {
					t.Fatal(err)
				}
			}
			if got := fetchedEnd(c, "t"); got != next {
				t.Errorf("read up to %d, want %d", got, next)
			}
			for _, free := range frees {
				free()
			}
			if got := c.produce("t", 0, b()); got != next {
				t.Errorf("offset %d, want %d", got, next)
			}
			if err := create("again"); err != nil {
				t.Error(err)
			}
			c.produce("again", 0, b())
			if got := fetchedEnd(c, "t"); got != next+1 {
				t.Errorf("read up to %d, want %d", got, next+1)
			}
		})
	}
}

// Coordinators refuse as well what they can't write, and know on as much as they had written.
func TestCoordinatorsOnAFullDisk(t *testing.T) {
	disk := smallDisk(t, 64)
	s := startServer(t, "log.dirs="+disk, "transaction.state.log.segment.bytes=1048576", "offsets.topic.segment.bytes=1048576")
	c := dial(t, s)
	c.createTopic("t", 1)
	initialize := func() error {
		init := kmsg.NewPtrInitProducerIDRequest()
		init.Version, init.TransactionTimeoutMillis, init.TransactionalID = 4, 60000, kmsg.StringPtr("id")
		return kerr.ErrorForCode(do[*kmsg.InitProducerIDResponse](c, init).ErrorCode)
	}
	commit := func(metadata string) error {
		req := kmsg.NewPtrOffsetCommitRequest()
		req.Version, req.Group = 8, "g"
		rt, rp := kmsg.NewOffsetCommitRequestTopic(), kmsg.NewOffsetCommitRequestTopicPartition()
		rp.Offset, rp.Metadata = 1, &metadata
		rt.Topic, rt.Partitions = "t", append(rt.Partitions, rp)
		req.Topics = append(req.Topics, rt)
		return kerr.ErrorForCode(do[*kmsg.OffsetCommitResponse](c, req).Topics[0].Partitions[0].ErrorCode)
	}
	find := func(kind int8) {
		req := kmsg.NewPtrFindCoordinatorRequest()
		req.Version, req.CoordinatorType, req.CoordinatorKeys = 4, kind, []string{"id"}
		waitFor(t, "the coordinator", func() bool { return do[*kmsg.FindCoordinatorResponse](c, req).Coordinators[0].ErrorCode == 0 })
	}
	find(0)
	find(1)
	works := func(do func() error) func() bool { return func() bool { return do() == nil } }
	both := []func() error{initialize, func() error { return commit(strings.Repeat("m", 4000)) }}
	for _, do := range both {
		waitFor(t, "the coordinators", works(do))
	}
	free := fillDisk(t, disk)
	for _, do := range both {
		err := do()
		for range 1000 { // a page may be left
			if err != nil {
				break
			}
			err = do()
		}
		if err == nil || !kerr.IsRetriable(err) {
			t.Errorf("on a full disk: %v", err)
		}
	}
	free()
	for _, do := range both {
		waitFor(t, "the coordinators", works(do))
	}
}

// fetchedEnd reads partition 0 of a topic from its begin, and gives the offset behind.
func fetchedEnd(c *client, topic string) (end int64) {
	c.t.Helper()
	for {
		p := do[*kmsg.FetchResponse](c, fetchRequest(11, topic, end, 0)).Topics[0].Partitions[0]
		if p.ErrorCode != 0 {
			c.t.Fatalf("fetch: error %d", p.ErrorCode)
		}
		if len(p.RecordBatches) == 0 {
			return end
		}
		for rest := p.RecordBatches; len(rest) > 0; {
			b, more, err := protocol.SplitBatch(rest)
			if err != nil {
				break // cut off by a limit
			}
			end, rest = b.Header().LastOffset()+1, more
		}
	}
}
