package main

import (
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"time"
)

// process is a broker that bench has started, or only looks at (cmd is nil).
type process struct {
	cmd *exec.Cmd
	pid int
}

// launch starts a command in which {dir} stands for a folder.
func launch(command []string, dir string) (*process, error) {
	if len(command) == 0 {
		return nil, errors.New("a command is missing behind --")
	}
	args := make([]string, len(command))
	for i, a := range command {
		args[i] = strings.ReplaceAll(a, "{dir}", dir)
	}
	cmd := exec.Command(args[0], args[1:]...)
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	return &process{cmd: cmd, pid: cmd.Process.Pid}, nil
}

// end sends a signal and waits for the process's end.
func (p *process) end(s syscall.Signal) {
	if p != nil && p.cmd != nil {
		p.cmd.Process.Signal(s)
		p.cmd.Wait()
		p.cmd = nil
	}
}

// prepared runs a shell command on a folder.
func prepared(command, dir string) error {
	if command == "" {
		return nil
	}
	if out, err := exec.Command("sh", "-c", strings.ReplaceAll(command, "{dir}", dir)).CombinedOutput(); err != nil {
		return fmt.Errorf("prepare: %w\n%s", err, out)
	}
	return nil
}

// resident is the process's resident memory in KiB.
func (p *process) resident() (kib int64, err error) {
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/status", p.pid))
	if err != nil {
		return 0, err
	}
	for line := range strings.Lines(string(b)) {
		if v, ok := strings.CutPrefix(line, "VmRSS:"); ok {
			return strconv.ParseInt(strings.TrimSuffix(strings.TrimSpace(v), " kB"), 10, 64)
		}
	}
	return 0, errors.New("no VmRSS")
}

// descriptors is how many files and sockets the process has open.
func (p *process) descriptors() (int, error) {
	list, err := os.ReadDir(fmt.Sprintf("/proc/%d/fd", p.pid))
	return len(list), err
}

// ticksPerSecond is USER_HZ, which is 100 on all Linux systems of today.
const ticksPerSecond = 100

// cpu is the processor time that the process has used.
func (p *process) cpu() (time.Duration, error) {
	if p == nil {
		return 0, errors.New("no process")
	}
	b, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", p.pid))
	if err != nil {
		return 0, err
	}
	fields := strings.Fields(string(b[strings.LastIndexByte(string(b), ')')+1:]))
	if len(fields) < 13 {
		return 0, errors.New("malformed stat")
	}
	user, err1 := strconv.ParseInt(fields[11], 10, 64)
	system, err2 := strconv.ParseInt(fields[12], 10, 64)
	return time.Duration(user+system) * time.Second / ticksPerSecond, errors.Join(err1, err2)
}

// load is the share of one processor, in percent, that the process uses during a while.
func (p *process) load(ctx context.Context, during time.Duration) (percent float64, err error) {
	before, err := p.cpu()
	if err != nil {
		return 0, err
	}
	began := time.Now()
	if err := pause(ctx, during); err != nil {
		return 0, err
	}
	after, err := p.cpu()
	return 100 * (after - before).Seconds() / time.Since(began).Seconds(), err
}

// pause waits, which is what a measurement of idleness does.
func pause(ctx context.Context, d time.Duration) error {
	select {
	case <-time.After(d):
		return nil
	case <-ctx.Done():
		return ctx.Err()
	}
}
