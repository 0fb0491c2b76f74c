package partition

import (
	"context"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"

	"oncelog/log"
)

// A replica moves to another log directory by being copied, as files, into a directory there whose name ends in -future, while it goes on
// being used. When little is left to copy it is closed, the rest is copied, and the copy takes its place:
//
//  1. the copy and its directory are made durable;
//  2. it is renamed to the partition's name, and that and the checkpoint of log starts are made durable: from now on there are two
//     equal replicas, and a start after a crash keeps the one that the metadata names;
//  3. the old directory is renamed to end in -delete, durably: the commit point. Nothing is appended to the copy before it.
//
// What a crash leaves of a copy before step 2 is removed at the next start of a move, or by hand.

const (
	moveChunk     = 1 << 20  // bytes copied at once
	moveRestMax   = 16 << 20 // bytes that may be left to copy while the replica is closed
	movePassesMax = 10       // after so many rounds the rest is copied however much it is
)

// move is a replica on its way.
type move struct {
	p      *Partition
	to     *Set
	dir    string            // of the copy
	files  map[string]copied // by name
	active string            // the name of the last segment, of the last pass

	bytes, end atomic.Int64 // what has been copied, and the log's end when the last pass began
}

// copied is what a file was when it was copied.
type copied struct {
	size int64
	mod  time.Time
}

// errGone ends the move of a replica that is no more.
var errGone = errors.New("the replica was removed while it moved")

// Move is a replica that is being moved, and how far its copy is.
type Move struct {
	Partition *Partition
	Directory [16]byte
	Bytes     int64 // that have been copied
	End       int64 // the log's end when the last round of copying began
}

// Moves gives what is being moved, in no order.
func (d *Dirs) Moves() []Move {
	d.mu.Lock()
	defer d.mu.Unlock()
	var moves []Move
	for m := range d.moving {
		moves = append(moves, Move{m.p, m.to.DirectoryID(), m.bytes.Load(), m.end.Load()})
	}
	return moves
}

// Move brings a replica to another directory. The replica that is given, if any, has taken its place, also if there is an error, and is to
// be led; the old one answers NOT_LEADER_OR_FOLLOWER. A replica that is there already is given back.
func (d *Dirs) Move(ctx context.Context, p *Partition, dir [16]byte, now time.Time) (*Partition, error) {
	from := d.setOf(p)
	to, err := d.setFor(dir)
	if err != nil {
		return nil, err
	}
	if from == nil || from.Get(p.topic, p.index) != p {
		return nil, errGone
	}
	if from == to {
		return p, nil
	}
	m := &move{p: p, to: to, dir: filepath.Join(to.dir, suffixedName(p.topic, p.index, futureSuffix)), files: map[string]copied{}}
	d.mu.Lock()
	d.moving[m] = true
	d.mu.Unlock()
	moved, err := m.run(ctx, d, from, now)
	d.mu.Lock()
	delete(d.moving, m)
	d.mu.Unlock()
	if err != nil {
		err = errors.Join(fmt.Errorf("%s does not move to %s: %w", p.key(), to.dir, err), to.shared.fsys.RemoveAll(m.dir))
	}
	return moved, err
}

func (m *move) run(ctx context.Context, d *Dirs, from *Set, now time.Time) (*Partition, error) {
	if err := m.begin(); err != nil {
		return nil, err
	}
	for range movePassesMax {
		n, err := m.pass(ctx, true)
		if err != nil {
			return nil, err
		}
		if n < moveRestMax {
			break
		}
	}
	d.placing.Lock() // whoever looks for the replica to create or remove it finds it, before or after
	defer d.placing.Unlock()
	if from.Get(m.p.topic, m.p.index) != m.p {
		return nil, errGone
	}
	return m.swap(from, now)
}

