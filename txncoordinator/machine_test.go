package txncoordinator

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strconv"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/cockroachdb/datadriven"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/coordinator"
	"oncelog/coordinator/coordinatortest"
	"oncelog/protocol"
)

// world runs one machine as a node would, on a log in memory and a clock that stands still between commands. Its markers
// are acknowledged by hand.
type world struct {
	t        *testing.T
	host     *coordinator.Host[*Machine]
	log      *coordinatortest.Log
	epoch    int32
	settings Settings
	nextID   int64
	noIDs    bool
	owed     []*Markers
	waiting  []waiting
	calls    int
	printed  int64 // offset of the next record to print
}

type waiting struct {
	n       int
	pending coordinator.Pending
}

func newWorld(t *testing.T) *world {
	w := &world{
		t: t, log: &coordinatortest.Log{}, nextID: 1000,
		settings: Settings{
			TransactionVersion: 2, TimeoutInterval: 10 * time.Second,
			Expiration: 7 * 24 * time.Hour, ExpirationInterval: time.Hour,
		},
	}
	w.start()
	return w
}

func (w *world) start() {
	w.host = coordinator.NewHost(coordinator.Options[*Machine]{
		Topic: "__transaction_state",
		New: func(partition, epoch int32) *Machine {
			return New(Options{CoordinatorEpoch: epoch, NextProducerID: w.producerID, Settings: func() Settings { return w.settings }})
		},
		Effects: func(_ *Shard, effects []any) {
			for _, e := range effects {
				w.owed = append(w.owed, e.(*Markers))
			}
		},
		Logger: slog.New(slog.DiscardHandler),
	})
	w.host.Load(0, w.epoch, w.log)
	synctest.Wait()
}

func (w *world) producerID() (int64, error) {
	if w.noIDs {
		return 0, kerr.CoordinatorLoadInProgress
	}
	w.nextID++
	return w.nextID - 1, nil
}

func (w *world) restart() {
	w.log.Depose()
	w.host.Unload(0, w.epoch)
	w.host.Close()
	w.owed = nil
	w.log = w.log.Next(true)
	w.epoch += 2
	w.start()
}

func (w *world) shard() *Shard {
	s, err := w.host.Get(0)
	if err != nil {
		w.t.Fatal(err)
	}
	return s
}

// do runs an operation, and tells its answer or that it waits.
func (w *world) do(op func(m *Machine, now time.Time, to coordinator.Token) coordinator.Output) string {
	w.calls++
	p := w.shard().Do(op)
	synctest.Wait()
	if !p.Ready() {
		w.waiting = append(w.waiting, waiting{w.calls, p})
		return fmt.Sprintf("waits as #%d\n", w.calls)
	}
	return answerText(p) + "\n"
}

func answerText(p coordinator.Pending) string {
	v, err := p.Await(context.Background())
	if err != nil {
		if known, ok := errors.AsType[*kerr.Error](err); ok {
			return fmt.Sprintf("%s (%d)", known.Message, known.Code)
		}
		return err.Error()
	}
	switch v := v.(type) {
	case nil:
		return "ok"
	case Producer:
		return fmt.Sprintf("ok %d/%d", v.ID, v.Epoch)
	case Partitions:
		return "absent: " + partitionsText(v)
	case kmsg.DescribeTransactionsResponseTransactionState:
		var p Partitions
		for _, t := range v.Topics {
			p = append(p, Topic{t.Topic, t.Partitions})
		}
		return fmt.Sprintf("%s %d/%d timeout=%d start=%s %s", v.State, v.ProducerID, v.ProducerEpoch, v.TimeoutMillis,
			timeText(v.StartTimestamp), partitionsText(p))
	case []kmsg.ListTransactionsResponseTransactionState:
		var b strings.Builder
		for _, row := range v {
			fmt.Fprintf(&b, "%s %d %s\n", row.TransactionalID, row.ProducerID, row.TransactionState)
		}
		return strings.TrimSuffix(b.String(), "\n")
	}
	return fmt.Sprint(v)
}

func partitionsText(p Partitions) string {
	var names []string
	for _, t := range p {
		for _, partition := range t.Partitions {
			names = append(names, fmt.Sprintf("%s-%d", t.Name, partition))
		}
	}
	return "[" + strings.Join(names, " ") + "]"
}

// timeText is a time since the start of the test's clock.
func timeText(millis int64) string {
	if millis < 0 {
		return strconv.FormatInt(millis, 10)
	}
	return time.UnixMilli(millis).Sub(time.Date(2000, 1, 1, 0, 0, 0, 0, time.UTC)).String()
}

