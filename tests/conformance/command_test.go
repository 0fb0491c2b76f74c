package conformance

import (
	"bytes"
	"context"
	"fmt"
	"io"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/twmb/franz-go/pkg/kgo"

	"oncelog/tests/brokertest"
)

// refused runs the binary until it ends, which it must do with code 1 and one line on standard error.
func refused(t *testing.T, args ...string) (line string) {
	t.Helper()
	ctx := within(t, 20*time.Second)
	var stderr bytes.Buffer
	cmd := exec.CommandContext(ctx, brokertest.Binary(t), args...)
	cmd.Dir, cmd.Stderr = t.TempDir(), &stderr
	err := cmd.Run()
	var lines []string
	for l := range strings.Lines(stderr.String()) {
		if strings.HasPrefix(l, "broker: ") {
			lines = append(lines, l)
		}
	}
	if cmd.ProcessState.ExitCode() != 1 || len(lines) != 1 {
		t.Fatalf("%v: %v\n%s", args, err, stderr.String())
	}
	return lines[0]
}

func setting(kv ...string) (args []string) {
	for _, s := range kv {
		args = append(args, "--set", s)
	}
	return args
}

// What a broker cannot have (a directory that another uses, a port that is taken) ends it with one line that names it, and
// leaves the other alone.
func TestSecondBrokerIsRefused(t *testing.T) {
	brokertest.NeedOwn(t)
	b := brokertest.Start(t, settings...)
	topic := newTopic(t, b, 1, nil)
	if line := refused(t, setting("listeners=PLAINTEXT://127.0.0.1:0", "http.listener=", "log.dirs="+b.Dir())...); !strings.Contains(line, b.Dir()) {
		t.Errorf("the same directory: %s", line)
	}
	if line := refused(t, setting("listeners=PLAINTEXT://"+b.Addr(), "http.listener=")...); !strings.Contains(line, b.Addr()) {
		t.Errorf("the same port: %s", line)
	}
	address := strings.TrimPrefix(b.URL(), "http://")
	if line := refused(t, setting("listeners=PLAINTEXT://127.0.0.1:0", "http.listener="+address)...); !strings.Contains(line, address) {
		t.Errorf("the same HTTP port: %s", line)
	}
	mustProduce(t, within(t, 10*time.Second), newClient(t, b), record(topic, 0, "still there"))
}

// The health command tells a broker that works from one that is gone.
func TestHealthCommand(t *testing.T) {
	brokertest.NeedOwn(t)
	b := brokertest.Start(t, settings...)
	if out, err := exec.Command(brokertest.Binary(t), "health", b.URL()).CombinedOutput(); err != nil || string(out) != "ready\n" {
		t.Errorf("health: %v %s", err, out)
	}
	b.Kill()
	if out, err := exec.Command(brokertest.Binary(t), "health", b.URL()).CombinedOutput(); err == nil {
		t.Errorf("health of a dead broker: %s", out)
	}
	b.Restart()
}

