package cluster

import (
	"errors"
	"fmt"
	"io"
	"sync"
	"sync/atomic"

	"github.com/hashicorp/raft"
)

// errStaleTerm is what became of an entry that was decided in another term than the one that it was appended in: nothing. The leader that
// decided it lost its office in between, so the decision rests on an image that is not the one before the entry.
var errStaleTerm = errors.New("decided in another term")

// maxSnapshotBytes bounds what a snapshot may make us read into memory.
const maxSnapshotBytes = 1 << 30

// board shows the newest image. Any goroutine reads it; whoever publishes holds mu.
type board struct {
	image atomic.Pointer[Image]

	mu      sync.Mutex
	changed chan struct{} // closed with the next image
}

func newBoard() *board {
	b := &board{changed: make(chan struct{})}
	b.image.Store(emptyImage())
	return b
}

// update replaces the image by what next makes of it, and wakes those who wait for a change. A nil image is no change.
func (b *board) update(next func(*Image) *Image) {
	b.mu.Lock()
	defer b.mu.Unlock()
	im := next(b.image.Load())
	if im == nil {
		return
	}
	b.image.Store(im)
	close(b.changed)
	b.changed = make(chan struct{})
}

func (b *board) wait() <-chan struct{} {
	b.mu.Lock()
	defer b.mu.Unlock()
	return b.changed
}

// fsm is raft's view of the image: it folds committed entries into it, in memory, and does nothing else. Raft calls it from one goroutine.
//
// An entry that cannot be read or replayed ends it: later entries have no image to follow, so none is applied, and the node serves the last good
// image while all further decisions fail.
type fsm struct {
	board *board
	err   atomic.Pointer[error] // why it ended
}

// Apply folds one entry. It returns nil or an error.
func (f *fsm) Apply(l *raft.Log) any {
	if err := f.broken(); err != nil {
		return err
	}
	term, records, err := decodeEntry(l.Data)
	if err == nil && term != l.Term {
		return errStaleTerm
	}
	if err == nil {
		f.board.update(func(im *Image) *Image {
			var next *Image
			next, err = im.replay(int64(l.Index), records)
			return next
		})
	}
	if err != nil {
		err = fmt.Errorf("metadata entry %d: %w", l.Index, err)
		f.err.Store(&err)
		return err
	}
	return nil
}

func (f *fsm) broken() error {
	if err := f.err.Load(); err != nil {
		return *err
	}
	return nil
}

// replay is the image after records, or nil and an error if they cannot follow it.
func (im *Image) replay(index int64, records []record) (*Image, error) {
	e := im.edit(index)
	for _, rec := range records {
		if err := e.replay(rec); err != nil {
			return nil, err
		}
	}
	return e.image(), nil
}

// Snapshot takes the image as it is; it is immutable, so writing it out needs no lock.
func (f *fsm) Snapshot() (raft.FSMSnapshot, error) {
	if err := f.broken(); err != nil {
		return nil, err
	}
	return snapshot{f.board.image.Load()}, nil
}

// Restore replaces the image by that of a snapshot.
func (f *fsm) Restore(rc io.ReadCloser) error {
	defer rc.Close()
	data, err := io.ReadAll(io.LimitReader(rc, maxSnapshotBytes+1))
	if err != nil {
		return fmt.Errorf("metadata snapshot: %w", err)
	}
	if len(data) > maxSnapshotBytes {
		return fmt.Errorf("metadata snapshot exceeds %d bytes: %w", maxSnapshotBytes, errCorrupt)
	}
	im, err := decodeSnapshot(data)
	if err != nil {
		return fmt.Errorf("metadata snapshot: %w", err)
	}
	f.board.update(func(old *Image) *Image {
		im.ControllerID = old.ControllerID
		return im
	})
	return nil
}

// snapshot is an image on its way to disk.
type snapshot struct{ im *Image }

func (s snapshot) Persist(sink raft.SnapshotSink) error {
	if _, err := sink.Write(encodeSnapshot(s.im)); err != nil {
		return errors.Join(err, sink.Cancel())
	}
	return sink.Close()
}

func (s snapshot) Release() {}
