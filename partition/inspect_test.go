package partition

import (
	"errors"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"

	"oncelog/internal/vfs"
	"oncelog/protocol"
)

// TestRecordErrorsAreBounded: a few kilobytes can hold any number of bad records, compressed. All of them are counted, and
// the answer names the first.
func TestRecordErrorsAreBounded(t *testing.T) {
	const bad = maxRecordErrors + 1000
	p := open(t, vfs.NewMem(), topicConfig(t)).lead()
	times := make([]int64, bad)
	for i := range times {
		times[i] = start.UnixMilli() + 9_000_000
	}
	_, err := produce(t, p, spec{times: times, codec: protocol.CodecGzip})
	got, ok := errors.AsType[*RecordErrors](err)
	if !ok || !errors.Is(err, kerr.InvalidTimestamp) {
		t.Fatalf("got %v", err)
	}
	if len(got.Records) != maxRecordErrors {
		t.Errorf("%d records are named, not %d", len(got.Records), maxRecordErrors)
	}
}