func recordText(r coordinator.KeyValue) string {
	id, ok, err := decodeKey(r.Key)
	if err != nil || !ok {
		return fmt.Sprintf("key %x: %v", r.Key, err)
	}
	if r.Value == nil {
		return id + ": forgotten"
	}
	m, err := decodeValue(r.Value)
	if err != nil {
		return fmt.Sprintf("%s: %v", id, err)
	}
	text := fmt.Sprintf("%s: %v %d/%d", id, m.state, m.producerID, m.epoch)
	if m.lastEpoch != noEpoch {
		text += fmt.Sprintf(" last=%d", m.lastEpoch)
	}
	if m.previousProducerID != m.producerID {
		text += fmt.Sprintf(" previous=%d", m.previousProducerID)
	}
	if m.nextProducerID != noProducerID {
		text += fmt.Sprintf(" next=%d", m.nextProducerID)
	}
	return text + fmt.Sprintf(" client=%d timeout=%d start=%s updated=%s %s", m.clientVersion, m.timeoutMillis,
		timeText(m.startMillis), timeText(m.updateMillis), partitionsText(m.partitions))
}

// news tells of records, markers and late answers since the last command.
func (w *world) news() string {
	var b strings.Builder
	for batch := range w.log.Batches(w.printed) {
		h := batch.Header()
		if h.BaseSequence != 0 || h.ProducerID != -1 {
			w.t.Errorf("batch %+v", h)
		}
		records := batch.Records(1 << 20)
		for records.Next() {
			r := records.Record()
			fmt.Fprintf(&b, "log %s\n", recordText(coordinator.KeyValue{Key: r.Key, Value: r.Value}))
		}
		records.Close()
		w.printed = h.LastOffset() + 1
	}
	w.waiting = slices.DeleteFunc(w.waiting, func(c waiting) bool {
		if c.pending.Ready() {
			fmt.Fprintf(&b, "#%d: %s\n", c.n, answerText(c.pending))
		}
		return c.pending.Ready()
	})
	return b.String()
}

func (w *world) owedText() string {
	var b strings.Builder
	for _, m := range w.owed {
		kind := "abort"
		if m.Commit {
			kind = "commit"
		}
		fmt.Fprintf(&b, "%s %s %d/%d coordinator=%d version=%d %s\n", m.TransactionalID, kind, m.Producer.ID, m.Producer.Epoch,
			m.CoordinatorEpoch, m.TransactionVersion, partitionsText(m.Partitions))
	}
	return b.String()
}

// checkFold compares the machine with a fresh one that replays the log.
func (w *world) checkFold() {
	w.t.Helper()
	got := map[string]string{}
	w.shard().Tell(func(m *Machine, _ time.Time) coordinator.Output {
		got = m.hardState()
		return coordinator.Output{}
	})
	synctest.Wait()
	fresh := New(Options{Settings: func() Settings { return w.settings }})
	if err := replayAll(fresh, w.log); err != nil {
		w.t.Fatal(err)
	}
	if want := fresh.hardState(); !maps.Equal(got, want) {
		w.t.Errorf("machine is not the fold of its log:\n%v\nfold:\n%v", got, want)
	}
}

func replayAll(m *Machine, log coordinator.Log) error {
	for b, err := range log.Batches(0) {
		if err != nil {
			return err
		}
		records := b.Records(1 << 20)
		for records.Next() {
			r := records.Record()
			if err := m.Replay(b.Header().BaseOffset+int64(r.OffsetDelta), coordinator.Record{Key: r.Key, Value: r.Value}); err != nil {
				return err
			}
		}
		records.Close()
	}
	return nil
}

// hardState is all that is in the log, readable.
func (m *Machine) hardState() map[string]string {
	s := make(map[string]string)
	for id, t := range m.txns {
		if t.epoch != noEpoch {
			s[id] = fmt.Sprintf("%+v", t.metadata)
		}
	}
	return s
}

// TestScripts runs the scripts in testdata/script: requests, what they are answered, and what gets into the log.
func TestScripts(t *testing.T) {
	datadriven.Walk(t, "testdata/script", func(t *testing.T, path string) {
		synctest.Test(t, func(t *testing.T) {
			w := newWorld(t)
			defer func() { w.host.Close() }()
			datadriven.RunTest(t, path, func(t *testing.T, d *datadriven.TestData) string {
				w.t = t
				out := w.command(t, d)
				synctest.Wait()
				w.checkFold()
				if d.HasArg("quiet") {
					w.news()
					return "ok\n"
				}
				if out += w.news(); out == "" {
					return "ok\n"
				}
				return out
			})
		})
	})
}

func (w *world) command(t *testing.T, d *datadriven.TestData) string {
	switch d.Cmd {
	case "init", "add", "end", "verify", "describe", "list":
		return w.request(t, d)
	case "mark":
		return w.mark(t, d)
	case "owed":
		return w.owedText()
	case "advance":
		by, err := time.ParseDuration(d.CmdArgs[0].Key)
		if err != nil {
			t.Fatal(err)
		}
		<-time.After(by)
	case "restart":
		w.restart()
	case "seed":
		w.seed(t, d)
	case "hold":
		w.log.Hold()
	case "commit":
		w.log.Commit()
	case "fail":
		w.log.Fail(kerr.NotEnoughReplicas)
	case "mend":
		w.log.Fail(nil)
	case "set":
		w.set(t, d)
	default:
		t.Fatalf("unknown command %q", d.Cmd)
	}
	return ""
}

