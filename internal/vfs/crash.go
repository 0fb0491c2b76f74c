package vfs

import "math/rand/v2"

// CrashClone returns the file system as a loss of power at this moment could leave it, chosen by rng; the same
// choices give the same clone. What was synced is there. Of each file's unsynced bytes some are: none, all, a
// prefix, or any of its pages, with the size at any value it may have had; a page that isn't there is as it was
// before or zero. Of the unsynced changes of directories the clone has a prefix (as a journal keeps them) or any
// that still make sense; a rename happens whole or not at all. Everything in the clone is durable and unlocked.
//
// With a nil rng everything has reached the disk: the state after a SIGKILL.
func (m *Mem) CrashClone(rng *rand.Rand) *Mem {
	m.mu.RLock()
	defer m.mu.RUnlock()
	c := &crasher{rng: rng, entries: map[*node]map[string]*node{}, copies: map[*node]*node{}}
	c.collect(m.mu.root)
	for _, ch := range m.mu.pending {
		for _, n := range []*node{ch.target, ch.from.dir, ch.to.dir} {
			c.collect(n)
		}
	}
	c.apply(m.mu.pending)

	clone := NewMem()
	clone.mu.now = m.mu.now
	clone.mu.capacity = m.mu.capacity
	clone.mu.root = c.copy(m.mu.root)
	for _, n := range c.copies {
		clone.mu.used += int64(len(n.data))
	}
	return clone
}

// A crasher builds one clone.
type crasher struct {
	rng     *rand.Rand
	entries map[*node]map[string]*node // each directory's entries in the clone, as nodes of the original
	copies  map[*node]*node
}

// collect notes the durable entries of a directory and of all below it.
func (c *crasher) collect(dir *node) {
	if dir == nil || !dir.isDir() || c.entries[dir] != nil {
		return
	}
	entries := make(map[string]*node, len(dir.durableEntries))
	c.entries[dir] = entries
	for name, child := range dir.durableEntries {
		entries[name] = child
		c.collect(child)
	}
}

func (c *crasher) apply(pending []change) {
	n, sparse := len(pending), false
	if c.rng != nil {
		n = c.rng.IntN(len(pending) + 1)
		if sparse = c.rng.IntN(2) == 0; sparse {
			n = len(pending)
		}
	}
	for _, ch := range pending[:n] {
		if sparse && c.rng.IntN(2) == 0 {
			continue
		}
		c.applyOne(ch)
	}
}

// applyOne makes one change unless one that it builds on was left out.
func (c *crasher) applyOne(ch change) {
	from, to := c.entries[ch.from.dir], c.entries[ch.to.dir]
	if ch.from.dir != nil && from[ch.from.name] != ch.target {
		return
	}
	if ch.from.dir == nil && to[ch.to.name] != nil {
		return
	}
	if ch.from.dir != nil {
		delete(from, ch.from.name)
	}
	if ch.to.dir != nil {
		to[ch.to.name] = ch.target
	}
}

func (c *crasher) copy(n *node) *node {
	if done := c.copies[n]; done != nil {
		return done
	}
	clone := &node{modTime: n.modTime}
	c.copies[n] = clone
	if !n.isDir() {
		clone.data = c.content(n)
		clone.durable = append([]byte(nil), clone.data...)
		return clone
	}
	clone.entries, clone.durableEntries = map[string]*node{}, map[string]*node{}
	for _, name := range sortedNames(c.entries[n]) {
		child := c.copy(c.entries[n][name])
		clone.entries[name], clone.durableEntries[name] = child, child
	}
	return clone
}

// content is what the clone has of a file.
func (c *crasher) content(n *node) []byte {
	if c.rng == nil {
		return append([]byte(nil), n.data...)
	}
	if !n.dirty {
		return append([]byte(nil), n.durable...)
	}
	switch c.rng.IntN(4) {
	case 0:
		return append([]byte(nil), n.durable...)
	case 1:
		return append([]byte(nil), n.data...)
	case 2:
		return c.torn(n)
	default:
		return c.pages(n)
	}
}

// torn writes the new content up to some byte over the old.
func (c *crasher) torn(n *node) []byte {
	from := min(n.dirtyFrom, int64(len(n.data)))
	cut := from + c.rng.Int64N(int64(len(n.data))-from+1)
	out := append([]byte(nil), n.data[:cut]...)
	if int64(len(n.durable)) > cut && n.sizeMin > cut {
		out = append(out, n.durable[cut:min(int64(len(n.durable)), n.sizeMin)]...)
	}
	return out
}

// pages takes each page from the old content, from the new one, or leaves it zero where the file had been cut.
func (c *crasher) pages(n *node) []byte {
	lo := min(n.sizeMin, int64(len(n.durable)), int64(len(n.data)))
	hi := int64(max(len(n.durable), len(n.data)))
	size := lo + c.rng.Int64N(hi-lo+1)
	if c.rng.IntN(2) == 0 {
		size = int64(len(n.data))
	}
	out := make([]byte, size)
	page := []int64{16, 512, 4096}[c.rng.IntN(3)]
	for at := int64(0); at < size; at += page {
		end := min(at+page, size)
		source := n.data
		switch {
		case end <= n.dirtyFrom:
		case c.rng.IntN(2) == 0:
			source = n.durable
		}
		if at < int64(len(source)) {
			copy(out[at:end], source[at:])
		}
	}
	// A page that straddles dirtyFrom may not lose what is durable below it.
	copy(out, n.data[:min(n.dirtyFrom, size, int64(len(n.data)))])
	return out
}
