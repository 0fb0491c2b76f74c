package inspect

import (
	"cmp"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"path/filepath"
	"runtime"
	"slices"
	"strings"
	"sync"
	"sync/atomic"

	"oncelog/cluster"
	"oncelog/internal/vfs"
	"oncelog/log"
	"oncelog/partition"
)

// ErrInUse is the error of work on a directory that a broker holds.
var ErrInUse = errors.New("a broker is running on it")

// Severity is how bad a finding is.
type Severity int8

const (
	// Note is nothing wrong, but worth to know.
	Note Severity = iota
	// Warning is what the next start of a broker puts right.
	Warning
	// Error is damage: what isn't there, or isn't what was written, and can't be made again.
	Error
)

func (s Severity) String() string { return [...]string{"note", "warning", "error"}[s] }

// MarshalText is the severity in JSON.
func (s Severity) MarshalText() ([]byte, error) { return []byte(s.String()), nil }

// Finding is one thing that was found.
type Finding struct {
	Severity Severity `json:"severity"`
	Path     string   `json:"path"` // below the directory that was checked
	What     string   `json:"what"`
}

func (f Finding) String() string { return fmt.Sprintf("%s %s: %s", f.Severity, f.Path, f.What) }

// CheckOptions say how a directory is checked.
type CheckOptions struct {
	// Live checks a directory that a broker is using. What is just being written is then no finding.
	Live bool
	// MetadataDir is where the node's metadata lies; "" is the folder raft of the directory, if there is one.
	MetadataDir string
	// Progress, if not nil, is told how many bytes of how many have been read. Any goroutine calls it.
	Progress func(done, total int64)
	// Found, if not nil, gets each finding as soon as its turn has come, in order.
	Found func(Finding)
}

// CheckReport is what was checked, and found.
type CheckReport struct {
	Dir        string    `json:"dir"`
	Partitions int       `json:"partitions"`
	Segments   int64     `json:"segments"`
	Batches    int64     `json:"batches"`
	Records    int64     `json:"records"` // markers included
	Bytes      int64     `json:"bytes"`   // of all .log files
	Findings   []Finding `json:"findings"`
}

// Worst is the severity of the worst finding.
func (r *CheckReport) Worst() Severity {
	worst := Note
	for _, f := range r.Findings {
		worst = max(worst, f.Severity)
	}
	return worst
}

// Check reads a log directory whole and compares everything in it with everything else. It changes nothing. The error says why it could not be
// checked; ErrInUse, if a broker holds the directory and Live isn't set.
func Check(fsys vfs.FS, dir string, o CheckOptions) (CheckReport, error) {
	c := &checker{fsys: fsys, dir: dir, o: o, report: CheckReport{Dir: dir, Findings: []Finding{}}}
	release, err := c.lock()
	if err != nil {
		return c.report, err
	}
	defer release()
	entries, err := fsys.ReadDir(dir)
	if err != nil {
		return c.report, err
	}
	c.checkProperties()
	c.checkMarker()
	c.readCheckpoints()
	c.readMetadata(entries)
	partitions := c.sort(entries)
	c.total = c.logBytes(partitions)
	c.checkPartitions(partitions)
	c.checkMissing(partitions)
	c.report.Bytes = c.done.Load()
	return c.report, nil
}

// checker is a check going on.
type checker struct {
	fsys   vfs.FS
	dir    string
	o      CheckOptions
	report CheckReport

	clean       bool // the directory was left by a clean stop
	image       *cluster.Image
	nodeID      int32                       // -1 if it isn't known
	directoryID [16]byte                    // zero if it isn't known
	checkpoints map[string]map[string]int64 // by file, by partition
	total       int64
	done        atomic.Int64 // bytes
}

func (c *checker) found(s Severity, path, format string, args ...any) {
	c.tell(Finding{s, path, fmt.Sprintf(format, args...)})
}

func (c *checker) tell(f Finding) {
	c.report.Findings = append(c.report.Findings, f)
	if c.o.Found != nil {
		c.o.Found(f)
	}
}