func (w *world) set(t *testing.T, d *datadriven.TestData) {
	for _, a := range d.CmdArgs {
		switch a.Key {
		case "level":
			level, _ := strconv.ParseInt(a.Vals[0], 10, 16)
			w.settings.TransactionVersion = int16(level)
		case "ids":
			w.noIDs = a.Vals[0] == "no"
		default:
			t.Fatalf("unknown setting %q", a.Key)
		}
	}
}

// seed restarts the coordinator on a log that has one more record.
func (w *world) seed(t *testing.T, d *datadriven.TestData) {
	a := parseArguments(t, d)
	now := time.Now().UnixMilli()
	m := metadata{
		producerID: a.producer.ID, previousProducerID: a.producer.ID, nextProducerID: noProducerID,
		epoch: a.producer.Epoch, lastEpoch: noEpoch, timeoutMillis: a.timeout, updateMillis: now, startMillis: -1,
	}
	b, err := protocol.AppendBatch(nil, protocol.BatchSpec{BaseTimestamp: now, MaxTimestamp: now, ProducerID: -1, ProducerEpoch: -1},
		[]protocol.Record{{Key: encodeKey(a.id), Value: encodeValue(&m, 1)}})
	if err != nil {
		t.Fatal(err)
	}
	w.log.Put(b)
	w.restart()
}

// arguments of a request.
type arguments struct {
	id         string
	producer   Producer
	partitions Partitions
	version    int16
	wait       time.Duration
	timeout    int32
	commit     bool
}

func parseArguments(t *testing.T, d *datadriven.TestData) arguments {
	a := arguments{producer: NoProducer, timeout: 60000, commit: d.HasArg("commit")}
	if d.HasArg("v2") {
		a.version = 2
	}
	for i, arg := range d.CmdArgs {
		switch {
		case i == 0:
			a.id = arg.Key
		case strings.Contains(arg.Key, "/"):
			id, epoch, _ := strings.Cut(arg.Key, "/")
			a.producer.ID, _ = strconv.ParseInt(id, 10, 64)
			e, _ := strconv.ParseInt(epoch, 10, 16)
			a.producer.Epoch = int16(e)
		case strings.Contains(arg.Key, "-"):
			a.partitions = a.partitions.with(parsePartition(arg.Key))
		case arg.Key == "wait":
			wait, err := time.ParseDuration(arg.Vals[0])
			if err != nil {
				t.Fatal(err)
			}
			a.wait = wait
		case arg.Key == "timeout":
			timeout, _ := strconv.ParseInt(arg.Vals[0], 10, 32)
			a.timeout = int32(timeout)
		}
	}
	return a
}

func parsePartition(s string) (string, int32) {
	i := strings.LastIndexByte(s, '-')
	p, _ := strconv.ParseInt(s[i+1:], 10, 32)
	return s[:i], int32(p)
}

func (w *world) request(t *testing.T, d *datadriven.TestData) string {
	a := parseArguments(t, d)
	return w.do(func(m *Machine, now time.Time, to coordinator.Token) coordinator.Output {
		switch d.Cmd {
		case "init":
			return m.InitProducerID(now, to, InitProducerID{a.id, a.timeout, a.producer, a.wait})
		case "add":
			return m.AddPartitions(now, to, AddPartitions{a.id, a.producer, a.partitions, a.version, a.wait})
		case "verify":
			return m.Verify(now, to, Verify{a.id, a.producer, a.partitions})
		case "end":
			return m.EndTxn(now, to, EndTxn{a.id, a.producer, a.commit, a.version, a.wait})
		case "describe":
			return m.Describe(now, to, a.id)
		}
		return m.List(now, to, Filter{LongerThan: -1})
	})
}

// mark acknowledges the markers of an id, all or those named.
func (w *world) mark(t *testing.T, d *datadriven.TestData) string {
	a := parseArguments(t, d)
	for i, m := range w.owed {
		if m.TransactionalID != a.id {
			continue
		}
		if a.partitions == nil {
			a.partitions = m.Partitions
		}
		rest := *m
		if rest.Partitions = m.Partitions.minus(a.partitions); len(rest.Partitions) > 0 {
			w.owed[i] = &rest
		} else {
			w.owed = slices.Delete(w.owed, i, i+1)
		}
		w.shard().Tell(func(machine *Machine, now time.Time) coordinator.Output { return machine.Marked(now, m, a.partitions) })
		return ""
	}
	return "no markers are owed\n"
}
