package cluster

import (
	"fmt"
	"log/slog"
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kmsg"
	"go.uber.org/goleak"

	"oncelog/config"
)

func TestMain(m *testing.M) { goleak.VerifyTestMain(m) }

var discard = slog.New(slog.DiscardHandler)

// testConfig is a node's settings: the defaults, but for what is set.
func testConfig(t testing.TB, set ...string) *config.Broker {
	t.Helper()
	b, _, err := config.Load(config.LoadOptions{Set: append([]string{
		"node.id=1", "listeners=PLAINTEXT://127.0.0.1:0", "log.dirs=" + t.TempDir(),
	}, set...)})
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// countingIDs makes the ids 1, 2, 3...
func countingIDs() func() [16]byte {
	n := byte(0)
	return func() [16]byte {
		n++
		return [16]byte{14: n / 255, 15: n}
	}
}

// describe shows an image whole; equal images have equal texts.
func describe(im *Image) string {
	var b strings.Builder
	fmt.Fprintf(&b, "cluster %q index %d producer ids from %d, %d topics, %d partitions\n",
		im.ClusterID, im.Index, im.nextProducerID, im.NumTopics(), im.NumPartitions())
	for _, name := range slices.Sorted(maps.Keys(im.features)) {
		fmt.Fprintf(&b, "feature %s %d\n", name, im.features[name])
	}
	for _, k := range im.Brokers() {
		fmt.Fprintf(&b, "broker %d epoch %d incarnation %s", k.ID, k.Epoch, shortID(k.Incarnation))
		if k.Rack != nil {
			fmt.Fprintf(&b, " rack %s", *k.Rack)
		}
		if len(k.LogDirs) > 1 {
			b.WriteString(" dirs " + showDirs(k.LogDirs))
		}
		if k.Fenced {
			b.WriteString(" fenced")
		}
		for _, e := range k.Endpoints {
			fmt.Fprintf(&b, " %s=%s:%d/%s", e.Name, e.Host, e.Port, e.Protocol)
		}
		b.WriteString("\n")
	}
	for t := range im.Topics() {
		internal := ""
		if t.Internal {
			internal = " internal"
		}
		fmt.Fprintf(&b, "topic %s id %s%s\n", t.Name, shortID(t.ID), internal)
		if im.TopicByID(t.ID) != t {
			b.WriteString("  IS NOT FOUND BY ITS ID\n")
		}
		for i, p := range t.Partitions {
			fmt.Fprintf(&b, "  %d leader %d epoch %d/%d replicas %v isr %v", i, p.Leader, p.LeaderEpoch, p.PartitionEpoch, p.Replicas, p.ISR)
			if dirs := showDirs(p.Directories); strings.Trim(dirs, "\x00\r") != "" {
				b.WriteString(" in " + dirs)
			}
			b.WriteString("\n")
		}
	}
	for _, kind := range []kmsg.ConfigResourceType{2, 4, 16, 32} {
		for name := range im.ConfigNames(kind) {
			values := im.Config(kind, name)
			fmt.Fprintf(&b, "config %s %q", strings.ToLower(kind.String()), name)
			for _, key := range slices.Sorted(maps.Keys(values)) {
				fmt.Fprintf(&b, " %s=%q", key, values[key])
			}
			b.WriteString("\n")
		}
	}
	for q := range im.ClientQuotas() {
		fmt.Fprintf(&b, "quota %s %v\n", showQuotaEntity(q.Entity), q.Limits)
	}
	for u := range im.ScramUsers() {
		fmt.Fprintf(&b, "user %q %x\n", u.Name, u.Credentials)
	}
	return b.String()
}

func shortID(id [16]byte) string {
	return strings.TrimLeft(fmt.Sprintf("%x", id), "0")
}

// mustReplay is the image after records, as of the next index.
func mustReplay(t testing.TB, im *Image, records ...record) *Image {
	t.Helper()
	next, err := im.replay(im.Index+1, records)
	if err != nil {
		t.Fatal(err)
	}
	return next
}
