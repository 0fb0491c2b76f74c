package brokertest

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"syscall"
	"testing"
	"time"
)

const (
	readyWithin = 30 * time.Second
	stopWithin  = 30 * time.Second
)

// build makes the binary once per test process. Main removes it.
var build = sync.OnceValues(func() (string, error) {
	if name := os.Getenv("ONCELOG_BROKER"); name != "" {
		return name, nil
	}
	dir, err := os.MkdirTemp("", "oncelog-broker-")
	if err != nil {
		return "", err
	}
	builtIn = dir
	name := filepath.Join(dir, "broker")
	out, err := exec.Command("go", "build", fmt.Sprintf("-race=%t", Race), "-o", name, "oncelog/cmd/broker").CombinedOutput()
	if err != nil {
		return "", fmt.Errorf("build the broker: %w\n%s", err, out)
	}
	return name, nil
})

var builtIn string

// Main runs a package's tests and removes what they shared. Its argument and result are those of testing.M.Run.
func Main(run func() int) int {
	defer func() {
		if builtIn != "" {
			os.RemoveAll(builtIn)
		}
	}()
	return run()
}

// Binary gives the broker's binary.
func Binary(t testing.TB) string {
	t.Helper()
	name, err := build()
	if err != nil {
		t.Fatal(err)
	}
	return name
}

// External gives the address of a broker that runs already, "" if the tests are to start their own.
func External() string { return os.Getenv("BOOTSTRAP") }

// Broker is one broker process at a time, on one directory and one port.
type Broker struct {
	t       testing.TB
	binary  string
	dir     string
	args    []string
	addr    string // host:port once known
	http    string // base URL, "" if turned off
	process *process
}

// process is one run of the binary.
type process struct {
	cmd    *exec.Cmd
	ready  chan string // the ready line; closed without one when the process ends before
	exited chan struct{}
	err    error // of Wait, set when exited is closed

	mu struct {
		sync.Mutex
		log bytes.Buffer // standard error
	}
}

// Start runs a broker on a free port with extra settings, each key=value, and stops it when the test ends. A test whose
// broker logged an error fails.
func Start(t testing.TB, settings ...string) *Broker {
	t.Helper()
	if addr := External(); addr != "" {
		return &Broker{t: t, addr: addr}
	}
	return StartIn(t, t.TempDir(), settings...)
}

// StartIn runs a broker in a directory that may hold what one has left: its log directory is the folder data there.
func StartIn(t testing.TB, dir string, settings ...string) *Broker {
	t.Helper()
	b := &Broker{t: t, binary: Binary(t), dir: dir}
	for _, s := range settings {
		b.args = append(b.args, "--set", s)
	}
	b.start("127.0.0.1:0")
	t.Cleanup(b.cleanup)
	return b
}

// NeedOwn skips the test unless it has a broker of its own, which it may kill.
func NeedOwn(t testing.TB) {
	t.Helper()
	if External() != "" {
		t.Skip("BOOTSTRAP names a broker that is not ours to kill")
	}
}

// Addr is the address for clients. It stays the same when the broker is started again.
func (b *Broker) Addr() string { return b.addr }

// URL is the base of the HTTP server's addresses.
func (b *Broker) URL() string { return b.http }

// Dir is the log directory.
func (b *Broker) Dir() string { return filepath.Join(b.dir, "data") }

// PID is the number of the process that runs.
func (b *Broker) PID() int { return b.process.cmd.Process.Pid }

// Kill ends the process at once, as kill -9 does.
func (b *Broker) Kill() {
	b.t.Helper()
	b.process.cmd.Process.Kill()
	<-b.process.exited
}

