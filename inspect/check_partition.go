package inspect

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/cluster"
	"oncelog/idempotence"
	"oncelog/internal/vfs"
	"oncelog/log"
	"oncelog/partition"
)

// maxPerFile is how many findings of one file are told.
const maxPerFile = 20

// partitionCheck is the check of one partition, by one goroutine.
type partitionCheck struct {
	*checker
	place    found
	dir      string
	findings []Finding
	told     map[string]int // findings by file
	counts   struct{ segments, batches, records int64 }

	files     map[int64]map[string]int64 // of segments: base -> extension -> size
	snapshots []int64
	within    map[int64]bool // snapshots within segments that have been compared
	epochs    []partition.EpochStart

	start, end int64 // log start and end, as far as found
	compacted  bool  // offsets may be missing
	gaps       []Finding
	fold       fold
	damaged    bool // a segment could not be read to its end, so that nothing can be derived any more
	epochTold  bool
	lastEpoch  int32
	// maxProducer is the largest producer id that is in use here, -1 if there is none.
	maxProducer int64
}

func newPartitionCheck(c *checker, place found) *partitionCheck {
	p := &partitionCheck{checker: c, place: place, dir: filepath.Join(c.dir, place.name), told: map[string]int{}}
	p.files, p.within = map[int64]map[string]int64{}, map[int64]bool{}
	p.fold.table = idempotence.New()
	p.lastEpoch, p.maxProducer = -1, -1
	_, cleaned := c.checkpoint(partition.CleanerFile, place.name)
	p.compacted = cleaned || cluster.IsInternal(place.topic) || strings.Contains(c.topicConfig(place.topic, "cleanup.policy"), "compact")
	return p
}

// topicConfig is a dynamic config of a topic, "" if it isn't set or known.
func (c *checker) topicConfig(topic, key string) string {
	if c.image == nil {
		return ""
	}
	return c.image.Config(kmsg.ConfigResourceTypeTopic, topic)[key]
}

// says adds a finding about a file of the partition; "" is the directory.
func (p *partitionCheck) says(s Severity, file, format string, args ...any) {
	path := p.place.name
	if file != "" {
		path += "/" + file
	}
	p.told[file]++
	switch n := p.told[file]; {
	case n < maxPerFile:
		p.findings = append(p.findings, Finding{s, path, fmt.Sprintf(format, args...)})
	case n == maxPerFile:
		p.findings = append(p.findings, Finding{s, path, "and more of the kind"})
	}
}

func (p *partitionCheck) run() {
	entries, err := p.fsys.ReadDir(p.dir)
	if err != nil {
		p.says(Error, "", "%v", err)
		return
	}
	p.list(entries)
	p.checkTopicID()
	p.readEpochs()
	bases := p.bases()
	for i, base := range bases {
		next := int64(-1)
		if i+1 < len(bases) {
			next = bases[i+1]
		}
		p.checkSegment(base, next)
	}
	if !p.compacted {
		p.findings = append(p.findings, p.gaps...)
	}
	p.checkSnapshots(bases)
	p.checkOffsets(bases)
}

// list sorts the files of the directory.
func (p *partitionCheck) list(entries []fs.DirEntry) {
	for _, e := range entries {
		name := e.Name()
		offset, ext, ok := log.ParseFileName(name)
		st, err := e.Info()
		switch {
		case err != nil:
			if !p.o.Live {
				p.says(Error, name, "%v", err)
			}
		case name == partition.MetadataFile, name == partition.LeaderEpochsFile:
		case name == partition.DamageFile:
			p.says(Error, name, "%s", strings.TrimSpace(string(p.file(name))))
		case e.IsDir(), !ok && !strings.HasSuffix(name, ".tmp"):
			p.says(Note, name, "not of a partition, it is left alone")
		case !ok, strings.HasSuffix(ext, ".tmp"):
			p.says(Note, name, "left by an interrupted write")
		case ext == log.ExtSnapshot:
			p.snapshots = append(p.snapshots, offset)
			p.note(offset, ext, st.Size())
		case ext == log.ExtLog, ext == log.ExtIndex, ext == log.ExtTimeIndex, ext == log.ExtTxnIndex, ext == partition.ExtWindow:
			p.note(offset, ext, st.Size())
		case strings.HasSuffix(ext, log.SuffixDeleted):
			p.says(Note, name, "waits for its deletion")
		case strings.HasSuffix(ext, log.SuffixCleaned), strings.HasSuffix(ext, log.SuffixSwap):
			p.says(Warning, name, "of a compaction that was interrupted")
		case strings.Contains(ext, log.SuffixCut):
			p.sayKept(name, offset, st.Size())
		default:
			p.says(Note, name, "not of a partition, it is left alone")
		}
	}
	slices.Sort(p.snapshots)
}

// sayKept tells what a file holds that a recovery kept.
func (p *partitionCheck) sayKept(name string, offset, size int64) {
	f, err := p.open(name)
	if err == nil {
		defer f.Close()
		var batches, records int64
		if batches, records, err = log.SearchBatches(f, 0, size, offset, offset); err == nil {
			p.says(Note, name, "kept by a recovery: %d records in %d whole batches behind a damaged place", records, batches)
			return
		}
	}
	p.says(Error, name, "%v", err)
}

func (p *partitionCheck) note(offset int64, ext string, size int64) {
	if p.files[offset] == nil {
		p.files[offset] = map[string]int64{}
	}
	p.files[offset][ext] = size
}

