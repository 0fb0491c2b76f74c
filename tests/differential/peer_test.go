package differential

import (
	"flag"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"oncelog/tests/brokertest"
)

var (
	kafkaFlag  = flag.String("kafka", "", "`address` of an Apache Kafka that runs with its defaults: run the scripts against it instead of Oncelog")
	peersFlag  = flag.String("peers", "", "`folder` with kafka-up and kafka-down, which start an Apache Kafka for scripts that want one of their own")
	portFlag   = flag.String("peer-port", "22090", "`port` of such an Apache Kafka")
	recordFlag = flag.Bool("record", false, "write Apache Kafka's answers into the scripts")
	ownFlag    = flag.Bool("rewrite", false, "write Oncelog's answers into the scripts, where they are said to differ")
)

// peer is the broker that a script talks to.
type peer interface {
	Addr() string
	Kill()
	Stop()
	Restart()
}

// shared is the broker of the scripts that want none of their own.
func shared(t *testing.T) peer {
	if *kafkaFlag != "" {
		return kafka{t: t, addr: *kafkaFlag}
	}
	return brokertest.Start(t)
}

// own starts a broker with settings.
func own(t *testing.T, settings []string) peer {
	if *kafkaFlag == "" {
		return brokertest.Start(t, settings...)
	}
	if *peersFlag == "" {
		t.Skip("needs -peers")
	}
	k := kafka{t: t, addr: "127.0.0.1:" + *portFlag, dir: filepath.Join(t.TempDir(), "kafka"), settings: settings}
	k.up("--fresh")
	t.Cleanup(k.Kill)
	return k
}

// kafka is an Apache Kafka. Without a directory it is somebody else's.
type kafka struct {
	t        *testing.T
	addr     string
	dir      string
	settings []string
}

func (k kafka) Addr() string { return k.addr }

func (k kafka) Kill() { k.run("kafka-down", k.dir, "--kill") }

func (k kafka) Stop() { k.run("kafka-down", k.dir) }

func (k kafka) Restart() { k.up() }

func (k kafka) up(more ...string) {
	args := append([]string{k.dir, "--port", strings.TrimPrefix(k.addr, "127.0.0.1:")}, more...)
	for _, s := range k.settings {
		args = append(args, "--set", s)
	}
	k.run("kafka-up", args...)
}

func (k kafka) run(name string, args ...string) {
	if k.dir == "" {
		k.t.Fatal("a script that stops its broker must have one of its own")
	}
	cmd := exec.Command(filepath.Join(*peersFlag, name), args...)
	cmd.Stdout, cmd.Stderr = os.Stderr, os.Stderr
	if err := cmd.Run(); err != nil {
		k.t.Fatal(fmt.Errorf("%s: %w", name, err))
	}
}
