package partition

import (
	"cmp"
	"slices"

	"oncelog/controlmarkers"
	"oncelog/protocol"
)

// cleanedTxns follows the transactions of a log through a cleaning, batch by batch, as Kafka's CleanedTransactionMetadata does. It
// tells which batches were aborted, and which markers have nothing left before them.
type cleanedTxns struct {
	waiting   []controlmarkers.Aborted // that begin behind the batch last seen, by ascending first offset
	aborted   map[int64]*abortedTxn    // that have begun, by producer
	committed map[int64]bool           // producers of which a batch was seen that isn't aborted, and no marker since
	index     controlmarkers.Index     // of the markers that were seen and whose batches were, too: what the new segment's index has
}

type abortedTxn struct {
	controlmarkers.Aborted
	seen bool // a batch of it was
}

func newCleanedTxns() *cleanedTxns {
	return &cleanedTxns{aborted: map[int64]*abortedTxn{}, committed: map[int64]bool{}}
}

// expect tells of aborted transactions ahead. It may tell of one more than once.
func (c *cleanedTxns) expect(list []controlmarkers.Aborted) {
	c.waiting = append(c.waiting, list...)
	slices.SortStableFunc(c.waiting, func(a, b controlmarkers.Aborted) int { return cmp.Compare(a.First, b.First) })
}

// reach takes up the transactions that have begun at or below an offset.
func (c *cleanedTxns) reach(offset int64) {
	n := 0
	for ; n < len(c.waiting) && c.waiting[n].First <= offset; n++ {
		a := c.waiting[n]
		if c.aborted[a.ProducerID] == nil {
			c.aborted[a.ProducerID] = &abortedTxn{Aborted: a}
		}
	}
	c.waiting = c.waiting[n:]
}

// data takes in a batch of data. It reports whether it was aborted.
func (c *cleanedTxns) data(h *protocol.BatchHeader) bool {
	c.reach(h.LastOffset())
	if !h.Transactional() {
		return false
	}
	if a := c.aborted[h.ProducerID]; a != nil {
		a.seen = true
		return true
	}
	c.committed[h.ProducerID] = true
	return false
}

// control takes in a control batch. It reports whether it can go: it is a marker, and no batch of its transaction was seen before
// it.
func (c *cleanedTxns) control(b protocol.Batch, h *protocol.BatchHeader) (bool, error) {
	c.reach(h.LastOffset())
	if h.NumRecords == 0 {
		return true, nil // it was cleaned before
	}
	m, ok, err := controlmarkers.Decode(b)
	if err != nil || !ok {
		return false, err
	}
	if m.Commit {
		seen := c.committed[h.ProducerID]
		delete(c.committed, h.ProducerID)
		return !seen, nil
	}
	a := c.aborted[h.ProducerID]
	delete(c.aborted, h.ProducerID)
	if a == nil || !a.seen {
		return true, nil
	}
	c.index, err = c.index.Add(a.Aborted)
	return false, err
}

// entriesIn gives the entries of the segments with bases in [from, to).
func (x *txnIndex) entriesIn(from, to int64) (all controlmarkers.Index, err error) {
	x.mu.Lock()
	i, _ := x.findLocked(from)
	segments := slices.Clone(x.mu.segments[i:])
	x.mu.Unlock()
	for _, s := range segments {
		if s.base >= to {
			break
		}
		entries := s.entries
		if !s.loaded {
			if entries, err = x.load(s.base); err != nil {
				return nil, err
			}
		}
		all = append(all, entries...)
	}
	return all, nil
}

// rewritten follows the log, which made one segment of those with bases in [from, to) and replaced their files; has tells whether
// the new one has an index.
func (x *txnIndex) rewritten(from, to int64, has bool) {
	x.mu.Lock()
	defer x.mu.Unlock()
	i, _ := x.findLocked(from)
	j, _ := x.findLocked(to)
	x.mu.segments = slices.Delete(x.mu.segments, i, j)
	if has {
		x.mu.segments = slices.Insert(x.mu.segments, i, txnSegment{base: from})
	}
}
