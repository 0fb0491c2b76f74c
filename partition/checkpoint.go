package partition

import (
	"bytes"
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"oncelog/internal/vfs"
)

// Both kinds of checkpoint are text:
//
//	0
//	<number of lines that follow>
//	<topic> <partition> <offset>        a log directory's: one number for each partition
//	<epoch> <start offset>              a partition's leader epochs, both ascending
//
// They are replaced whole: written beside, synced, renamed, and the directory synced.

// errCheckpoint is what can't be read as a checkpoint.
var errCheckpoint = errors.New("malformed checkpoint")

// maxCheckpointBytes bounds what is read: 64 MiB are some 250,000 partitions with the longest names.
const maxCheckpointBytes = 64 << 20

// key names a partition within a log directory.
type key struct {
	topic string
	index int32
}

func (k key) String() string { return dirName(k.topic, k.index) }

// checkpointLines reads the rows of a checkpoint, each of n fields.
func checkpointLines(data []byte, n int) ([][]string, error) {
	if len(data) == 0 {
		return nil, nil
	}
	lines := strings.Split(strings.TrimRight(string(data), "\r\n"), "\n")
	if len(lines) < 2 || strings.TrimSpace(lines[0]) != "0" {
		return nil, fmt.Errorf("version %.20q: %w", lines[0], errCheckpoint)
	}
	count, err := strconv.Atoi(strings.TrimSpace(lines[1]))
	if err != nil || count != len(lines)-2 {
		return nil, fmt.Errorf("count %.20q of %d lines: %w", lines[1], len(lines)-2, errCheckpoint)
	}
	rows := make([][]string, 0, count)
	for _, line := range lines[2:] {
		fields := strings.Fields(line)
		if len(fields) != n {
			return nil, fmt.Errorf("line %.40q: %w", line, errCheckpoint)
		}
		rows = append(rows, fields)
	}
	return rows, nil
}

// parseOffsets reads a log directory's checkpoint.
func parseOffsets(data []byte) (map[key]int64, error) {
	rows, err := checkpointLines(data, 3)
	if err != nil {
		return nil, err
	}
	offsets := make(map[key]int64, len(rows))
	for _, f := range rows {
		index, err1 := strconv.ParseInt(f[1], 10, 32)
		offset, err2 := strconv.ParseInt(f[2], 10, 64)
		if err1 != nil || err2 != nil {
			return nil, fmt.Errorf("line %.40q: %w", strings.Join(f, " "), errCheckpoint)
		}
		offsets[key{f[0], int32(index)}] = offset
	}
	return offsets, nil
}

// formatOffsets is the text of a log directory's checkpoint, ascending by name.
func formatOffsets(offsets map[key]int64) []byte {
	keys := make([]key, 0, len(offsets))
	for k := range offsets {
		keys = append(keys, k)
	}
	slices.SortFunc(keys, func(a, b key) int {
		if c := strings.Compare(a.topic, b.topic); c != 0 {
			return c
		}
		return int(a.index) - int(b.index)
	})
	var b bytes.Buffer
	fmt.Fprintf(&b, "0\n%d\n", len(keys))
	for _, k := range keys {
		fmt.Fprintf(&b, "%s %d %d\n", k.topic, k.index, offsets[k])
	}
	return b.Bytes()
}

// readOffsets reads a checkpoint of a log directory. A missing file is an empty one.
func readOffsets(fsys vfs.FS, name string) (map[key]int64, error) {
	data, err := vfs.ReadFile(fsys, name, maxCheckpointBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return map[key]int64{}, nil
	}
	if err != nil {
		return nil, err
	}
	offsets, err := parseOffsets(data)
	if err != nil {
		return nil, fmt.Errorf("%s: %w", filepath.Base(name), err)
	}
	return offsets, nil
}
