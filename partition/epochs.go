package partition

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"sort"
	"strconv"
	"strings"

	"oncelog/internal/vfs"
)

// epochStart is a leader epoch and the offset of its first record.
type epochStart struct {
	epoch int32
	start int64
}

// epochs is the leader epochs of a log (KIP-101), ascending by both. It is immutable: each change gives a new one.
type epochs []epochStart

// assign begins an epoch at an offset. What is not below both gives way, so that an epoch without records leaves none.
func (e epochs) assign(epoch int32, start int64) epochs {
	if n := len(e); n > 0 && e[n-1] == (epochStart{epoch, start}) {
		return e
	}
	n := len(e)
	for n > 0 && (e[n-1].epoch >= epoch || e[n-1].start >= start) {
		n--
	}
	return append(e[:n:n], epochStart{epoch, start})
}

// truncate drops the epochs that begin at or above end.
func (e epochs) truncate(end int64) epochs {
	n := sort.Search(len(e), func(i int) bool { return e[i].start >= end })
	return e[:n:n]
}

// trim drops what lies below the log start: the epoch that holds it begins there.
func (e epochs) trim(start int64) epochs {
	i := sort.Search(len(e), func(i int) bool { return e[i].start > start }) - 1
	if i < 0 || e[i].start == start && i == 0 {
		return e
	}
	trimmed := append(epochs(nil), e[i:]...)
	trimmed[0].start = start
	return trimmed
}

// latest is the newest epoch, -1 if there is none.
func (e epochs) latest() int32 {
	if len(e) == 0 {
		return -1
	}
	return e[len(e)-1].epoch
}

// at is the epoch of a record, -1 if it isn't known.
func (e epochs) at(offset int64) int32 {
	i := sort.Search(len(e), func(i int) bool { return e[i].start > offset })
	if i == 0 {
		return -1
	}
	return e[i-1].epoch
}

// end gives the largest known epoch up to the one asked for, and where it ends (KIP-279).
func (e epochs) end(epoch int32, logEnd int64) EpochEnd {
	unknown := EpochEnd{Epoch: -1, EndOffset: -1}
	switch {
	case epoch == -1 || len(e) == 0 || epoch > e.latest():
		return unknown
	case epoch == e.latest():
		return EpochEnd{epoch, logEnd}
	case epoch < e[0].epoch:
		return EpochEnd{epoch, e[0].start}
	}
	i := sort.Search(len(e), func(i int) bool { return e[i].epoch > epoch })
	return EpochEnd{e[i-1].epoch, e[i].start}
}

func (e epochs) format() []byte {
	var b bytes.Buffer
	fmt.Fprintf(&b, "0\n%d\n", len(e))
	for _, s := range e {
		fmt.Fprintf(&b, "%d %d\n", s.epoch, s.start)
	}
	return b.Bytes()
}

// parseEpochs reads a leader-epoch-checkpoint.
func parseEpochs(data []byte) (epochs, error) {
	rows, err := checkpointLines(data, 2)
	if err != nil {
		return nil, err
	}
	e := make(epochs, 0, len(rows))
	for _, f := range rows {
		epoch, err1 := strconv.ParseInt(f[0], 10, 32)
		start, err2 := strconv.ParseInt(f[1], 10, 64)
		if err1 != nil || err2 != nil || epoch < 0 || start < 0 {
			return nil, fmt.Errorf("line %.40q: %w", strings.Join(f, " "), errCheckpoint)
		}
		if n := len(e); n > 0 && (e[n-1].epoch >= int32(epoch) || e[n-1].start > start) {
			return nil, fmt.Errorf("epoch %d at %d after %d at %d: %w", epoch, start, e[n-1].epoch, e[n-1].start, errCheckpoint)
		}
		e = append(e, epochStart{int32(epoch), start})
	}
	return e, nil
}

// readEpochs reads the file of a partition directory. A missing one is empty.
func readEpochs(fsys vfs.FS, dir string) (epochs, error) {
	data, err := vfs.ReadFile(fsys, filepath.Join(dir, leaderEpochFile), maxCheckpointBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	if err != nil {
		return nil, err
	}
	e, err := parseEpochs(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", leaderEpochFile, err)
	}
	return e, nil
}
