package conformance

import (
	"bytes"
	"context"
	"fmt"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"oncelog/tests/brokertest"
)

// The example counts words exactly, though its process and the broker are killed while it counts.
func TestGlobalCountIsExact(t *testing.T) {
	brokertest.NeedOwn(t)
	b := brokertest.Start(t, settings...)
	example := filepath.Join(t.TempDir(), "globalcount")
	if out, err := exec.Command("go", "build", "-o", example, "oncelog/examples/globalcount").CombinedOutput(); err != nil {
		t.Fatalf("build the example: %v\n%s", err, out)
	}
	root, err := exec.Command("go", "env", "GOROOT").Output()
	if err != nil {
		t.Fatal(err)
	}
	text := filepath.Join(strings.TrimSpace(string(root)), "src", "net")
	ctx := within(t, 3*time.Minute)
	run := func(ctx context.Context, command string) (string, error) {
		var out bytes.Buffer
		cmd := exec.CommandContext(ctx, example, "-brokers", b.Addr(), command, text)
		cmd.Stdout, cmd.Stderr = &out, &out
		err := cmd.Run()
		return out.String(), err
	}
	for round := range 4 {
		short, cancel := context.WithTimeout(ctx, time.Duration(400+400*round)*time.Millisecond)
		out, err := run(short, "count") // ends by being killed, or done
		cancel()
		t.Logf("round %d: %v\n%s", round, err, out)
		if round%2 == 1 {
			b.Kill()
			b.Restart()
		}
	}
	// The broker dies under a count that goes on.
	finished := make(chan error, 1)
	var last string
	go func() {
		out, err := run(ctx, "count")
		last = out
		finished <- err
	}()
	timer := time.NewTimer(1500 * time.Millisecond)
	defer timer.Stop()
	select {
	case err := <-finished:
		finished <- err
	case <-timer.C:
		b.Kill()
		b.Restart()
	}
	if err := <-finished; err != nil {
		t.Fatalf("count: %v\n%s", err, last)
	}
	if out, err := run(ctx, "verify"); err != nil || !strings.Contains(out, "exactly once") {
		t.Errorf("verify: %v\n%s", err, out)
	}
	if out, err := run(ctx, "top"); err != nil || !strings.Contains(out, "words") {
		t.Error(fmt.Sprint("top: ", err, "\n", out))
	}
}