// lock takes the directory's lock, if there is one to take, so that no broker starts on it meanwhile.
func (c *checker) lock() (release func(), err error) {
	release = func() {}
	st, err := c.fsys.Stat(c.dir)
	if err != nil {
		return nil, err
	}
	if !st.IsDir() {
		return nil, fmt.Errorf("%s is no directory", c.dir)
	}
	name := filepath.Join(c.dir, partition.LockFile)
	if _, err := c.fsys.Stat(name); err != nil {
		return release, nil // never used, or a copy
	}
	lock, err := c.fsys.Lock(name)
	switch {
	case err == nil:
		return func() { lock.Close() }, nil
	case !errors.Is(err, vfs.ErrLocked): // a read-only copy can't be locked, and needn't be
		return release, nil
	case c.o.Live:
		return release, nil
	}
	return nil, fmt.Errorf("%s: %w", c.dir, ErrInUse)
}

// found in the log directory, by what is to be done with it.
type found struct {
	name  string // of the directory
	topic string
	index int32
}

// sort tells the partitions from what else lies in the directory.
func (c *checker) sort(entries []fs.DirEntry) (partitions []found) {
	for _, e := range entries {
		name := e.Name()
		topic, index, suffix, ok := partition.ParseDirName(name)
		switch {
		case !e.IsDir():
			if strings.HasSuffix(name, ".tmp") {
				c.found(Note, name, "left by an interrupted write")
			}
		case strings.HasPrefix(name, "."), partition.IsOtherDir(name), c.isMetadata(name):
		case !ok:
			c.found(Error, name, "no partition, and nothing else that belongs here: a broker doesn't start on it")
		case suffix == partition.DeleteSuffix:
			c.found(Note, name, "waits for its deletion")
		case suffix == partition.FutureSuffix:
			c.found(Note, name, "left by a move that was interrupted")
		case suffix != "":
			c.found(Note, name, "put aside")
		default:
			partitions = append(partitions, found{name, topic, index})
		}
	}
	slices.SortFunc(partitions, func(a, b found) int {
		return cmp.Or(strings.Compare(a.topic, b.topic), int(a.index)-int(b.index))
	})
	return partitions
}

func (c *checker) logBytes(partitions []found) (total int64) {
	for _, p := range partitions {
		entries, err := c.fsys.ReadDir(filepath.Join(c.dir, p.name))
		if err != nil {
			continue // the check of the partition tells
		}
		for _, e := range entries {
			if st, err := e.Info(); err == nil && filepath.Ext(e.Name()) == log.ExtLog {
				total += st.Size()
			}
		}
	}
	return total
}

// checkPartitions checks several at once, and tells of them in order.
func (c *checker) checkPartitions(partitions []found) {
	results := make([]chan *partitionCheck, len(partitions))
	for i := range results {
		results[i] = make(chan *partitionCheck, 1) // one result
	}
	next := make(chan int) // unbuffered: who is free takes one
	var workers sync.WaitGroup
	for range min(len(partitions), runtime.GOMAXPROCS(0)) {
		workers.Go(func() {
			for i := range next {
				p := newPartitionCheck(c, partitions[i])
				p.run()
				results[i] <- p
			}
		})
	}
	workers.Go(func() {
		defer close(next)
		for i := range partitions {
			next <- i
		}
	})
	for _, result := range results {
		p := <-result
		for _, f := range p.findings {
			c.tell(f)
		}
		c.report.Partitions++
		c.report.Segments += p.counts.segments
		c.report.Batches += p.counts.batches
		c.report.Records += p.counts.records
	}
	workers.Wait()
}

// read notes that bytes have been read.
func (c *checker) read(n int64) {
	done := c.done.Add(n)
	if c.o.Progress != nil {
		c.o.Progress(done, c.total)
	}
}

// readFile reads a small file of the directory; nil if there is none.
func (c *checker) readFile(name string, maxBytes int64) ([]byte, error) {
	data, err := vfs.ReadFile(c.fsys, filepath.Join(c.dir, name), maxBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, nil
	}
	return data, err
}

// isEnd tells the errors that mean that there is no more to read.
func isEnd(err error) bool { return errors.Is(err, io.EOF) }
