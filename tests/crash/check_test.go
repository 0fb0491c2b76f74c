package crash

import (
	"context"
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kadm"
	"github.com/twmb/franz-go/pkg/kgo"

	"oncelog/tests/brokertest"
)

// contents is what read_committed consumers see, by topic and partition.
type contents map[string]map[int32][]*kgo.Record

func (c contents) equal(o contents) bool {
	for topic, ps := range c {
		for p := range int32(partitions) {
			same := slices.EqualFunc(ps[p], o[topic][p], func(a, b *kgo.Record) bool {
				return a.Offset == b.Offset && string(a.Value) == string(b.Value)
			})
			if !same {
				return false
			}
		}
	}
	return true
}

func read(t *testing.T, ctx context.Context, b *brokertest.Broker) contents {
	t.Helper()
	c := contents{}
	for _, topic := range []string{inTopic, outTopic, plainTopic} {
		rs, err := readTopic(ctx, b, topic)
		if err != nil {
			t.Fatalf("read %s: %v", topic, err)
		}
		c[topic] = rs
	}
	return c
}

// readTopic reads what is committed in a topic. With all transactions ended a partition's last offset is that of a marker
// or of a record that anybody sees, so the end shows.
func readTopic(ctx context.Context, b *brokertest.Broker, topic string) (map[int32][]*kgo.Record, error) {
	cl := client(b)
	defer cl.Close()
	ends, err := kadm.NewClient(cl).ListCommittedOffsets(ctx, topic)
	if err == nil {
		err = ends.Error()
	}
	if err != nil {
		return nil, err
	}
	from := map[int32]kgo.Offset{}
	ends.Each(func(o kadm.ListedOffset) {
		if o.Offset > 0 {
			from[o.Partition] = kgo.NewOffset().At(0)
		}
	})
	got := map[int32][]*kgo.Record{}
	if len(from) == 0 {
		return got, nil
	}
	reader := client(b, kgo.ConsumePartitions(map[string]map[int32]kgo.Offset{topic: from}), kgo.KeepControlRecords())
	defer reader.Close()
	// While transactions go on the last offset below the LSO may be of an aborted record, which nobody is given.
	patience, cancel := context.WithTimeout(ctx, 10*time.Second)
	defer cancel()
	for len(from) > 0 {
		fs := reader.PollFetches(patience)
		if patience.Err() != nil {
			return got, ctx.Err()
		}
		if errs := fs.Errors(); len(errs) > 0 {
			return nil, errs[0].Err
		}
		fs.EachRecord(func(r *kgo.Record) {
			end := ends[topic][r.Partition].Offset
			if r.Offset < end && !r.Attrs.IsControl() {
				got[r.Partition] = append(got[r.Partition], r)
			}
			if r.Offset >= end-1 {
				delete(from, r.Partition)
			}
		})
	}
	return got, nil
}

// settle waits until no transaction holds in back, and reads it.
func settle(t *testing.T, ctx context.Context, b *brokertest.Broker) map[int32][]*kgo.Record {
	t.Helper()
	awaitStable(t, ctx, b, inTopic)
	rs, err := readTopic(ctx, b, inTopic)
	if err != nil {
		t.Fatalf("read in: %v", err)
	}
	return rs
}

// awaitStable waits until the last stable offsets of a topic have reached the high watermarks.
func awaitStable(t *testing.T, ctx context.Context, b *brokertest.Broker, topic string) {
	t.Helper()
	cl := client(b)
	defer cl.Close()
	adm := kadm.NewClient(cl)
	for {
		stable, err := adm.ListCommittedOffsets(ctx, topic)
		if err != nil {
			t.Fatalf("stable offsets of %s: %v", topic, err)
		}
		ends, err := adm.ListEndOffsets(ctx, topic)
		if err != nil {
			t.Fatalf("end offsets of %s: %v", topic, err)
		}
		open := ""
		ends.Each(func(o kadm.ListedOffset) {
			if s := stable[topic][o.Partition].Offset; s != o.Offset {
				open = fmt.Sprintf("%s-%d is stable up to %d of %d", topic, o.Partition, s, o.Offset)
			}
		})
		if open == "" {
			return
		}
		if ctx.Err() != nil {
			t.Fatal("a transaction hangs: ", open)
		}
		wait(ctx, 50*time.Millisecond)
	}
}

