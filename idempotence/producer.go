package idempotence

// windowBatches is how many batches of a producer are remembered: as many as an idempotent client may have in flight.
const windowBatches = 5

// batch is one remembered batch of a producer.
type batch struct {
	lastSequence int32
	offsetDelta  int32 // its last offset less its first
	lastOffset   int64
	timestamp    int64 // the maximum of its records, milliseconds
}

func (b *batch) firstSequence() int32 { return back(b.lastSequence, b.offsetDelta) }
func (b *batch) firstOffset() int64   { return b.lastOffset - int64(b.offsetDelta) }

// producer is what is known of one producer id.
type producer struct {
	epoch            int16 // -1 unknown
	count            uint8 // of batches
	head             uint8 // position of the oldest
	coordinatorEpoch int32 // -1 before the first marker
	lastTimestamp    int64 // of the last batch or marker, by its records; -1 unknown
	appended         int64 // when that was appended, by our clock
	txnFirst         int64 // first offset of the open transaction, -1 without one
	batches          [windowBatches]batch
}

func newProducer() *producer {
	return &producer{epoch: none, coordinatorEpoch: none, lastTimestamp: none, txnFirst: none}
}

// at gives the i-th oldest batch.
func (p *producer) at(i int) *batch {
	return &p.batches[(int(p.head)+i)%windowBatches]
}

// newest gives the last batch, nil if none is known.
func (p *producer) newest() *batch {
	if p.count == 0 {
		return nil
	}
	return p.at(int(p.count) - 1)
}

// lastSequence is that of the newest batch, -1 without one.
func (p *producer) lastSequence() int32 {
	if b := p.newest(); b != nil {
		return b.lastSequence
	}
	return none
}

// setEpoch enters an epoch; the batches of another one are no longer remembered.
func (p *producer) setEpoch(epoch int16) {
	if p.epoch != epoch {
		p.epoch = epoch
		p.count, p.head = 0, 0
	}
}

// add remembers a batch, and forgets the oldest when there are too many.
func (p *producer) add(b batch) {
	if p.count == windowBatches {
		p.batches[p.head] = b
		p.head = (p.head + 1) % windowBatches
		return
	}
	*p.at(int(p.count)) = b
	p.count++
}

// find gives the remembered batch with exactly these sequences, nil if there is none.
func (p *producer) find(first, last int32) *batch {
	for i := int(p.count) - 1; i >= 0; i-- {
		if b := p.at(i); b.lastSequence == last && b.firstSequence() == first {
			return b
		}
	}
	return nil
}
