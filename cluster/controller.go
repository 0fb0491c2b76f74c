package cluster

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"runtime/debug"
	"time"

	"github.com/hashicorp/raft"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/config"
)

// Options configure a Controller. NodeID, Dir and Config are required.
type Options struct {
	NodeID     int32
	ClusterID  string         // of meta.properties, which must be that of the metadata; "": Register tells
	Dir        string         // where log, votes and snapshots live; created if missing
	Stores     StoresFunc     // nil: on disk in Dir
	Config     *config.Broker // static settings of this node
	Logger     *slog.Logger   // nil: slog.Default()
	Registerer prometheus.Registerer
	// Failed, if not nil, is told when nothing can be written any more: the disk has failed.
	Failed func(error)
}

// Stores are where raft keeps its log, its term and vote, and its snapshots. Close releases them. Room, if there is one, is asked before anything
// new is decided: its error refuses that, while raft goes on. Err, if there is one, says why nothing can be written any more.
type Stores struct {
	Log       raft.LogStore
	Stable    raft.StableStore
	Snapshots raft.SnapshotStore
	Room      func() error
	Err       func() error
	Close     func() error
}

// StoresFunc opens the stores that live in dir.
type StoresFunc func(dir string, logger *slog.Logger) (Stores, error)

// Registration is what a broker says of itself when it starts.
type Registration struct {
	BrokerID    int32
	ClusterID   string
	Incarnation [16]byte // new with each start of the process
	Endpoints   []Endpoint
	Rack        *string
	LogDirs     [][16]byte // directory ids
}

// Pauses after an election that came to nothing, because the disk is full as a rule. They double.
const (
	electPauseMin = 100 * time.Millisecond
	electPauseMax = 5 * time.Second
)

// maxProposals is how many requests are decided at once and share an entry.
const maxProposals = 64

// Controller is this node's part in the cluster's metadata. Its methods may be called from any goroutine. Requests are decided one after the
// other by one goroutine, on the image that the ones before made; those that wait while an entry is written share the next.
type Controller struct {
	options Options
	board   *board
	machine *fsm
	voter   *voter
	metrics *metrics

	proposals chan *proposal // unbuffered: who is not taken keeps waiting, or gives up
	stop      context.CancelFunc
	ended     chan struct{} // closed when the deciding goroutine has ended
}

// proposal is one request on its way to a decision.
type proposal struct {
	// decide is called with the image that the decision is based on. What it returns is committed before done is told.
	decide func(d *decider) []record
	done   chan error // capacity 1
}

// Open reads what is stored and starts taking part; a lone voter leads, and its image is up to date, when it returns.
func Open(o Options) (*Controller, error) {
	if o.Logger == nil {
		o.Logger = slog.Default()
	}
	if o.Stores == nil {
		o.Stores = openStores
	}
	stores, err := o.Stores(o.Dir, o.Logger)
	if err != nil {
		return nil, fmt.Errorf("metadata in %s: %w", o.Dir, err)
	}
	c := &Controller{options: o, board: newBoard(), proposals: make(chan *proposal), ended: make(chan struct{})}
	c.machine = &fsm{board: c.board}
	if c.voter, err = openVoter(o.NodeID, c.machine, stores, raftLogger(o.Logger)); err != nil {
		return nil, fmt.Errorf("metadata in %s: %w", o.Dir, err)
	}
	ctx, cancel := context.WithCancel(context.Background())
	c.stop = cancel
	term, err := c.elect(ctx)
	if err == nil {
		err = c.machine.broken()
	}
	if id := c.Image().ClusterID; err == nil && id != "" && o.ClusterID != "" && id != o.ClusterID {
		err = fmt.Errorf("it belongs to cluster %s, this node to %s", id, o.ClusterID)
	}
	if err != nil {
		cancel()
		return nil, errors.Join(fmt.Errorf("metadata in %s: %w", o.Dir, err), c.voter.close())
	}
	c.metrics = newMetrics(o.Registerer, c)
	go c.run(ctx, term)
	return c, nil
}

// Image returns the newest image that this node knows; never nil.
func (c *Controller) Image() *Image { return c.board.image.Load() }

// Changed returns a channel that is closed once there is a newer image than the one that Image returns after this call.
func (c *Controller) Changed() <-chan struct{} { return c.board.wait() }

// Close stops taking part. What waits for a decision is told NOT_CONTROLLER.
func (c *Controller) Close() error {
	c.stop()
	<-c.ended
	c.metrics.close()
	return c.voter.close()
}

// run decides, as long as this node leads.
func (c *Controller) run(ctx context.Context, term uint64) {
	defer close(c.ended)
	for ctx.Err() == nil {
		err := c.lead(ctx, term)
		if err != nil {
			c.tellFailed()
		}
		for pause := electPauseMin; err != nil && ctx.Err() == nil; pause = min(2*pause, electPauseMax) {
			c.options.Logger.Error("metadata cannot be written", slog.Any("error", err), slog.Duration("retry_in", pause))
			c.refuse(ctx, pause, err)
			term, err = c.elect(ctx)
		}
	}
}