// checkAll compares what the clients know with what is there.
func checkAll(t *testing.T, l *load, c contents) {
	t.Helper()
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, f := range l.faults {
		t.Error(f)
	}
	checkTransactions(t, l.transactions, c[inTopic])
	checkCopies(t, c[inTopic], c[outTopic])
	if got := valuesOf(c[plainTopic][0]); !slices.Equal(got, l.acked) {
		t.Errorf("plain: %s", difference(got, l.acked))
	}
	for topic, seen := range l.seen {
		there := map[place]string{}
		for p, rs := range c[topic] {
			for _, r := range rs {
				there[place{p, r.Offset}] = string(r.Value)
			}
		}
		for at, v := range seen {
			if there[at] != v {
				t.Errorf("%s-%d at %d: a reader saw %.40q, now it is %.40q", topic, at.partition, at.offset, v, there[at])
			}
		}
	}
}

func valuesOf(rs []*kgo.Record) []string {
	var vs []string
	for _, r := range rs {
		vs = append(vs, string(r.Value))
	}
	return vs
}

// difference shows where two lists part.
func difference(got, want []string) string {
	for i := range min(len(got), len(want)) {
		if got[i] != want[i] {
			return fmt.Sprintf("record %d is %.40q, want %.40q", i, got[i], want[i])
		}
	}
	return fmt.Sprintf("%d records, want %d", len(got), len(want))
}

// checkTransactions: each committed transaction is there whole, once and in order, no aborted one at all, and one of which
// nobody knows in all of its partitions or in none.
func checkTransactions(t *testing.T, known map[string]*transaction, in map[int32][]*kgo.Record) {
	t.Helper()
	found := map[string]map[int32][]string{}
	for p, rs := range in {
		newest := map[string]int{}
		for _, r := range rs {
			writer, number, name := parse(t, string(r.Value))
			if number < newest[writer] {
				t.Errorf("in-%d at %d: transaction %d of %s after %d", p, r.Offset, number, writer, newest[writer])
			}
			newest[writer] = number
			if found[name] == nil {
				found[name] = map[int32][]string{}
			}
			found[name][p] = append(found[name][p], string(r.Value))
		}
	}
	for name, tx := range known {
		there := found[name]
		delete(found, name)
		switch {
		case len(there) == 0 && tx.fate != committed:
		case len(there) == 0:
			t.Errorf("%s was committed and is lost", name)
		case tx.fate == aborted:
			t.Errorf("%s was not committed and is seen: %v", name, there)
		default:
			for p, want := range tx.records {
				if !slices.Equal(there[p], want) {
					t.Errorf("%s in partition %d: %s", name, p, difference(there[p], want))
				}
			}
		}
	}
	for name := range found {
		t.Errorf("%s was never written", name)
	}
}

// parse takes a value apart: writer-1/17/2/0 xxxx.
func parse(t *testing.T, value string) (writer string, number int, name string) {
	t.Helper()
	id, _, _ := strings.Cut(value, " ")
	writer, rest, _ := strings.Cut(id, "/")
	var p, i int
	if _, err := fmt.Sscanf(rest, "%d/%d/%d", &number, &p, &i); err != nil {
		t.Fatalf("value %q: %v", value, err)
	}
	return writer, number, fmt.Sprintf("%s/%d", writer, number)
}

// checkCopies: out has each record of in once, in the same partition and order, though every copier was killed with
// transactions open and offsets in them.
func checkCopies(t *testing.T, in, out map[int32][]*kgo.Record) {
	t.Helper()
	for p := range int32(partitions) {
		var want []string
		for _, r := range in[p] {
			want = append(want, fmt.Sprintf("%d %s", r.Offset, r.Value))
		}
		var got []string
		for _, r := range out[p] {
			got = append(got, fmt.Sprintf("%s %s", r.Key, r.Value))
		}
		if !slices.Equal(got, want) {
			t.Errorf("out-%d: %s", p, difference(got, want))
		}
	}
}
