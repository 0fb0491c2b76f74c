package server

import (
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"log/slog"
	"math"
	"net"
	"os"
	"path/filepath"
	"runtime/debug"
	"slices"
	"strconv"
	"strings"
	"time"

	"oncelog/cluster"
	"oncelog/config"
	"oncelog/partition"
)

// step is a piece of the server that is started in its turn and stopped in the
// reverse one.
type step struct {
	name  string
	start func(ctx context.Context) error
	stop  func(ctx context.Context) error // nil: nothing to stop
}

// steps is the order of life. Listeners are opened first, so that a port that
// is taken leaves the data alone and the ports are known when the node
// registers, and serve last. Answers are awaited when coordinators have ended:
// that is what many of them wait for.
func (s *Server) steps() []step {
	return []step{
		{"listeners", s.openListeners, s.closeListeners},
		{"log directories", s.refuseForeign, nil},
		{"replicas", s.openReplicas, s.closeReplicas},
		{"metadata", s.openMetadata, s.closeMetadata},
		{"answers", nil, s.awaitAnswers},
		{"coordinators", s.openCoordinators, s.closeCoordinators},
		{"registration", s.register, nil},
		{"partitions", s.startReconciler, s.stopReconciler},
		{"connections", s.serve, s.stopServing},
	}
}

// Start brings the server up; when it returns without an error, requests are
// served. What had been started is stopped again if a step goes wrong. ctx bounds
// the start, not the life.
func (s *Server) Start(ctx context.Context) error {
	for _, st := range s.steps() {
		if st.start != nil {
			if err := st.start(ctx); err != nil {
				err = fmt.Errorf("%s: %w", st.name, err)
				return errors.Join(err, s.Stop(context.WithoutCancel(ctx)))
			}
		}
		s.stops = append(s.stops, st)
	}
	return nil
}

// Stop ends everything in reverse order: nobody is accepted any more, what is
// being answered is answered as long as ctx lasts, and the log directory is left
// marked as cleanly shut down.
func (s *Server) Stop(ctx context.Context) error {
	var errs []error
	for len(s.stops) > 0 {
		st := s.stops[len(s.stops)-1]
		s.stops = s.stops[:len(s.stops)-1]
		if st.stop == nil {
			continue
		}
		if err := st.stop(ctx); err != nil {
			errs = append(errs, fmt.Errorf("stop %s: %w", st.name, err))
		}
	}
	s.cancel()
	return errors.Join(errs...)
}

func (s *Server) openReplicas(context.Context) error {
	known, err := s.knownCluster()
	if err != nil {
		return err
	}
	s.replicas, err = partition.OpenDirs(partition.Options{
		FS:          s.fs,
		NodeID:      s.nodeID,
		ClusterID:   known,
		RaftDir:     s.raftDirName(),
		BrokerEpoch: s.brokerEpoch.Load,
		Config:      s.static,
		TopicConfig: s.topicConfig,
		Logger:      s.loggers.of(logReplicas),
		Registerer:  s.registry,

		DirectoryFailed: s.directoryFailed,
	}, s.static.LogDirs(), time.Now())
	return err
}

func (s *Server) closeReplicas(context.Context) error { return s.replicas.Close() }

// raftDir is where the metadata lives: in metadata.log.dir, by default a folder
// of the first log directory.
func (s *Server) raftDir() string { return MetadataDir(s.static) }

// raftDirName is the name of that folder if it lies beside the partitions, or of the
// one there that it lies in.
func (s *Server) raftDirName() string {
	below, err := filepath.Rel(s.logDir(), s.raftDir())
	if err != nil || !filepath.IsLocal(below) {
		return ""
	}
	name, _, _ := strings.Cut(below, string(filepath.Separator))
	return name
}

func (s *Server) openMetadata(context.Context) (err error) {
	s.ctrl, err = cluster.Open(cluster.Options{
		NodeID:     s.nodeID,
		ClusterID:  s.replicas.ClusterID(),
		Dir:        s.raftDir(),
		Stores:     s.stores,
		Config:     s.static,
		Logger:     s.loggers.of(logMetadata),
		Registerer: s.registry,
		Failed:     s.fail,
	})
	return err
}

// Failed tells why the server can't go on: there is no disk any more to keep data or metadata on, as when Apache Kafka halts. It is to be stopped.
func (s *Server) Failed() <-chan error { return s.failed }

// fail is told of the first reason.
func (s *Server) fail(err error) {
	select {
	case s.failed <- err:
	default:
	}
}