// Stop ends the process cleanly, which must succeed.
func (b *Broker) Stop() {
	b.t.Helper()
	b.process.cmd.Process.Signal(syscall.SIGTERM)
	select {
	case <-b.process.exited:
		if b.process.err != nil {
			b.t.Errorf("the broker stopped with %v\n%s", b.process.err, b.Log())
		}
	case <-time.After(stopWithin):
		b.process.cmd.Process.Signal(syscall.SIGQUIT) // shows where it hangs
		<-b.process.exited
		b.t.Fatalf("the broker did not stop within %v\n%s", stopWithin, tail(b.Log()))
	}
}

// Restart starts the broker again on its directory and port, after Kill or Stop.
func (b *Broker) Restart() {
	b.t.Helper()
	b.checkLog()
	b.start(b.addr)
}

// Log is what the current process has logged.
func (b *Broker) Log() string {
	b.process.mu.Lock()
	defer b.process.mu.Unlock()
	return b.process.mu.log.String()
}

func (b *Broker) start(listen string) {
	b.t.Helper()
	args := append([]string{"--set", "listeners=PLAINTEXT://" + listen, "--set", "log.dirs=" + b.Dir(), "--set", "http.listener=127.0.0.1:0"}, b.args...)
	cmd := exec.Command(b.binary, args...)
	cmd.Dir = b.dir
	stderr, err := cmd.StderrPipe()
	if err != nil {
		b.t.Fatal(err)
	}
	if err := cmd.Start(); err != nil {
		b.t.Fatal(err)
	}
	p := &process{cmd: cmd, ready: make(chan string, 1), exited: make(chan struct{})}
	b.process = p
	go p.watch(stderr)
	select {
	case line, ok := <-p.ready:
		if !ok {
			<-p.exited
			b.t.Fatalf("the broker ended before it was ready: %v\n%s", p.err, tail(b.Log()))
		}
		addr, url := parseReady(line)
		if addr == "" || b.addr != "" && addr != b.addr {
			b.t.Fatalf("not the address in the ready line %q", line)
		}
		if b.http = url; b.addr == "" {
			b.addr = addr // later on clients of other goroutines read it
		}
	case <-time.After(readyWithin):
		cmd.Process.Signal(syscall.SIGQUIT)
		<-p.exited
		b.t.Fatalf("the broker was not ready within %v\n%s", readyWithin, tail(b.Log()))
	}
}

// watch keeps the log, finds the ready line in it and waits for the end of the process.
func (p *process) watch(stderr io.Reader) {
	defer close(p.exited)
	lines := bufio.NewReader(stderr)
	found := false
	for {
		line, err := lines.ReadString('\n')
		p.mu.Lock()
		p.mu.log.WriteString(line)
		p.mu.Unlock()
		if !found && strings.Contains(line, readyMark) {
			found = true
			p.ready <- line
		}
		if err != nil {
			break
		}
	}
	if !found {
		close(p.ready)
	}
	p.err = p.cmd.Wait()
}

const readyMark = "msg=ready "

var (
	readyKafka = regexp.MustCompile(`listeners=[A-Z_]+://([^\s,]+)`)
	readyHTTP  = regexp.MustCompile(`http=(\S+)`)
)

func parseReady(line string) (addr, url string) {
	if m := readyKafka.FindStringSubmatch(line); m != nil {
		addr = m[1]
	}
	if m := readyHTTP.FindStringSubmatch(line); m != nil {
		url = m[1]
	}
	return addr, url
}

func (b *Broker) cleanup() {
	select {
	case <-b.process.exited:
	default:
		b.Stop()
	}
	b.checkLog()
}

// checkLog fails the test if the process that has ended logged an error, and shows its log if the test failed.
func (b *Broker) checkLog() {
	log := b.Log()
	if strings.Contains(log, "level=ERROR") || strings.Contains(log, "DATA RACE") {
		b.t.Errorf("the broker logged an error")
	}
	if b.t.Failed() {
		b.t.Logf("the broker's log:\n%s", tail(log))
	}
}

// tail is the end of a log, enough to see what went wrong.
func tail(log string) string {
	const most = 16 << 10
	if len(log) > most {
		return "...\n" + log[len(log)-most:]
	}
	return log
}
