package log

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
)

// replace lets the new segment take the sources' place; doc.go has the steps. An error before the commit point leaves the log
// as it was.
func (r *rewriter) replace() error {
	l := r.log
	l.replacing.Lock()
	defer l.replacing.Unlock()
	if err := l.writable(); err != nil {
		return err
	}
	segs := *l.segments.Load()
	if i := slices.Index(segs, r.sources[0]); i < 0 || i+len(r.sources) >= len(segs) || !slices.Equal(segs[i:i+len(r.sources)], r.sources) {
		return fmt.Errorf("%s: [%d, %d): %w", l.dir, r.From, r.To, ErrReplaced)
	}
	if err := r.pace(0); err != nil {
		return err
	}
	if err := r.writeBeside(); err != nil {
		return err
	}
	if err := l.syncDir(); err != nil {
		return err
	}
	r.ready = true
	for _, f := range r.files() {
		if err := f.move(stageSwap); err != nil {
			return err
		}
	}
	if err := l.syncDir(); err != nil {
		return err
	}
	r.publish()
	if err := r.settle(); err != nil {
		return l.fail("replace segments", err)
	}
	return nil
}

// files are those of the new segment, the .log last.
func (r *rewriter) files() []*file {
	list := []*file{&r.out.times.file, &r.out.offsets.file, &r.out.data}
	if r.txns != nil {
		list = append([]*file{r.txns}, list...)
	}
	return list
}

// writeBeside makes the files beside the .log, durable.
func (r *rewriter) writeBeside() error {
	out := r.out
	out.publish(r.extent)
	out.offsets.longer, out.times.longer = true, true // something may lie there
	if err := out.finish(); err != nil {
		return err
	}
	out.sinceEntry, out.synced = 0, true
	if len(r.index) > 0 {
		r.txns = &file{segment: out, ext: ExtTxnIndex}
		r.txns.stage.Store(stageCleaned)
		defer r.txns.drop()
		h, err := r.txns.acquire(os.O_CREATE | os.O_TRUNC)
		if err != nil {
			return err
		}
		_, err = h.WriteAt(r.index, 0)
		h.leave()
		if err != nil {
			return err
		}
	}
	for _, f := range r.files() {
		if f != &out.data {
			if err := f.sync(); err != nil {
				return err
			}
		}
		if err := r.log.fs.SetModTime(f.path(), r.written); err != nil {
			return err
		}
	}
	return nil
}

// publish lets readers see the new segment in the old ones' stead.
func (r *rewriter) publish() {
	r.published = true
	r.log.edit(func(segs []*segment) []*segment {
		i := slices.Index(segs, r.sources[0])
		return slices.Concat(segs[:i], []*segment{r.out}, segs[i+len(r.sources):])
	})
	for _, s := range r.sources {
		s.removed.Store(true)
	}
	r.log.bound.Store(nil)
}

// settle removes the old files and gives the new ones their names. Each step is durable before the next, which takes it for granted:
// an old .log may not come back beside the new one, and one that comes back before has its .txnindex.
func (r *rewriter) settle() error {
	l := r.log
	l.changedLogs()
	var errs []error
	for _, s := range r.sources[1:] {
		errs = append(errs, l.remove(s.data.path()))
	}
	if r.txns == nil {
		errs = append(errs, l.remove(l.path(r.From, ExtTxnIndex)))
	}
	if err := errors.Join(append(errs, l.syncDir())...); err != nil {
		return err
	}
	if err := errors.Join(r.out.data.move(stageFinal), l.syncDir()); err != nil {
		return err
	}
	for _, s := range r.sources[1:] {
		errs = append(errs, l.remove(s.offsets.path()), l.remove(s.times.path()), l.remove(l.path(s.base, ExtTxnIndex)))
	}
	for _, f := range r.files() {
		if f != &r.out.data {
			errs = append(errs, f.move(stageFinal))
		}
	}
	for _, s := range r.sources {
		s.drop()
	}
	return errors.Join(append(errs, l.syncDir())...)
}

// discard removes what was written, if the log goes on without it. What cannot be removed would, after a crash, be mistaken for
// something: that fails the log. A closed log leaves it to the next Open.
func (r *rewriter) discard() error {
	r.close()
	l := r.log
	if r.out == nil || r.published {
		return nil
	}
	l.replacing.Lock()
	defer l.replacing.Unlock()
	r.out.removed.Store(true)
	r.out.drop()
	if !r.created || l.writable() != nil {
		return nil
	}
	var errs []error
	for _, suffix := range []string{SuffixSwap, SuffixCleaned} {
		for _, ext := range []string{ExtTxnIndex, ExtTimeIndex, ExtIndex, ExtLog} {
			errs = append(errs, l.remove(l.path(r.From, ext)+suffix))
		}
		if err := errors.Join(errs...); err != nil {
			return l.fail("remove what a rewriting left", err)
		}
		if suffix == SuffixSwap && r.ready { // a .cleaned file says that they don't count, and stays until they are gone
			if err := l.syncDir(); err != nil {
				return err
			}
		}
	}
	return nil
}