// tellFailed tells of stores that are at their end.
func (c *Controller) tellFailed() {
	failure := c.voter.stores.Err
	if failure == nil || c.options.Failed == nil {
		return
	}
	if err := failure(); err != nil {
		c.options.Failed(err)
	}
}

// elect makes this node the controller, with an image that holds all that was committed before.
func (c *Controller) elect(ctx context.Context) (term uint64, err error) {
	if term, err = c.voter.elect(ctx); err != nil {
		return 0, err
	}
	c.board.update(func(im *Image) *Image {
		if im.ControllerID == c.options.NodeID {
			return nil
		}
		next := *im
		next.ControllerID = c.options.NodeID
		return &next
	})
	return term, nil
}

// refuse answers all that comes within the pause, and while an election could not be won: with the error, which tells the client to try again.
func (c *Controller) refuse(ctx context.Context, pause time.Duration, err error) {
	timer := time.NewTimer(pause)
	defer timer.Stop()
	for {
		select {
		case p := <-c.proposals:
			p.done <- storageError(err)
		case <-timer.C:
			return
		case <-ctx.Done():
			return
		}
	}
}

// lead decides until ctx ends, or until a decision could not be written: what became of it is then unknown until the next barrier.
func (c *Controller) lead(ctx context.Context, term uint64) error {
	for {
		select {
		case <-ctx.Done():
			return nil
		case p := <-c.proposals:
			if err := c.decide(term, c.gather(p)); err != nil {
				return err
			}
		}
	}
}

// gather takes whoever else is waiting.
func (c *Controller) gather(p *proposal) []*proposal {
	ps := []*proposal{p}
	for len(ps) < maxProposals {
		select {
		case p := <-c.proposals:
			ps = append(ps, p)
		default:
			return ps
		}
	}
	return ps
}

// decide takes the decisions on proposals, each on the image that the one before makes, and writes them as one entry.
func (c *Controller) decide(term uint64, ps []*proposal) error {
	began := time.Now()
	d := decider{im: c.Image(), static: c.options.Config, nodeID: c.options.NodeID, newID: newTopicID}
	var all []record
	refusals := make([]error, len(ps))
	err := c.machine.broken()
	for i := 0; i < len(ps) && err == nil; i++ {
		var records []record
		if records, refusals[i] = c.try(ps[i], d); refusals[i] != nil {
			continue
		}
		all = append(all, records...)
		if len(records) > 0 && i+1 < len(ps) {
			d.im, err = d.im.replay(d.im.Index+1, records)
		}
	}
	lost := false
	if room := c.voter.stores.Room; err == nil && len(all) > 0 && room != nil {
		err = room()
	}
	if err == nil && len(all) > 0 {
		f := c.voter.raft.Apply(encodeEntry(term, all), 0)
		if err = f.Error(); err != nil {
			lost = true
		} else if refusal, ok := f.Response().(error); ok {
			err, lost = refusal, true
		}
		c.metrics.wrote(time.Since(began))
	}
	for i, p := range ps {
		if refusals[i] == nil {
			refusals[i] = storageError(err)
		}
		p.done <- refusals[i]
	}
	if lost {
		return err
	}
	return nil
}

// try takes one decision. A panic is a bug that the request has found: it costs that request its answer, and nothing else, as nothing has been
// written.
func (c *Controller) try(p *proposal, d decider) (records []record, err error) {
	defer func() {
		if bug := recover(); bug != nil {
			c.options.Logger.Error("metadata request cannot be decided", slog.Any("panic", bug), slog.String("stack", string(debug.Stack())))
			records, err = nil, kerr.UnknownServerError
		}
	}()
	return p.decide(&d), nil
}

// storageError is a failed write as a client sees it: in any case one that is worth another try.
func storageError(err error) error {
	switch {
	case err == nil:
		return nil
	case errors.Is(err, errStaleTerm), errors.Is(err, raft.ErrLeadershipLost), errors.Is(err, raft.ErrNotLeader), errors.Is(err, raft.ErrRaftShutdown):
		return fmt.Errorf("%w: %w", err, kerr.NotController)
	}
	return fmt.Errorf("%w: %w", err, kerr.KafkaStorageError)
}

// do has a decision taken and waits until it is committed and part of the image. What decide has put into its caller's variables may be looked
// at only if do returns nil.
func (c *Controller) do(ctx context.Context, decide func(d *decider) []record) error {
	p := &proposal{decide: decide, done: make(chan error, 1)}
	select {
	case c.proposals <- p:
	case <-c.ended:
		return kerr.NotController
	case <-ctx.Done():
		return kerr.RequestTimedOut
	}
	select {
	case err := <-p.done:
		return err
	case <-ctx.Done():
		return kerr.RequestTimedOut
	}
}

