package server

import (
	"context"
	"fmt"
	"log/slog"
	"sync"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// How long producerIDs waits after a block could not be had. The pause doubles.
const (
	producerIDPauseMin = 50 * time.Millisecond
	producerIDPauseMax = time.Second
)

// producerIDWait bounds how long a request waits for a block: far longer than a healthy controller takes.
const producerIDWait = time.Second

// producerIDs hands out producer ids, each once for ever: from blocks that the controller gave to this node alone and wrote down before it
// did. A block that a restart leaves half used is not used again.
//
// It holds two blocks and asks for the second when the first is used to 90 %, so nobody waits for the controller.
type producerIDs struct {
	allocate func(ctx context.Context) (first int64, n int32, err error)
	log      *slog.Logger

	ctx     context.Context
	cancel  context.CancelFunc
	fetches sync.WaitGroup

	mu             sync.Mutex // guards what follows
	current, spare idBlock
	fetching       bool          // one goroutine at most asks the controller
	filled         chan struct{} // closed when a block has come
	end            int64         // first id above all blocks that were had
}

// idBlock is the ids from next up to end, exclusive.
type idBlock struct{ next, end, size int64 }

func (b idBlock) left() int64 { return b.end - b.next }

func newProducerIDs(allocate func(ctx context.Context) (int64, int32, error), log *slog.Logger) *producerIDs {
	p := &producerIDs{allocate: allocate, log: log, filled: make(chan struct{})}
	p.ctx, p.cancel = context.WithCancel(context.Background())
	return p
}

// tryNext gives an id that nobody had. COORDINATOR_LOAD_IN_PROGRESS means that there is none right now and that the client should come again:
// older clients take anything else for fatal. It never waits.
func (p *producerIDs) tryNext() (int64, error) {
	p.mu.Lock()
	defer p.mu.Unlock()
	if p.current.left() == 0 {
		p.current, p.spare = p.spare, idBlock{}
	}
	if p.current.left() == 0 {
		p.fetchLocked()
		return -1, fmt.Errorf("no producer id at hand: %w", kerr.CoordinatorLoadInProgress)
	}
	id := p.current.next
	p.current.next++
	if p.spare.left() == 0 && p.current.left() <= p.current.size/10 {
		p.fetchLocked()
	}
	return id, nil
}

// next waits for an id, at most for producerIDWait.
func (p *producerIDs) next(ctx context.Context) (int64, error) {
	ctx, cancel := context.WithTimeout(ctx, producerIDWait)
	defer cancel()
	for {
		p.mu.Lock()
		filled := p.filled
		p.mu.Unlock()
		id, err := p.tryNext()
		if err == nil {
			return id, nil
		}
		select {
		case <-filled:
		case <-ctx.Done():
			return -1, err
		}
	}
}

// fill gets the first block, so that the first producer need not come twice.
func (p *producerIDs) fill(ctx context.Context) error {
	first, n, err := p.allocate(ctx)
	if err != nil {
		return fmt.Errorf("first block of producer ids: %w", err)
	}
	p.mu.Lock()
	defer p.mu.Unlock()
	return p.addLocked(first, n)
}

// addLocked takes a block in.
func (p *producerIDs) addLocked(first int64, n int32) error {
	if first < p.end || n <= 0 {
		return fmt.Errorf("block of %d producer ids from %d on, but those below %d were given before", n, first, p.end)
	}
	b := idBlock{first, first + int64(n), int64(n)}
	p.end = b.end
	if p.current.left() == 0 {
		p.current = b
	} else {
		p.spare = b
	}
	close(p.filled)
	p.filled = make(chan struct{})
	return nil
}

func (p *producerIDs) fetchLocked() {
	if p.fetching || p.ctx.Err() != nil {
		return
	}
	p.fetching = true
	p.fetches.Go(p.fetch)
}

// fetch asks for a block until it has one.
func (p *producerIDs) fetch() {
	for pause := producerIDPauseMin; ; pause = min(2*pause, producerIDPauseMax) {
		first, n, err := p.allocate(p.ctx)
		p.mu.Lock()
		if err == nil {
			err = p.addLocked(first, n)
		}
		if err == nil || p.ctx.Err() != nil {
			p.fetching = false
			p.mu.Unlock()
			return
		}
		p.mu.Unlock()
		p.log.Warn("no block of producer ids", slog.Any("error", err), slog.Duration("retry_in", pause))
		timer := time.NewTimer(pause)
		select {
		case <-timer.C:
		case <-p.ctx.Done():
			timer.Stop()
		}
	}
}

// close ends the goroutine; no more blocks are had.
func (p *producerIDs) close() {
	p.cancel()
	p.fetches.Wait()
}

// freshProducerID answers an InitProducerId that names no transaction.
func (s *Server) freshProducerID(resp *kmsg.InitProducerIDResponse) pending {
	fill := func(id int64, err error) kmsg.Response {
		if err != nil {
			resp.ErrorCode = s.codeOf(err)
			return resp
		}
		resp.ProducerID, resp.ProducerEpoch = id, 0
		return resp
	}
	if id, err := s.pids.tryNext(); err == nil {
		return answer(fill(id, nil))
	}
	return await(func(ctx context.Context) kmsg.Response { return fill(s.pids.next(ctx)) })
}