// remove removes a file that may be missing.
func (l *Log) remove(name string) error {
	if err := l.fs.Remove(name); err != nil && !isNotExist(err) {
		return err
	}
	return nil
}

// removeCleaned drops a round of compaction that didn't get to its end: what was being written, and with it what
// was ready at or above the least base of that (KAFKA-6264), this first.
func (o *opener) removeCleaned(entries []fs.DirEntry) error {
	if o.cleaned < 0 {
		return nil
	}
	for _, suffix := range []string{SuffixSwap, SuffixCleaned} {
		for _, e := range entries {
			base, ext, ok := ParseFileName(e.Name())
			if !ok || !strings.HasSuffix(ext, suffix) || base < o.cleaned {
				continue
			}
			if err := o.log.fs.Remove(filepath.Join(o.log.dir, e.Name())); err != nil {
				return err
			}
			o.swaps = slices.DeleteFunc(o.swaps, func(name string) bool { return name == e.Name() })
		}
		if err := o.log.syncDir(); err != nil {
			return err
		}
	}
	o.report.Forgotten = true
	return nil
}

// finishSwaps lets segments that compaction finished take their originals' place: all whose base lies in the range
// of offsets that the new ones have. The steps are those of rewriter.settle.
func (o *opener) finishSwaps(entries []fs.DirEntry) error {
	if len(o.swaps) == 0 {
		return nil
	}
	o.report.Swapped = true
	from, to, err := o.swapRange()
	if err == nil {
		err = o.log.syncDir()
	}
	if err != nil {
		return err
	}
	ready := func(base int64, ext string) bool { return slices.Contains(o.swaps, FileName(base, ext)+SuffixSwap) }
	remove := func(which func(base int64, ext string) bool) error {
		for _, e := range entries {
			base, ext, ok := ParseFileName(e.Name())
			if ok && segmentExt(ext) && base >= from && base < to && which(base, ext) {
				if err := o.log.remove(filepath.Join(o.log.dir, e.Name())); err != nil {
					return err
				}
			}
		}
		return nil
	}
	rename := func(logs bool) error {
		for _, name := range o.swaps {
			if logs != strings.HasSuffix(name, ExtLog+SuffixSwap) {
				continue
			}
			path := filepath.Join(o.log.dir, name)
			if err := o.log.fs.Rename(path, strings.TrimSuffix(path, SuffixSwap)); err != nil {
				return err
			}
		}
		return nil
	}
	for _, step := range []func() error{
		func() error {
			return remove(func(base int64, ext string) bool {
				return (ext == ExtLog || ready(base, ExtLog)) && !ready(base, ext)
			})
		},
		func() error { return rename(true) },
		func() error {
			err := remove(func(base int64, ext string) bool { return ext != ExtLog && !ready(base, ExtLog) })
			return errors.Join(err, rename(false))
		},
	} {
		if err := errors.Join(step(), o.log.syncDir()); err != nil {
			return err
		}
	}
	return nil
}

// swapRange is the range of offsets that the finished .log files stand for.
func (o *opener) swapRange() (from, to int64, err error) {
	for _, name := range o.swaps {
		base, ext, _ := ParseFileName(name)
		if ext != ExtLog+SuffixSwap {
			continue
		}
		next, err := o.nextOffset(filepath.Join(o.log.dir, name), base)
		if err != nil {
			return 0, 0, err
		}
		if to == 0 || base < from {
			from = base
		}
		to = max(to, next, base+1)
	}
	return from, to, nil
}

// nextOffset is the offset behind the last whole batch of a file; base for one without.
func (o *opener) nextOffset(name string, base int64) (int64, error) {
	f, err := o.log.fs.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return 0, err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return 0, err
	}
	block := blocks.Get().(*[blockLen]byte)
	defer blocks.Put(block)
	w := walker{f: f, end: st.Size(), buf: block[:]}
	next := base
	for {
		h, _, err := w.next()
		if err == io.EOF || err == errPartial || errors.Is(err, ErrCorrupt) {
			return next, nil
		}
		if err != nil {
			return 0, err
		}
		next = h.LastOffset() + 1
	}
}
