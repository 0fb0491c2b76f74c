package server

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"sync"
	"sync/atomic"
	"time"

	"github.com/prometheus/client_golang/prometheus"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/cluster"
	"oncelog/config"
	"oncelog/coordinator"
	"oncelog/groupcoordinator"
	"oncelog/internal/vfs"
	"oncelog/partition"
	"oncelog/txncoordinator"
)

// Options are what a server gets from its process. Config is needed; the zero
// values of the others are the real thing.
type Options struct {
	Config *config.Broker
	FS     vfs.FS // nil: the operating system's
	// Listen opens a listener, Dial a connection to another broker.
	Listen     func(ctx context.Context, network, address string) (net.Listener, error)
	Dial       func(ctx context.Context, network, address string) (net.Conn, error)
	RaftStores cluster.StoresFunc    // nil: on disk
	Logger     *slog.Logger          // nil: slog.Default()
	Registry   prometheus.Registerer // nil: no metrics leave the server
}

// Server is one broker. Start and Stop are each called once.
type Server struct {
	// Immutable after New.
	log       *slog.Logger // of logServer
	network   *slog.Logger // of logNetwork
	loggers   *loggers
	fs        vfs.FS
	listen    func(ctx context.Context, network, address string) (net.Listener, error)
	dial      func(ctx context.Context, network, address string) (net.Conn, error)
	stores    cluster.StoresFunc
	registry  prometheus.Registerer
	metrics   *metrics
	memory    *memory
	large     *memory // see place
	sessions  *fetchSessions
	telemetry *telemetry
	nodeID    int32
	static    *config.Broker // without the dynamic layers

	// Immutable after Start.
	replicas    *partition.Dirs
	ctrl        *cluster.Controller
	brokerEpoch atomic.Int64 // of this life's registration; -1 before it
	txns        *coordinator.Host[*txncoordinator.Machine]
	groups      *coordinator.Host[*groupcoordinator.Machine]
	sender      *txncoordinator.Sender
	peers       *peers
	pids        *producerIDs
	reconciler  *reconciler
	moves       *moves
	listeners   []*listener

	conns         connections
	wakeful       wakeful
	lastSync      atomic.Pointer[conn]          // the connection that had a request wait for a disk last
	lastSyncSince atomic.Int64                  // since when no other has, in nanoseconds since epochStart
	creating      chan struct{}                 // one for each Metadata request whose topics are being created
	config        atomic.Pointer[config.Broker] // with the dynamic layers

	failed  chan error      // capacity 1: why the server can't go on
	ctx     context.Context // ends when connections must end
	cancel  context.CancelFunc
	running sync.WaitGroup // acceptors, connections, the idle watch, automatic creation of topics
	stops   []step         // what has been started, in that order; owned by Start, then by Stop
}

// New makes a server that has not begun anything.
func New(o Options) (*Server, error) {
	if o.Config == nil {
		return nil, errors.New("server needs a configuration")
	}
	if o.FS == nil {
		o.FS = vfs.OS
	}
	if o.Listen == nil {
		o.Listen = new(net.ListenConfig).Listen
	}
	if o.Dial == nil {
		o.Dial = new(net.Dialer).DialContext
	}
	if o.Registry == nil {
		o.Registry = prometheus.NewRegistry()
	}
	loggers := newLoggers(cmp.Or(o.Logger, slog.Default()).Handler())
	s := &Server{
		log:      loggers.of(logServer),
		network:  loggers.of(logNetwork),
		loggers:  loggers,
		fs:       o.FS,
		listen:   o.Listen,
		dial:     o.Dial,
		stores:   o.RaftStores,
		registry: o.Registry,
		static:   o.Config,
		nodeID:   int32(o.Config.Int("node.id")),
		sessions: newFetchSessions(int(o.Config.Int("max.incremental.fetch.session.cache.slots"))),
	}
	s.failed = make(chan error, 1)
	s.creating = make(chan struct{}, autoCreations)
	s.brokerEpoch.Store(-1)
	s.config.Store(o.Config)
	s.large = newMemory(largeTogether)
	s.memory = newMemory(requestMemory(o.Config.Int("queued.max.request.bytes"), o.Config.Int("socket.request.max.bytes")))
	s.metrics = newMetrics(o.Registry, s)
	s.telemetry = newTelemetry(int(o.Config.Int("telemetry.max.bytes")), o.Registry)
	s.memory.relieve = s.conns.relieve
	s.moves = &moves{server: s}
	s.conns.init()
	s.ctx, s.cancel = context.WithCancel(context.Background())
	s.wakeful.stop = s.ctx.Done()
	return s, nil
}