// bases gives the segments, ascending, and tells of files that belong to none.
func (p *partitionCheck) bases() (bases []int64) {
	for _, base := range slices.Sorted(maps.Keys(p.files)) {
		if _, ok := p.files[base][log.ExtLog]; ok {
			bases = append(bases, base)
			continue
		}
		for _, ext := range []string{log.ExtIndex, log.ExtTimeIndex, log.ExtTxnIndex} {
			if _, ok := p.files[base][ext]; !ok {
				continue
			}
			severity := Warning
			if p.clean && !p.compacted {
				severity = Error // no crash explains it
			}
			p.says(severity, log.FileName(base, ext), "its .log is missing")
		}
	}
	return bases
}

func (p *partitionCheck) checkTopicID() {
	id, err := partition.ReadTopicID(p.fsys, p.dir)
	var t *cluster.Topic
	if p.image != nil {
		t = p.image.Topic(p.place.topic)
	}
	known := t != nil && int(p.place.index) < len(t.Partitions)
	empty := true
	for _, f := range p.files {
		empty = empty && f[log.ExtLog] == 0
	}
	switch {
	case errors.Is(err, fs.ErrNotExist) && empty:
		p.says(Warning, partition.MetadataFile, "missing, and there are no records: the next start removes the directory")
	case errors.Is(err, fs.ErrNotExist) && known:
		p.says(Warning, partition.MetadataFile, "missing: the next start writes it, by the topic's name")
	case errors.Is(err, fs.ErrNotExist):
		p.says(Error, partition.MetadataFile, "missing: it isn't known to which topic the records belong")
	case err != nil:
		p.says(Error, partition.MetadataFile, "%v", err)
	case p.image == nil:
	case t == nil:
		p.says(Warning, "", "the metadata has no such topic: the next start puts it aside")
	case t.ID != id:
		p.says(Warning, "", "its topic id is %s, the metadata has another topic of that name: the next start puts it aside", id)
	case !known:
		p.says(Warning, "", "the topic has %d partitions in the metadata: the next start puts it aside", len(t.Partitions))
	case p.elsewhere(&t.Partitions[p.place.index]):
		p.says(Warning, "", "the metadata has it in another log directory: the next start puts it aside if it is there, too")
	}
}

func (p *partitionCheck) readEpochs() {
	epochs, err := partition.ReadLeaderEpochs(p.fsys, p.dir)
	if err != nil {
		p.says(Warning, partition.LeaderEpochsFile, "%v: it is made anew from the log", err)
	}
	p.epochs = epochs
	if n := len(epochs); n > 0 && p.image != nil {
		t := p.image.Topic(p.place.topic)
		if t != nil && int(p.place.index) < len(t.Partitions) && epochs[n-1].Epoch > t.Partitions[p.place.index].LeaderEpoch {
			p.says(Error, partition.LeaderEpochsFile, "the newest epoch is %d, the metadata is at %d", epochs[n-1].Epoch, t.Partitions[p.place.index].LeaderEpoch)
		}
	}
}

// epochAt is the leader epoch of a record by the file, -1 if it says nothing of it.
func (p *partitionCheck) epochAt(offset int64) int32 {
	epoch := int32(-1)
	for _, e := range p.epochs {
		if e.Start > offset {
			break
		}
		epoch = e.Epoch
	}
	return epoch
}

// open opens a file of the partition.
func (p *partitionCheck) open(name string) (vfs.File, error) {
	return p.fsys.OpenFile(filepath.Join(p.dir, name), os.O_RDONLY, 0)
}

// file reads a small file of the partition, nil if there is none.
func (p *partitionCheck) file(name string) []byte {
	data, err := p.readFile(filepath.Join(p.place.name, name), maxIndexBytes)
	if err != nil {
		p.says(Error, name, "%v", err)
	}
	return data
}

// checkOffsets compares the checkpoints with where the log begins and ends.
func (p *partitionCheck) checkOffsets(bases []int64) {
	if p.o.Live || p.damaged {
		return
	}
	point, hasPoint := p.checkpoint(partition.RecoveryPointFile, p.place.name)
	switch {
	case hasPoint && point > p.end && p.clean:
		p.says(Error, "", "the log ends at %d, its end was %d when it was closed", p.end, point)
	case hasPoint && point > p.end:
		p.says(Warning, "", "the log ends at %d, it was durable up to %d", p.end, point)
	}
	if mark, ok := p.checkpoint(partition.HighWatermarkFile, p.place.name); ok && mark > p.end {
		p.says(Warning, "", "the high watermark is %d, the log ends at %d", mark, p.end)
	}
	if start, ok := p.checkpoint(partition.LogStartFile, p.place.name); ok && start > p.end {
		p.says(Warning, "", "the log start is %d, the log ends at %d: the next start begins anew there", start, p.end)
	}
	if cleaned, ok := p.checkpoint(partition.CleanerFile, p.place.name); ok && cleaned > p.end {
		p.says(Warning, "", "compacted up to %d, the log ends at %d", cleaned, p.end)
	}
	if n := len(p.epochs); n > 0 && p.epochs[n-1].Start > p.end {
		p.says(Warning, partition.LeaderEpochsFile, "epoch %d begins at %d, the log ends at %d", p.epochs[n-1].Epoch, p.epochs[n-1].Start, p.end)
	}
	if len(bases) == 0 && hasPoint && point > 0 {
		p.says(Error, "", "no segment, the log was durable up to %d", point)
	}
}
