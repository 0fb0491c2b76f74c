package server

import (
	"context"
	"iter"
	"log/slog"
	"strconv"
	"time"

	"github.com/google/uuid"
	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/cluster"
	"oncelog/coordinator"
	"oncelog/groupcoordinator"
	"oncelog/partition"
	"oncelog/protocol"
	"oncelog/txncoordinator"
)

// completionWait bounds how long a request waits for the end of a transaction whose markers are being written: many
// times what that takes on a healthy node, and not much to a client that would have to come again.
const completionWait = 50 * time.Millisecond

// txnSettings are what the transaction coordinator has from configuration and metadata, as they are now.
func (s *Server) txnSettings() txncoordinator.Settings {
	cfg := s.cfg()
	millis := func(key string) time.Duration { return time.Duration(cfg.Int(key)) * time.Millisecond }
	return txncoordinator.Settings{
		TransactionVersion: s.image().Features()["transaction.version"],
		TimeoutInterval:    millis("transaction.abort.timed.out.transaction.cleanup.interval.ms"),
		Expiration:         millis("transactional.id.expiration.ms"),
		ExpirationInterval: millis("transaction.remove.expired.transaction.cleanup.interval.ms"),
	}
}

// openCoordinators makes the hosts of the two coordinators. They coordinate nothing until partitions are loaded.
func (s *Server) openCoordinators(context.Context) error {
	listener, _ := s.static.Value("inter.broker.listener.name")
	s.peers = &peers{
		dial:     s.dial,
		broker:   func(id int32) *cluster.Broker { return s.image().Broker(id) },
		listener: listener,
		clientID: "broker-" + strconv.Itoa(int(s.nodeID)),
		conns:    make(map[int32]*peer),
	}
	s.txns, s.sender = s.newTxnHost(s.registry)
	s.groups = s.newGroupHost(s.registry)
	return nil
}

// closeCoordinators ends both; whoever still waits for an answer gets NOT_COORDINATOR.
func (s *Server) closeCoordinators(context.Context) error {
	s.groups.Close()
	s.txns.Close()
	s.sender.Close()
	s.peers.close()
	return nil
}

// newGroupHost makes the host of the group coordinator's partitions.
func (s *Server) newGroupHost(registerer prometheus.Registerer) *coordinator.Host[*groupcoordinator.Machine] {
	cfg := s.static
	codec, _ := protocolCodec(int8(cfg.Int("offsets.topic.compression.codec")))
	options := groupcoordinator.Options{
		Settings: groupcoordinator.Settings{
			SessionTimeoutMinMillis:     int32(cfg.Int("group.min.session.timeout.ms")),
			SessionTimeoutMaxMillis:     int32(cfg.Int("group.max.session.timeout.ms")),
			MaxSize:                     int32(cfg.Int("group.max.size")),
			InitialRebalanceDelayMillis: int32(cfg.Int("group.initial.rebalance.delay.ms")),
			MetadataMaxBytes:            int32(cfg.Int("offset.metadata.max.bytes")),
			RetentionMillis:             cfg.Int("offsets.retention.minutes") * time.Minute.Milliseconds(),
			RetentionCheckMillis:        cfg.Int("offsets.retention.check.interval.ms"),
		},
		NewUUID: uuid.NewString,
		Logger:  s.loggers.of(logGroups),
		Metrics: groupcoordinator.NewMetrics(registerer),
	}
	host := coordinator.NewHost(coordinator.Options[*groupcoordinator.Machine]{
		Topic:      offsetsTopic,
		New:        func(index, epoch int32) *groupcoordinator.Machine { return groupcoordinator.New(index, epoch, options) },
		Codec:      codec,
		Logger:     s.loggers.of(logGroups),
		Registerer: registerer,
	})
	if registerer != nil {
		registerer.MustRegister(groupCollector{host})
	}
	return host
}