// image is the cluster's metadata as this node knows it.
func (s *Server) image() *cluster.Image { return s.ctrl.Image() }

// cfg is the node's configuration with what has been set at run time.
func (s *Server) cfg() *config.Broker { return s.config.Load() }

// setConfig replaces what has been set at run time.
func (s *Server) setConfig(clusterDefault, perBroker map[string]string) {
	cfg := s.static.WithDynamic(clusterDefault, perBroker)
	s.config.Store(cfg)
	s.conns.limit(cfg)
}

// topicConfig is what holds for a topic, whether it exists or not.
func (s *Server) topicConfig(topic string) *config.Topic {
	var overrides map[string]string
	if s.ctrl != nil {
		overrides = s.image().Config(kmsg.ConfigResourceTypeTopic, topic)
	}
	return s.cfg().Topic(overrides)
}

// logDir is the first log directory: the metadata lives in it, unless it has one of its own.
func (s *Server) logDir() string { return s.static.LogDirs()[0] }

// endpoint gives where the broker b is to be reached by whoever sent r: on the
// listener that r came in by. For this node without advertised.listeners that
// is the local address of the client's own connection. The host is "" if b has
// no such listener.
func (s *Server) endpoint(r *request, b *cluster.Broker) (host string, port int32) {
	name := s.listenerName(r)
	for _, e := range b.Endpoints {
		if e.Name != name {
			continue
		}
		if e.Host == "" && b.ID == s.nodeID {
			return s.localEndpoint(r, name)
		}
		return e.Host, e.Port
	}
	return "", 0
}

// listenerName is the listener by which r came; requests from inside of the
// process count as having come by the first.
func (s *Server) listenerName(r *request) string {
	if r.conn != nil {
		return r.conn.listener.name
	}
	if len(s.listeners) > 0 {
		return s.listeners[0].name
	}
	return ""
}

func (s *Server) localEndpoint(r *request, name string) (host string, port int32) {
	if r.conn != nil {
		return splitAddr(r.conn.socket.LocalAddr())
	}
	for _, l := range s.listeners {
		if l.name == name {
			host, port = splitAddr(l.socket.Addr())
			if ip := net.ParseIP(host); ip != nil && ip.IsUnspecified() {
				host = "127.0.0.1"
			}
			return host, port
		}
	}
	return "", 0
}

// Addrs gives the addresses of the listeners, by name, once Start has returned.
func (s *Server) Addrs() map[string]net.Addr {
	addrs := make(map[string]net.Addr, len(s.listeners))
	for _, l := range s.listeners {
		addrs[l.name] = l.socket.Addr()
	}
	return addrs
}

// Request serves a request from inside of the process, at the version it is set
// to, as if it came by the first listener.
func (s *Server) Request(ctx context.Context, req kmsg.Request) (resp kmsg.Response, err error) {
	row := apiOf(req.Key())
	if row == nil || req.GetVersion() < row.min || req.GetVersion() > row.max {
		return nil, fmt.Errorf("%s v%d is not served", kmsg.NameForKey(req.Key()), req.GetVersion())
	}
	r := &request{body: req, received: time.Now()}
	r.header.Key, r.header.Version = req.Key(), req.GetVersion()
	r.header.ClientID, r.header.HasClientID = "oncelog", true
	defer func() {
		if p := recover(); p != nil {
			s.logPanic(r, p)
			resp, err = nil, fmt.Errorf("%s: panic: %v", kmsg.NameForKey(req.Key()), p)
		}
	}()
	p := row.handle(s, r)
	if p.wait != nil {
		p.response = p.wait(ctx)
	}
	if p.response == nil {
		return nil, cmp.Or(ctx.Err(), fmt.Errorf("%s has no answer", kmsg.NameForKey(req.Key())))
	}
	if framed, ok := p.response.(framedResponse); ok {
		defer framed.release()
		plain := req.ResponseKind()
		body, err := framed.appendBody(nil)
		if err != nil {
			return nil, err
		}
		if err := plain.ReadFrom(body); err != nil {
			return nil, err
		}
		return plain, nil
	}
	return p.response, nil
}
