package log

import (
	"time"

	"oncelog/internal/vfs"
)

// New makes the log of a directory that holds none, beginning at an offset. Nothing is written, and the directory need not
// be there, before Begin or the first Append: the partition may be one of thousands that are made and not used for long.
func New(fsys vfs.FS, dir string, o Options, offset int64, now time.Time) *Log {
	l := &Log{fs: fsys, dir: dir, files: o.Files, settings: o.Settings.withDefaults(), unbegun: true}
	if l.files == nil {
		l.files = NewFiles(fsys, defaultFiles)
	}
	l.beginAt(offset, now)
	return l
}

// beginAt makes the log an empty one that begins at an offset, in memory.
func (l *Log) beginAt(offset int64, now time.Time) {
	l.start.Store(offset)
	l.end.Store(offset)
	l.setRecovered(offset)
	s := newSegment(l, offset, now.UnixMilli())
	s.warm, s.lastTime = true, noTime
	l.swap([]*segment{s})
}

// Begin creates the first .log of a log that New made. It is the owner's, as Append is.
func (l *Log) Begin() error {
	if err := l.writable(); err != nil {
		return err
	}
	if !l.unbegun {
		return nil
	}
	if err := l.ensureBegun(); err != nil {
		return err
	}
	l.active().data.drop()
	return nil
}

// ensureBegun does the same, and leaves the file open.
func (l *Log) ensureBegun() error {
	if !l.unbegun {
		return nil
	}
	if err := l.begin(l.active()); err != nil {
		return err
	}
	l.unbegun = false
	return nil
}