// protocolCodec is the codec of that number, or none if there is no such.
func protocolCodec(n int8) (protocol.Codec, bool) {
	if c := protocol.Codec(n); c.Valid() {
		return c, true
	}
	return protocol.CodecNone, false
}

// newTxnHost makes the host of the transaction coordinator's partitions, and the sender of its markers.
func (s *Server) newTxnHost(registerer prometheus.Registerer) (*coordinator.Host[*txncoordinator.Machine], *txncoordinator.Sender) {
	metrics := txncoordinator.NewMetrics(registerer)
	sender := txncoordinator.NewSender(txncoordinator.SenderOptions{
		NodeID:  s.nodeID,
		Leader:  s.markerDestination,
		Local:   s.writeMarkers,
		Remote:  s.writeRemoteMarkers,
		Changed: s.ctrl.Changed,
		Logger:  s.loggers.of(logTransactions),
		Metrics: metrics,
	})
	host := coordinator.NewHost(coordinator.Options[*txncoordinator.Machine]{
		Topic: transactionsTopic,
		New: func(_, epoch int32) *txncoordinator.Machine {
			return txncoordinator.New(txncoordinator.Options{
				CoordinatorEpoch: epoch,
				NextProducerID:   s.pids.tryNext,
				Settings:         s.txnSettings,
				Metrics:          metrics,
			})
		},
		Effects: sender.Send,
		// Who sees only a part of the transactions would decide wrongly: better nobody does.
		LoadFailed: kerr.CoordinatorLoadInProgress,
		Logger:     s.loggers.of(logTransactions),
		Registerer: registerer,
	})
	if registerer != nil {
		registerer.MustRegister(txnCollector{host})
	}
	return host, sender
}

// loadCoordinator makes this node the coordinator of what lives on a partition of an internal topic, which it leads at
// epoch. It returns at once. Other topics are ignored.
func (s *Server) loadCoordinator(topic string, index, epoch int32, p *partition.Partition) {
	switch topic {
	case transactionsTopic:
		s.txns.Load(index, epoch, coordinatorLog{p.CoordinatorLog(epoch), p})
	case offsetsTopic:
		s.groups.Load(index, epoch, coordinatorLog{p.CoordinatorLog(epoch), p})
	}
}

// unloadCoordinator ends that, if the partition is loaded at epoch or an older one.
func (s *Server) unloadCoordinator(topic string, index, epoch int32) {
	switch topic {
	case transactionsTopic:
		s.txns.Unload(index, epoch)
	case offsetsTopic:
		s.groups.Unload(index, epoch)
	}
}

// coordinatorLog is a partition as the coordinator package wants to see it.
type coordinatorLog struct {
	*partition.CoordinatorLog
	partition *partition.Partition
}

func (l coordinatorLog) Append(a coordinator.AppendRequest) (lastOffset int64, err error) {
	guard, _ := a.Guard.(partition.Guard)
	return l.CoordinatorLog.Append(a.Batch, guard, a.TransactionVersion, a.Now)
}

func (l coordinatorLog) Batches(from int64) iter.Seq2[protocol.Batch, error] {
	return l.CoordinatorLog.Batches(max(from, l.partition.Offsets().Start))
}

// coordinates tells whether this node is the coordinator of a partition, and takes requests.
func (s *Server) coordinates(topic string, index int32) bool {
	var err error
	if topic == transactionsTopic {
		_, err = s.txns.Get(index)
	} else {
		_, err = s.groups.Get(index)
	}
	return err == nil
}

// awaitCoordinator waits until this node is.
func (s *Server) awaitCoordinator(ctx context.Context, topic string, index int32) error {
	if topic == transactionsTopic {
		return s.txns.AwaitLoaded(ctx, index)
	}
	return s.groups.AwaitLoaded(ctx, index)
}

