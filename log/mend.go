package log

import (
	"errors"
	"fmt"
	"os"
)

// Suspicious tells that reads have found wrong entries in an index. They did without, by searching from the start of the segment, and go
// on doing so until Mend.
func (l *Log) Suspicious() bool { return l.suspicious.Load() }

// suspect notes that the segment's offset index is wrong.
func (s *segment) suspect() {
	s.suspected.Store(true)
	s.log.suspicious.Store(true)
}

// Mend builds the indexes of the suspected segments anew, durably, and gives these segments' bases. It is the owner's, as Append is; readers go on.
// An error leaves the log as it was, but without these indexes; ErrCorrupt says that it isn't only the index.
func (l *Log) Mend() (bases []int64, err error) {
	if err := l.writable(); err != nil {
		return nil, err
	}
	l.replacing.Lock()
	defer l.replacing.Unlock()
	l.suspicious.Store(false)
	for _, s := range *l.segments.Load() {
		if !s.suspected.Swap(false) {
			continue
		}
		if err := l.mend(s); err != nil {
			return bases, fmt.Errorf("index of %s: %w", s.data.path(), err)
		}
		bases = append(bases, s.base)
	}
	return bases, nil
}

func (l *Log) mend(s *segment) error {
	if err := s.warmUp(); err != nil {
		return err
	}
	f, err := l.fs.OpenFile(s.data.path(), os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	s.hold()
	found, cause, err := s.scan(f, extent{next: s.base, maxTime: noTime, maxTimeOffset: s.base}, int64(l.settings.IndexIntervalBytes), nil)
	if err != nil {
		return err
	}
	// A crash that comes now leaves a segment without an .index, and not one with a torn one.
	if s.offsets.exists {
		s.offsets.drop()
		if err := errors.Join(l.remove(s.offsets.path()), l.syncDir()); err != nil {
			return err
		}
		s.offsets.exists = false
	}
	if err := s.finish(); err != nil {
		return err
	}
	if found.size < s.size.Load() {
		return fmt.Errorf("%s at %d: %w", s.data.path(), found.size, cause)
	}
	return errors.Join(s.times.sync(), s.offsets.sync(), l.syncDir())
}