// begin makes the directory of the copy, and the replica's own if that has not been done yet.
func (m *move) begin() error {
	m.p.mu.Lock()
	err := m.p.Err()
	if err == nil {
		err = m.p.makeLocked()
	}
	m.p.mu.Unlock()
	if err != nil {
		return err
	}
	return m.to.shared.fsys.MkdirAll(m.dir, 0o755)
}

// swap closes the replica, copies the rest, and puts the copy in its place. If that fails the replica is opened again where it was.
func (m *move) swap(from *Set, now time.Time) (*Partition, error) {
	p := m.p
	highWatermark := p.Offsets().HW
	if err := p.Err(); err != nil {
		return nil, err
	}
	from.shared.cleaner.leave(p)
	from.forget(p)
	p.syncing.Lock() // a sync in the background ends first, and the next finds the partition closed
	clean, err := p.close()
	p.syncing.Unlock()
	if err == nil && !clean {
		err = errors.New("it could not be closed in order")
	}
	if err == nil {
		_, err = m.pass(context.Background(), false)
	}
	var moved *Partition
	if err == nil {
		moved, err = m.settle(highWatermark, now)
	}
	if err != nil {
		return m.reopen(from, p.dir, highWatermark, now), err
	}
	old := filepath.Join(from.dir, suffixedName(p.topic, p.index, deleteSuffix))
	if err = from.shared.fsys.Rename(p.dir, old); err == nil {
		err = from.shared.fsys.SyncDir(from.dir)
	}
	if err != nil {
		return moved, moved.fail(fmt.Errorf("its old directory %s is in the way: %w", p.dir, err))
	}
	from.checkpointsAreStale(p.key())
	from.shared.points.ring(&from.shared.schedule)
	from.shared.highWatermarks.ring(&from.shared.schedule)
	from.removeLater(old, p.cfg.Load().FileDeleteDelayMs)
	m.to.shared.logger.Info("partition has moved", "topic", p.topic, "partition", p.index, "from", from.dir, "to", m.to.dir)
	return moved, nil
}

// settle makes the copy a replica.
func (m *move) settle(highWatermark int64, now time.Time) (*Partition, error) {
	fsys, name := m.to.shared.fsys, filepath.Join(m.to.dir, dirName(m.p.topic, m.p.index))
	if err := m.to.forgetPredecessor(m.p.key()); err != nil {
		return nil, err
	}
	if err := errors.Join(fsys.SyncDir(m.dir), fsys.Rename(m.dir, name), fsys.SyncDir(m.to.dir)); err != nil {
		return nil, err
	}
	moved := m.open(m.to, highWatermark, now)
	if err := moved.Err(); err != nil {
		return nil, errors.Join(err, fsys.Rename(name, m.dir))
	}
	m.to.add(moved)
	if err := errors.Join(m.to.checkpointPoints(), m.to.checkpointCleaned()); err != nil {
		m.to.forget(moved)
		_ = moved.fail(err)
		return nil, errors.Join(err, fsys.Rename(name, m.dir))
	}
	return moved, nil
}

// reopen makes the replica what it was.
func (m *move) reopen(from *Set, dir string, highWatermark int64, now time.Time) *Partition {
	p := m.open(from, highWatermark, now)
	from.add(p)
	return p
}

// open opens the partition's directory in a set, which has just been closed in order, or is a copy of one that has.
func (m *move) open(s *Set, highWatermark int64, now time.Time) *Partition {
	old := m.p
	p := s.newPartition(old.topic, old.id, old.index, old.cfg.Load())
	old.compaction.mu.Lock()
	p.compaction.mu.known, p.compaction.mu.cleaned = old.compaction.mu.known, old.compaction.mu.cleaned
	old.compaction.mu.Unlock()
	r := log.Recovery{Clean: true, RecoveryPoint: old.log.End(), LogStart: old.log.Start(), AllowGaps: true}
	if err := p.open(r, highWatermark, now); err != nil {
		_ = p.fail(fmt.Errorf("load: %w", err))
	}
	return p
}