// txnShard gives the shard that owns a transactional id, or says why there is none here.
func (s *Server) txnShard(id string) (*coordinator.Shard[*txncoordinator.Machine], error) {
	t := s.image().Topic(transactionsTopic)
	if t == nil {
		return nil, kerr.NotCoordinator
	}
	return s.txns.Get(protocol.CoordinatorPartition(id, int32(len(t.Partitions))))
}

// awaitCoordinated is the pending of an operation: f makes the response of its result.
func awaitCoordinated(p coordinator.Pending, f func(v any, err error) kmsg.Response) pending {
	if p.Ready() {
		return answer(f(p.Await(context.Background())))
	}
	return await(func(ctx context.Context) kmsg.Response { return f(p.Await(ctx)) })
}

// requestTimeout is how long the broker waits for others before it answers.
func (s *Server) requestTimeout() time.Duration {
	return time.Duration(s.cfg().Int("request.timeout.ms")) * time.Millisecond
}

// markerDestination gives the broker that can write a marker into a partition.
func (s *Server) markerDestination(topic string, index int32) (broker int32, exists bool) {
	im := s.image()
	t := im.Topic(topic)
	if t == nil || int(index) >= len(t.Partitions) {
		return -1, false
	}
	b := im.Broker(t.Partitions[index].Leader)
	if b == nil || b.Fenced {
		return -1, true
	}
	return b.ID, true
}

// txnCollector tells of the transactions that this node coordinates, when it is asked.
type txnCollector struct {
	host *coordinator.Host[*txncoordinator.Machine]
}

var (
	txnStates = prometheus.NewDesc("oncelog_transactional_ids",
		"Transactional ids that this node coordinates, by state.", []string{"state"}, nil)
	txnOldest = prometheus.NewDesc("oncelog_transaction_oldest_seconds",
		"Age of the oldest open transaction that this node coordinates; 0 if there is none.", nil, nil)
)

// collectWait bounds how long a scrape waits for a coordinator.
const collectWait = time.Second

func (c txnCollector) Describe(ch chan<- *prometheus.Desc) {
	ch <- txnStates
	ch <- txnOldest
}

func (c txnCollector) Collect(ch chan<- prometheus.Metric) {
	ctx, cancel := context.WithTimeout(context.Background(), collectWait)
	defer cancel()
	var sum txncoordinator.Summary
	shards, _ := c.host.Shards()
	for _, shard := range shards {
		v, err := shard.Do(func(m *txncoordinator.Machine, now time.Time, to coordinator.Token) coordinator.Output {
			return m.Summarize(now, to)
		}).Await(ctx)
		if err != nil {
			continue
		}
		part := v.(txncoordinator.Summary)
		for state, n := range part.States {
			sum.States[state] += n
		}
		if !part.OldestStart.IsZero() && (sum.OldestStart.IsZero() || part.OldestStart.Before(sum.OldestStart)) {
			sum.OldestStart = part.OldestStart
		}
	}
	for state, n := range sum.States {
		ch <- prometheus.MustNewConstMetric(txnStates, prometheus.GaugeValue, float64(n), kmsg.TransactionState(state).String())
	}
	age := 0.0
	if !sum.OldestStart.IsZero() {
		age = time.Since(sum.OldestStart).Seconds()
	}
	ch <- prometheus.MustNewConstMetric(txnOldest, prometheus.GaugeValue, age)
}

// writeRemoteMarkers has another broker write markers.
func (s *Server) writeRemoteMarkers(ctx context.Context, broker int32, req *kmsg.WriteTxnMarkersRequest) (*kmsg.WriteTxnMarkersResponse, error) {
	ctx, cancel := context.WithTimeout(ctx, s.requestTimeout())
	defer cancel()
	resp, err := s.peers.request(ctx, broker, req)
	if err != nil {
		s.log.Info("other broker did not take transaction markers", slog.Int("broker", int(broker)), slog.Any("error", err))
		return nil, err
	}
	return resp.(*kmsg.WriteTxnMarkersResponse), nil
}
