package inspect

import (
	"oncelog/log"
	"oncelog/protocol"
)

// indexWalk goes along a segment with its offset index.
type indexWalk struct {
	name    string
	entries []offsetEntry
	i       int // the next entry
}

// timeWalk goes along a segment with its time index.
type timeWalk struct {
	name    string
	entries []timeEntry
	i       int
}

func (s *segmentCheck) loadIndexes() {
	s.index.name, s.times.name = log.FileName(s.base, log.ExtIndex), log.FileName(s.base, log.ExtTimeIndex)
	s.index.entries = parseOffsetIndex(s.indexFile(s.index.name, log.ExtIndex, offsetEntryLen), s.base)
	s.times.entries = parseTimeIndex(s.indexFile(s.times.name, log.ExtTimeIndex, timeEntryLen), s.base)
}

// indexFile reads the entries of an index that can be some. Those of a segment that Kafka was writing have zeros behind them, mebibytes of them.
func (s *segmentCheck) indexFile(name, ext string, entryLen int64) []byte {
	size, ok := s.files[s.base][ext]
	logSize := s.files[s.base][log.ExtLog]
	switch {
	case !ok && logSize > 0 && !(s.last() && !s.clean):
		s.says(Warning, name, "missing: the next start makes it anew")
	case ok && size%entryLen != 0:
		s.says(Warning, name, "%d bytes are no number of entries: the next start makes it anew", size)
	}
	if !ok {
		return nil
	}
	data := s.head(name, min(size/entryLen, logSize/protocol.BatchHeaderLen+1)*entryLen)
	entries := data
	for len(entries) >= int(entryLen) && isZero(entries[len(entries)-int(entryLen):]) {
		entries = entries[:len(entries)-int(entryLen)]
	}
	if size == entryLen && ext == log.ExtTimeIndex {
		entries = data // the first batch may be of the time 0
	}
	if zeros := size - int64(len(entries)); zeros > entryLen && s.last() && !s.clean {
		if !s.o.Live {
			s.says(Note, name, "%d bytes behind its entries, as a broker that is killed leaves them", zeros)
		}
	} else if zeros >= entryLen {
		s.says(Warning, name, "%d bytes behind its entries", zeros)
	}
	return entries
}

func isZero(b []byte) bool {
	for _, c := range b {
		if c != 0 {
			return false
		}
	}
	return true
}

// head reads the beginning of a file.
func (p *partitionCheck) head(name string, n int64) []byte {
	f, err := p.open(name)
	if err != nil {
		p.says(Error, name, "%v", err)
		return nil
	}
	defer f.Close()
	data := make([]byte, n)
	got, err := f.ReadAt(data, 0)
	if err != nil && !isEnd(err) {
		p.says(Error, name, "%v", err)
	}
	return data[:got]
}

// batch compares the entries up to a batch with it.
func (x *indexWalk) batch(s *segmentCheck, h *protocol.BatchHeader, pos int64) {
	for ; x.i < len(x.entries); x.i++ {
		switch e := x.entries[x.i]; {
		case e.position > pos:
			return
		case e.position < pos:
			s.says(Warning, x.name, "entry %d: no batch begins at %d", x.i, e.position)
		case e.offset != h.LastOffset():
			s.says(Warning, x.name, "entry %d: offset %d, the batch at %d ends with %d", x.i, e.offset, pos, h.LastOffset())
		}
	}
}

func (x *indexWalk) finish(s *segmentCheck) {
	if n := len(x.entries) - x.i; n > 0 && !(s.o.Live && s.last()) && !s.damaged {
		s.says(Warning, x.name, "%d entries point behind the end of the log", n)
	}
}

func (x *timeWalk) batch(s *segmentCheck, h *protocol.BatchHeader) {
	for ; x.i < len(x.entries); x.i++ {
		e := x.entries[x.i]
		switch last := h.LastOffset(); {
		case e.offset > last:
			return
		case e.offset < last:
			s.says(Warning, x.name, "entry %d: no batch ends with offset %d", x.i, e.offset)
		case e.timestamp != h.MaxTimestamp:
			s.says(Warning, x.name, "entry %d: timestamp %d, the batch that ends with %d has %d", x.i, e.timestamp, last, h.MaxTimestamp)
		}
		if x.i > 0 && e.timestamp <= x.entries[x.i-1].timestamp {
			s.says(Warning, x.name, "entry %d: timestamp %d after %d", x.i, e.timestamp, x.entries[x.i-1].timestamp)
		}
	}
}

func (x *timeWalk) finish(s *segmentCheck) {
	if s.damaged {
		return
	}
	if n := len(x.entries) - x.i; n > 0 && !(s.o.Live && s.last()) {
		s.says(Warning, x.name, "%d entries point behind the end of the log", n)
	}
	// A segment that isn't written any more has an entry for its largest timestamp.
	if n := len(x.entries); !s.last() && s.largest >= 0 && (n == 0 || x.entries[n-1].timestamp < s.largest) {
		if _, ok := s.files[s.base][log.ExtTimeIndex]; ok {
			s.says(Warning, x.name, "the largest timestamp of the segment, %d, is missing", s.largest)
		}
	}
}
