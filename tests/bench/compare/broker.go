package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"time"

	"golang.org/x/sys/unix"
)

const (
	startPatience = 2 * time.Minute
	stopPatience  = time.Minute
	lookEvery     = time.Millisecond
)

// contender is what can be measured: a way to start a broker.
type contender struct {
	name    string
	command string
	port    int
}

// broker is a contender that runs.
type broker struct {
	contender
	dir     string
	pid     int
	command *exec.Cmd
	ended   chan struct{} // closed when command has ended
}

func (c contender) address() string { return net.JoinHostPort("127.0.0.1", strconv.Itoa(c.port)) }

// start runs the contender on a folder, and waits until its port is open.
func (c contender) start(ctx context.Context, dir string, settings []string) (*broker, error) {
	var set strings.Builder
	for _, s := range settings {
		set.WriteString(" --set " + s)
	}
	text := strings.NewReplacer("{dir}", dir, "{port}", strconv.Itoa(c.port), "{settings}", set.String()).Replace(c.command)
	b := &broker{contender: c, dir: dir, command: exec.Command("sh", "-c", "exec "+text), ended: make(chan struct{})}
	out, err := os.Create(filepath.Join(dir, "output"))
	if err != nil {
		return nil, err
	}
	defer out.Close()
	b.command.Stdout, b.command.Stderr = out, out
	b.command.SysProcAttr = &syscall.SysProcAttr{Setpgid: true}
	if err := b.command.Start(); err != nil {
		return nil, err
	}
	go func() {
		b.command.Wait()
		close(b.ended)
	}()
	ctx, cancel := context.WithTimeout(ctx, startPatience)
	defer cancel()
	for {
		if conn, err := net.Dial("tcp", c.address()); err == nil {
			conn.Close()
			if b.pid, err = listenerOf(c.port); err == nil {
				return b, nil
			}
		}
		err := pause(ctx, lookEvery)
		if b.failed() {
			err = errors.New("its command has failed")
		}
		if err != nil {
			said, _ := os.ReadFile(out.Name())
			return nil, fmt.Errorf("%s does not listen on port %d: %w\n%s", c.name, c.port, err, said)
		}
	}
}

// failed tells whether the command has ended with an error.
func (b *broker) failed() bool {
	select {
	case <-b.ended:
		return !b.command.ProcessState.Success()
	default:
		return false
	}
}

// stop ends the broker with a signal and waits for that.
func (b *broker) stop(s syscall.Signal) error {
	if b == nil {
		return nil
	}
	if err := syscall.Kill(b.pid, s); err != nil && !errors.Is(err, syscall.ESRCH) {
		return err
	}
	if s == syscall.SIGKILL && b.command.Process.Pid != b.pid {
		syscall.Kill(-b.command.Process.Pid, s)
	}
	ctx, cancel := context.WithTimeout(context.Background(), stopPatience)
	defer cancel()
	for alive(b.pid) {
		if err := pause(ctx, lookEvery); err != nil {
			return fmt.Errorf("%s does not stop: %w", b.name, err)
		}
	}
	<-b.ended
	return nil
}

// alive tells whether a process runs. One that only waits for its parent does not, unless it has threads that are still ending.
func alive(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	if err != nil {
		return false
	}
	_, state, _ := strings.Cut(string(stat), ") ")
	threads, _ := os.ReadDir(fmt.Sprintf("/proc/%d/task", pid))
	return !strings.HasPrefix(state, "Z") || len(threads) > 1
}

// sample is what a process has used so far.
type sample struct {
	at      time.Time
	cpu     time.Duration
	written int64 // bytes given to write and the like, sockets included
	disk    int64 // bytes that were to be written to disk
}

func (b *broker) sample() (s sample, err error) {
	var t unix.Timespec
	// The clock of another process: what clock_getcpuclockid gives.
	const schedulerClock = 2
	if err := unix.ClockGettime(int32(^b.pid<<3|schedulerClock), &t); err != nil {
		return s, fmt.Errorf("processor time of %s: %w", b.name, err)
	}
	s.at, s.cpu = time.Now(), time.Duration(t.Nano())
	fields, err := b.proc("io")
	s.written, s.disk = fields["wchar"], fields["write_bytes"]
	return s, err
}

// proc reads a file of lines "name: number" about the process.
func (b *broker) proc(file string) (map[string]int64, error) {
	text, err := os.ReadFile(fmt.Sprintf("/proc/%d/%s", b.pid, file))
	if err != nil {
		return nil, err
	}
	fields := make(map[string]int64)
	for line := range strings.Lines(string(text)) {
		name, value, _ := strings.Cut(line, ":")
		if n, err := strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(value), " kB"), 10, 64); err == nil {
			fields[name] = n
		}
	}
	return fields, nil
}

// memory is the resident memory of the process in MiB, now and at its peak.
func (b *broker) memory() (now, peak float64, err error) {
	fields, err := b.proc("status")
	return float64(fields["VmRSS"]) / 1024, float64(fields["VmHWM"]) / 1024, err
}

// descriptors is how many files and sockets the process has open.
func (b *broker) descriptors() (int, error) {
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", b.pid))
	return len(list), err
}

// listenerOf finds the process that listens on a port.
func listenerOf(port int) (pid int, err error) {
	var inodes []string
	for _, name := range []string{"/proc/net/tcp", "/proc/net/tcp6"} {
		text, err := os.ReadFile(name)
		if err != nil {
			continue // no IPv6
		}
		for line := range strings.Lines(string(text)) {
			f := strings.Fields(line)
			const listening = "0A"
			if len(f) > 9 && f[3] == listening && strings.HasSuffix(f[1], fmt.Sprintf(":%04X", port)) {
				inodes = append(inodes, "socket:["+f[9]+"]")
			}
		}
	}
	links, err := filepath.Glob("/proc/[0-9]*/fd/[0-9]*")
	if err != nil {
		return 0, err
	}
	for _, link := range links {
		if target, err := os.Readlink(link); err == nil && slices.Contains(inodes, target) {
			return strconv.Atoi(strings.Split(link, "/")[2])
		}
	}
	return 0, fmt.Errorf("no process is seen to listen on port %d", port)
}

// pause waits: in between nothing can be awaited.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