func (s *Server) closeMetadata(context.Context) error { return s.ctrl.Close() }

// register tells the cluster about this life of the node.
func (s *Server) register(ctx context.Context) error {
	r := cluster.Registration{
		BrokerID:  s.nodeID,
		ClusterID: s.replicas.ClusterID(),
		Endpoints: s.endpoints(),
		LogDirs:   s.replicas.IDs(),
	}
	if _, err := rand.Read(r.Incarnation[:]); err != nil {
		return err
	}
	if rack, null := s.static.Value("broker.rack"); !null {
		r.Rack = &rack
	}
	epoch, err := s.ctrl.Register(ctx, r)
	s.brokerEpoch.Store(epoch)
	return err
}

// endpoints are the brokers' listeners as they are advertised; an empty host
// where advertised.listeners says nothing.
func (s *Server) endpoints() []cluster.Endpoint {
	var endpoints []cluster.Endpoint
	for _, l := range s.listeners {
		if l.controller {
			continue
		}
		e := cluster.Endpoint{Name: l.name, Protocol: l.protocol}
		if s.static.IsSet("advertised.listeners") {
			for _, a := range s.static.AdvertisedListeners() {
				if a.Name == l.name {
					e.Host, e.Port = a.Host, a.Port
				}
			}
			if e.Port == 0 && e.Host != "" {
				_, e.Port = splitAddr(l.socket.Addr())
			}
		}
		endpoints = append(endpoints, e)
	}
	return endpoints
}

// requestMemory is queued.max.request.bytes, or for -1 a quarter of the memory
// that the process may use; never less than one request.
func requestMemory(configured, largest int64) int64 {
	if configured > 0 {
		return max(configured, largest)
	}
	return max(memoryLimit()/4, largest)
}

// memoryLimit is the memory that the process may use, in bytes: the least of
// GOMEMLIMIT, the control group's limit and the machine's memory.
func memoryLimit() int64 {
	limit := int64(4 << 30) // where nothing can be found out
	if total := meminfoTotal(); total > 0 {
		limit = total
	}
	for _, name := range []string{"/sys/fs/cgroup/memory.max", "/sys/fs/cgroup/memory/memory.limit_in_bytes"} {
		if b, err := os.ReadFile(name); err == nil {
			if n, err := strconv.ParseInt(strings.TrimSpace(string(b)), 10, 64); err == nil && n > 0 {
				limit = min(limit, n)
			}
		}
	}
	if n := debug.SetMemoryLimit(-1); n != math.MaxInt64 {
		limit = min(limit, n)
	}
	return limit
}

func meminfoTotal() int64 {
	b, err := os.ReadFile("/proc/meminfo")
	if err != nil {
		return 0
	}
	var kib int64
	if _, err := fmt.Sscanf(string(b), "MemTotal: %d kB", &kib); err != nil {
		return 0
	}
	return kib << 10
}

func splitAddr(a net.Addr) (host string, port int32) {
	if tcp, ok := a.(*net.TCPAddr); ok {
		return tcp.IP.String(), int32(tcp.Port)
	}
	h, p, err := net.SplitHostPort(a.String())
	if err != nil {
		return a.String(), 0
	}
	n, _ := strconv.ParseUint(p, 10, 16)
	return h, int32(n)
}

func (s *Server) openListeners(ctx context.Context) error {
	controllers := s.static.List("controller.listener.names")
	for _, c := range slices.Concat(s.static.Listeners(), s.static.ControllerListeners()) {
		l, err := s.openListener(ctx, c, controllers)
		if err != nil {
			return errors.Join(err, s.closeListeners(ctx))
		}
		s.listeners = append(s.listeners, l)
	}
	return nil
}

func (s *Server) openListener(ctx context.Context, c config.Listener, controllers []string) (*listener, error) {
	address := net.JoinHostPort(c.Host, strconv.Itoa(int(c.Port)))
	socket, err := s.listen(ctx, "tcp", address)
	if err != nil {
		return nil, fmt.Errorf("%s://%s: %w", c.Name, address, err)
	}
	l := &listener{name: c.Name, protocol: c.Protocol, socket: socket, server: s}
	for _, name := range controllers {
		l.controller = l.controller || strings.EqualFold(name, c.Name)
	}
	s.log.Debug("listening", slog.String("listener", c.Name), slog.String("address", socket.Addr().String()))
	return l, nil
}

func (s *Server) closeListeners(context.Context) error {
	for _, l := range s.listeners {
		l.close()
	}
	return nil
}