// Kafka's own file for a single node starts the broker, and the environment comes before it.
func TestKafkasPropertiesFile(t *testing.T) {
	brokertest.NeedOwn(t)
	dir := t.TempDir()
	file := filepath.Join(dir, "server.properties")
	text := `# The role of this server
process.roles=broker,controller
node.id=3
controller.quorum.bootstrap.servers=localhost:9093
listeners=PLAINTEXT://127.0.0.1:0,CONTROLLER://127.0.0.1:0
inter.broker.listener.name=PLAINTEXT
advertised.listeners=PLAINTEXT://127.0.0.1:9092,CONTROLLER://127.0.0.1:9093
controller.listener.names=CONTROLLER
listener.security.protocol.map=CONTROLLER:PLAINTEXT,PLAINTEXT:PLAINTEXT,SSL:SSL,SASL_PLAINTEXT:SASL_PLAINTEXT,SASL_SSL:SASL_SSL
num.network.threads=3
num.io.threads=8
socket.send.buffer.bytes=102400
log.dirs=` + filepath.Join(dir, "kraft-combined-logs") + `
num.partitions=2
offsets.topic.replication.factor=1
share.coordinator.state.topic.replication.factor=1
transaction.state.log.replication.factor=1
transaction.state.log.min.isr=1
log.retention.hours=168
log.segment.bytes=1073741824
`
	if err := os.WriteFile(file, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	var stderr bytes.Buffer
	ctx, cancel := context.WithTimeout(t.Context(), 2*time.Second)
	defer cancel()
	cmd := exec.CommandContext(ctx, brokertest.Binary(t), "--config", file)
	cmd.Env = append(os.Environ(), "KAFKA_HTTP_LISTENER=", "KAFKA_FOO_BAR=x")
	cmd.Stderr = &stderr
	cmd.Cancel = func() error { return cmd.Process.Signal(os.Interrupt) }
	cmd.WaitDelay = 20 * time.Second
	cmd.Run()
	log := stderr.String()
	for _, want := range []string{"msg=ready", "node=3", `key=foo.bar`, "num.network.threads", "msg=stopped"} {
		if !strings.Contains(log, want) {
			t.Errorf("the log lacks %q:\n%s", want, log)
		}
	}
	if strings.Contains(log, "http=") {
		t.Errorf("an empty http.listener listens:\n%s", log)
	}
}

// The same stop is often told twice: by a process group and its supervisor, for instance.
func TestStopToldTwiceIsClean(t *testing.T) {
	brokertest.NeedOwn(t)
	b := brokertest.Start(t)
	if err := syscall.Kill(b.PID(), syscall.SIGINT); err != nil {
		t.Fatal(err)
	}
	b.Stop()
	if _, err := os.Stat(filepath.Join(b.Dir(), ".kafka_cleanshutdown")); err != nil {
		t.Error(err)
	}
}

// An advertised name that means nothing here is warned of, and stops nothing.
func TestUnknownAdvertisedName(t *testing.T) {
	brokertest.NeedOwn(t)
	b := brokertest.Start(t, append(settings, "advertised.listeners=PLAINTEXT://no-such-host.invalid:9092")...)
	ctx := within(t, 20*time.Second)
	for !strings.Contains(b.Log(), "no-such-host.invalid") && ctx.Err() == nil {
		pauseFor(ctx, 20*time.Millisecond)
	}
	if !strings.Contains(b.Log(), "level=WARN") {
		t.Errorf("no warning:\n%s", b.Log())
	}
}

func pauseFor(ctx context.Context, d time.Duration) {
	timer := time.NewTimer(d)
	defer timer.Stop()
	select {
	case <-timer.C:
	case <-ctx.Done():
	}
}

// The lag of a group that stands before the marker of the last transaction is nothing: no record is left.
func TestLagCountsMessages(t *testing.T) {
	brokertest.NeedOwn(t)
	b := brokertest.Start(t, settings...)
	topic, group := newTopic(t, b, 1, nil), name(t, "group")
	ctx := within(t, 30*time.Second)
	cl := newClient(t, b, kgo.TransactionalID(name(t, "id")))
	for i := range 10 {
		transact(t, ctx, cl, kgo.TryCommit, func() { mustProduce(t, ctx, cl, record(topic, 0, fmt.Sprint(i)), record(topic, 0, "second")) })
	}
	member := newClient(t, b, kgo.ConsumerGroup(group), kgo.ConsumeTopics(topic), kgo.ConsumeResetOffset(kgo.NewOffset().AtStart()), kgo.DisableAutoCommit(), kgo.FetchMaxWait(100*time.Millisecond))
	var last []*kgo.Record
	for n := 0; n < 20; n += len(last) {
		last = member.PollRecords(ctx, 20-n).Records()
		if ctx.Err() != nil {
			t.Fatal(ctx.Err())
		}
		if n == 0 && len(last) > 0 {
			commit(t, ctx, member, last[0])
			wantLag(t, b, group, 19)
		}
	}
	commit(t, ctx, member, last[len(last)-1])
	wantLag(t, b, group, 0)
}

func commit(t *testing.T, ctx context.Context, cl *kgo.Client, r *kgo.Record) {
	t.Helper()
	if err := cl.CommitRecords(ctx, r); err != nil {
		t.Fatal(err)
	}
}

func wantLag(t *testing.T, b *brokertest.Broker, group string, want int) {
	t.Helper()
	resp, err := http.Get(b.URL() + "/metrics")
	if err != nil {
		t.Fatal(err)
	}
	defer resp.Body.Close()
	body, err := io.ReadAll(resp.Body)
	if err != nil {
		t.Fatal(err)
	}
	var lines []string
	for line := range strings.Lines(string(body)) {
		if strings.HasPrefix(line, "oncelog_consumer_group_lag_messages{") && strings.Contains(line, group) {
			lines = append(lines, line)
		}
	}
	if len(lines) != 1 || !strings.HasSuffix(lines[0], fmt.Sprintf(" %d\n", want)) {
		t.Errorf("lag is %q, want %d", lines, want)
	}
}