// Register makes the broker known, and raises the leader epoch of each partition that it leads. Registering again in the same life (Incarnation)
// changes nothing.
func (c *Controller) Register(ctx context.Context, r Registration) (brokerEpoch int64, err error) {
	var refusal error
	err = c.do(ctx, func(d *decider) (records []record) {
		records, refusal = d.register(r)
		return records
	})
	if err == nil {
		err = refusal
	}
	if err != nil {
		return 0, err
	}
	return c.Image().Broker(r.BrokerID).Epoch, nil
}

// CreateTopics answers a CreateTopics request.
func (c *Controller) CreateTopics(ctx context.Context, req *kmsg.CreateTopicsRequest) *kmsg.CreateTopicsResponse {
	var resp *kmsg.CreateTopicsResponse
	err := c.do(ctx, func(d *decider) (records []record) {
		resp, records = d.createTopics(req)
		return records
	})
	if err != nil {
		return failCreateTopics(req, err)
	}
	return resp
}

// DeleteTopics answers a DeleteTopics request.
func (c *Controller) DeleteTopics(ctx context.Context, req *kmsg.DeleteTopicsRequest) *kmsg.DeleteTopicsResponse {
	switch {
	case !c.options.Config.Bool("delete.topic.enable") && req.Version < 3:
		return failDeleteTopics(req, kerr.InvalidRequest)
	case !c.options.Config.Bool("delete.topic.enable"):
		return failDeleteTopics(req, kerr.TopicDeletionDisabled)
	}
	var resp *kmsg.DeleteTopicsResponse
	err := c.do(ctx, func(d *decider) (records []record) {
		resp, records = d.deleteTopics(req)
		return records
	})
	if err != nil {
		return failDeleteTopics(req, err)
	}
	return resp
}

// CreatePartitions answers a CreatePartitions request.
func (c *Controller) CreatePartitions(ctx context.Context, req *kmsg.CreatePartitionsRequest) *kmsg.CreatePartitionsResponse {
	var resp *kmsg.CreatePartitionsResponse
	err := c.do(ctx, func(d *decider) (records []record) {
		resp, records = d.createPartitions(req)
		return records
	})
	if err != nil {
		return failCreatePartitions(req, err)
	}
	return resp
}

// AlterConfigs answers an AlterConfigs request.
func (c *Controller) AlterConfigs(ctx context.Context, req *kmsg.AlterConfigsRequest) *kmsg.AlterConfigsResponse {
	resp := req.ResponseKind().(*kmsg.AlterConfigsResponse)
	for _, a := range c.alter(ctx, legacyAlterations(req), req.ValidateOnly) {
		r := kmsg.NewAlterConfigsResponseResource()
		r.ResourceType, r.ResourceName = a.kind, a.name
		r.ErrorCode, r.ErrorMessage = codeAndText(a.err)
		resp.Resources = append(resp.Resources, r)
	}
	return resp
}

// IncrementalAlterConfigs answers an IncrementalAlterConfigs request.
func (c *Controller) IncrementalAlterConfigs(ctx context.Context, req *kmsg.IncrementalAlterConfigsRequest) *kmsg.IncrementalAlterConfigsResponse {
	resp := req.ResponseKind().(*kmsg.IncrementalAlterConfigsResponse)
	for _, a := range c.alter(ctx, incrementalAlterations(req), req.ValidateOnly) {
		r := kmsg.NewIncrementalAlterConfigsResponseResource()
		r.ResourceType, r.ResourceName = a.kind, a.name
		r.ErrorCode, r.ErrorMessage = codeAndText(a.err)
		resp.Resources = append(resp.Resources, r)
	}
	return resp
}

// alter has the alterations decided; each holds its error afterwards.
func (c *Controller) alter(ctx context.Context, as []alteration, validateOnly bool) []alteration {
	decided := append([]alteration(nil), as...) // not the caller's, who may have gone when it is decided
	err := c.do(ctx, func(d *decider) []record {
		records := d.alterConfigs(decided)
		if validateOnly {
			return nil
		}
		return records
	})
	if err == nil {
		return decided
	}
	for i := range as {
		as[i].err = err
	}
	return as
}

// AllocateProducerIDs hands out n ids from first on, which nobody had and nobody gets again.
func (c *Controller) AllocateProducerIDs(ctx context.Context, brokerID int32, brokerEpoch int64) (first int64, n int32, err error) {
	var block int64
	var refusal error
	err = c.do(ctx, func(d *decider) (records []record) {
		block, records, refusal = d.allocateProducerIDs(brokerID, brokerEpoch)
		return records
	})
	if err == nil {
		err = refusal
	}
	if err != nil {
		return 0, 0, err
	}
	return block, producerIDBlock, nil
}