// pass copies what has changed since the last one, and gives how many bytes. While the replica is in use only whole segments and what has been
// appended to the last one are copied.
func (m *move) pass(ctx context.Context, inUse bool) (n int64, err error) {
	list, err := m.p.shared.fsys.ReadDir(m.p.dir)
	if err != nil {
		return 0, err
	}
	m.end.Store(m.p.Offsets().End)
	active := ""
	for _, f := range list {
		if strings.HasSuffix(f.Name(), log.ExtLog) {
			active = max(active, f.Name())
		}
	}
	there := map[string]bool{}
	for _, f := range list {
		name := f.Name()
		if !moves(name) || inUse && !strings.HasSuffix(name, log.ExtLog) {
			continue
		}
		there[name] = true
		copied, err := m.file(ctx, name, name == active && name == m.active)
		if isNotExist(err) && inUse {
			continue // retention was faster
		}
		if err != nil {
			return n, err
		}
		n += copied
	}
	m.active = active
	for name := range m.files {
		if there[name] {
			continue
		}
		if err := m.to.shared.fsys.Remove(filepath.Join(m.dir, name)); err != nil && !errors.Is(err, fs.ErrNotExist) {
			return n, err
		}
		delete(m.files, name)
	}
	return n, nil
}

// moves tells the files that a partition consists of, from those that are being made or removed.
func moves(name string) bool {
	switch _, ext, ok := log.ParseFileName(name); {
	case name == partitionMetadataFile, name == leaderEpochFile:
		return true
	default:
		return ok && slices.Contains([]string{log.ExtLog, log.ExtIndex, log.ExtTimeIndex, extSnapshot, extWindow, extTxnIndex}, ext)
	}
}

// file copies a file if it has changed; of one that is only appended to, what has been.
func (m *move) file(ctx context.Context, name string, appendedTo bool) (int64, error) {
	m.p.mu.Lock() // no append is half done
	st, err := m.p.shared.fsys.Stat(filepath.Join(m.p.dir, name))
	m.p.mu.Unlock()
	if err != nil {
		return 0, err
	}
	had, known := m.files[name]
	if known && had.size == st.Size() && had.mod.Equal(st.ModTime()) {
		return 0, nil
	}
	from := int64(0)
	if known && appendedTo && st.Size() >= had.size {
		from = had.size
	}
	if err := m.copy(ctx, name, from, st.Size()); err != nil {
		return 0, err
	}
	m.files[name] = copied{st.Size(), st.ModTime()}
	return st.Size() - from, nil
}

var moveBuffers = sync.Pool{New: func() any { b := make([]byte, moveChunk); return &b }}

// copy makes the bytes of a file from one position to another durable in the copy.
func (m *move) copy(ctx context.Context, name string, from, to int64) (err error) {
	src, err := m.p.shared.fsys.OpenFile(filepath.Join(m.p.dir, name), os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer src.Close()
	flag := os.O_WRONLY | os.O_CREATE
	if from == 0 {
		flag |= os.O_TRUNC
	}
	dst, err := m.to.shared.fsys.OpenFile(filepath.Join(m.dir, name), flag, 0o644)
	if err != nil {
		return err
	}
	defer func() { err = errors.Join(err, dst.Close()) }()
	buffer := moveBuffers.Get().(*[]byte)
	defer moveBuffers.Put(buffer)
	for from < to {
		if err := ctx.Err(); err != nil {
			return err
		}
		n, err := src.ReadAt((*buffer)[:min(int64(len(*buffer)), to-from)], from)
		if n == 0 && err != nil {
			if errors.Is(err, io.EOF) {
				err = fmt.Errorf("%s has become shorter: %w", name, kerr.KafkaStorageError)
			}
			return err
		}
		if _, err := dst.WriteAt((*buffer)[:n], from); err != nil {
			return err
		}
		from += int64(n)
		m.bytes.Add(int64(n))
	}
	return dst.Sync()
}
