package server

import (
	"context"
	"fmt"
	"log/slog"
	"slices"
	"strconv"
	"strings"
	"sync"
	"sync/atomic"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// component is a part of the broker that logs at a level of its own.
type component int

const (
	logServer component = iota
	logNetwork
	logRequests // one line per request, at DEBUG
	logReplicas
	logMetadata
	logState // what metadata makes this node do
	logTransactions
	logGroups
	componentCount
)

// Levels by Kafka's names, ascending; slog has four of them.
var logLevels = []struct {
	name  string
	level slog.Level
}{
	{"TRACE", slog.LevelDebug - 4}, {"DEBUG", slog.LevelDebug}, {"INFO", slog.LevelInfo},
	{"WARN", slog.LevelWarn}, {"ERROR", slog.LevelError}, {"FATAL", slog.LevelError + 4},
}

const rootLogger = "root"

// kafkaLoggers are the loggers of Kafka that have a counterpart here, by component.
var kafkaLoggers = map[component][]string{
	logServer: {
		"kafka.server.BrokerServer", "kafka.server.ConfigAdminManager", "kafka.server.KafkaApis", "kafka.server.KafkaRequestHandler",
		"org.apache.kafka.server.BrokerLifecycleManager", "org.apache.kafka.server.ClientMetricsManager", "org.apache.kafka.server.DefaultAutoTopicCreationManager",
	},
	logNetwork: {
		"kafka.network.ConnectionQuotas", "kafka.network.DataPlaneAcceptor", "kafka.network.Processor", "kafka.network.RequestChannel$",
		"kafka.network.SocketServer", "org.apache.kafka.common.network.Selector",
	},
	logRequests: {"kafka.request.logger"},
	logReplicas: {
		"kafka.cluster.Partition", "kafka.log.LogCleaner", "kafka.server.ReplicaManager", "kafka.server.ReplicaManager$LogDirFailureHandler",
		"org.apache.kafka.storage.internals.epoch.LeaderEpochFileCache", "org.apache.kafka.storage.internals.log.Cleaner",
		"org.apache.kafka.storage.internals.log.LocalLog", "org.apache.kafka.storage.internals.log.LogCleaner",
		"org.apache.kafka.storage.internals.log.LogDirFailureChannel", "org.apache.kafka.storage.internals.log.LogLoader",
		"org.apache.kafka.storage.internals.log.LogManager", "org.apache.kafka.storage.internals.log.LogSegment",
		"org.apache.kafka.storage.internals.log.ProducerStateManager", "org.apache.kafka.storage.internals.log.UnifiedLog",
	},
	logMetadata: {
		"kafka.server.ControllerApis", "kafka.server.ControllerServer", "org.apache.kafka.controller.ClientQuotaControlManager",
		"org.apache.kafka.controller.ClusterControlManager", "org.apache.kafka.controller.ConfigurationControlManager",
		"org.apache.kafka.controller.FeatureControlManager", "org.apache.kafka.controller.ProducerIdControlManager",
		"org.apache.kafka.controller.QuorumController", "org.apache.kafka.controller.ReplicationControlManager",
		"org.apache.kafka.controller.ScramControlManager", "org.apache.kafka.raft.KafkaRaftClient", "org.apache.kafka.raft.QuorumState",
		"org.apache.kafka.snapshot.Snapshots",
	},
	logState: {
		"kafka.server.metadata.BrokerMetadataPublisher", "kafka.server.metadata.DynamicConfigPublisher", "org.apache.kafka.image.loader.MetadataLoader",
		"state.change.logger",
	},
	logTransactions: {
		"kafka.coordinator.transaction.TransactionCoordinator", "kafka.coordinator.transaction.TransactionMarkerChannelManager",
		"org.apache.kafka.coordinator.transaction.RPCProducerIdManager", "org.apache.kafka.server.transaction.AddPartitionsToTxnManager",
	},
	logGroups: {
		"org.apache.kafka.coordinator.common.runtime.CoordinatorLoaderImpl", "org.apache.kafka.coordinator.common.runtime.CoordinatorRuntime",
		"org.apache.kafka.coordinator.group.GroupCoordinatorService",
	},
}

// loggers are the broker's loggers and their levels, which can be changed while it runs. A component logs from the lowest level on that is set for
// one of Kafka's loggers that stand for it, else from root's. Levels are gone with the process, as in Kafka.
type loggers struct {
	handler slog.Handler
	lowest  [componentCount]atomic.Int64 // what the components log from; read without mu

	mu        sync.Mutex
	root      slog.Level
	own       map[string]slog.Level // of loggers that have one; not of root
	component map[string]component  // of all loggers but root; immutable
}

func newLoggers(handler slog.Handler) *loggers {
	l := &loggers{handler: handler, root: slog.LevelError + 4, own: map[string]slog.Level{}, component: map[string]component{}}
	for c, names := range kafkaLoggers {
		for _, name := range names {
			l.component[name] = c
		}
	}
	for _, known := range slices.Backward(logLevels) {
		if handler.Enabled(context.Background(), known.level) {
			l.root = known.level
		}
	}
	l.settleLocked()
	return l
}

// settleLocked makes the levels hold.
func (l *loggers) settleLocked() {
	for c, names := range kafkaLoggers {
		lowest, set := l.root, false
		for _, name := range names {
			if level, ok := l.own[name]; ok && (!set || level < lowest) {
				lowest, set = level, true
			}
		}
		l.lowest[c].Store(int64(lowest))
	}
}

// of is the logger of a component.
func (l *loggers) of(c component) *slog.Logger {
	return slog.New(&componentHandler{lowest: &l.lowest[c], inner: l.handler})
}

// enabled tells whether a component logs at a level.
func (l *loggers) enabled(c component, level slog.Level) bool {
	return int64(level) >= l.lowest[c].Load()
}

// componentHandler hands on what its component logs, whatever the handler behind thinks of levels.
type componentHandler struct {
	lowest *atomic.Int64
	inner  slog.Handler
}

func (h *componentHandler) Enabled(_ context.Context, level slog.Level) bool {
	return int64(level) >= h.lowest.Load()
}

func (h *componentHandler) Handle(ctx context.Context, r slog.Record) error {
	return h.inner.Handle(ctx, r)
}

func (h *componentHandler) WithAttrs(attrs []slog.Attr) slog.Handler {
	return &componentHandler{h.lowest, h.inner.WithAttrs(attrs)}
}

func (h *componentHandler) WithGroup(name string) slog.Handler {
	return &componentHandler{h.lowest, h.inner.WithGroup(name)}
}

// describe gives all loggers with the names of their levels, ascending.
func (l *loggers) describe() (names, levels []string) {
	l.mu.Lock()
	defer l.mu.Unlock()
	names = append(names, rootLogger)
	for name := range l.component {
		names = append(names, name)
	}
	slices.Sort(names)
	for _, name := range names {
		level := l.root
		if own, ok := l.own[name]; ok {
			level = own
		}
		levels = append(levels, levelName(level))
	}
	return names, levels
}

func levelName(level slog.Level) string {
	name := logLevels[0].name
	for _, known := range logLevels {
		if known.level <= level {
			name = known.name
		}
	}
	return name
}

// check tells what is wrong with an alteration of levels, in Kafka's words.
func (l *loggers) check(configs []kmsg.IncrementalAlterConfigsRequestResourceConfig) error {
	seen := map[string]bool{}
	var null []string
	for _, c := range configs {
		if seen[c.Name] {
			return withMessage(kerr.InvalidRequest, "Error due to duplicate config keys")
		}
		seen[c.Name] = true
		if c.Value == nil && c.Op != kmsg.IncrementalAlterConfigOpDelete {
			null = append(null, c.Name)
		}
	}
	if len(null) > 0 {
		return withMessage(kerr.InvalidRequest, "Null value not supported for : %s", strings.Join(null, ", "))
	}
	return nil
}

// checkLevel tells what is wrong with an alteration of one level.
func (l *loggers) checkLevel(c kmsg.IncrementalAlterConfigsRequestResourceConfig) error {
	const notAllowed = "%s is not allowed for the BROKER_LOGGER resource"
	_, known := l.component[c.Name]
	known = known || c.Name == rootLogger
	switch c.Op {
	case kmsg.IncrementalAlterConfigOpSet:
		if !known {
			break
		}
		if _, ok := levelOf(*c.Value); !ok {
			return withMessage(kerr.InvalidConfig, "Cannot set the log level of %s to %s as it is not a supported log level. "+
				"Valid log levels are DEBUG, ERROR, FATAL, INFO, TRACE, WARN", c.Name, *c.Value)
		}
	case kmsg.IncrementalAlterConfigOpDelete:
		if c.Name == rootLogger {
			return withMessage(kerr.InvalidRequest, "Removing the log level of the root logger is not allowed")
		}
	case kmsg.IncrementalAlterConfigOpAppend:
		return withMessage(kerr.InvalidRequest, notAllowed, "APPEND operation")
	case kmsg.IncrementalAlterConfigOpSubtract:
		return withMessage(kerr.InvalidRequest, notAllowed, "SUBTRACT operation")
	default:
		return withMessage(kerr.InvalidRequest, notAllowed, fmt.Sprintf("Unknown operation type %d", c.Op))
	}
	if !known {
		return withMessage(kerr.InvalidConfig, "Logger %s does not exist!", c.Name)
	}
	return nil
}

func levelOf(name string) (slog.Level, bool) {
	for _, known := range logLevels {
		if known.name == name {
			return known.level, true
		}
	}
	return 0, false
}

// alter changes levels that have been checked.
func (l *loggers) alter(configs []kmsg.IncrementalAlterConfigsRequestResourceConfig) {
	l.mu.Lock()
	defer l.mu.Unlock()
	for _, c := range configs {
		if c.Op == kmsg.IncrementalAlterConfigOpDelete {
			delete(l.own, c.Name)
			continue
		}
		level, _ := levelOf(*c.Value)
		if c.Name == rootLogger {
			l.root = level
		} else {
			l.own[c.Name] = level
		}
	}
	l.settleLocked()
}

// logRequest writes the line of a request that is being answered.
func (c *conn) logRequest(q queued) {
	clientID := ""
	if q.request != nil {
		clientID = q.request.header.ClientID
	}
	c.server.loggers.of(logRequests).Debug("request", slog.String("api", kmsg.NameForKey(q.row.key)), slog.Int("version", int(q.version)),
		slog.Int("correlation", int(q.correlation)), slog.String("clientId", clientID), slog.String("client", c.remote),
		slog.Duration("took", time.Since(q.received)))
}

// alterLoggers alters the levels of this node's loggers, all of a resource or none.
func (s *Server) alterLoggers(r *kmsg.IncrementalAlterConfigsRequestResource, validateOnly bool) error {
	if err := s.loggers.check(r.Configs); err != nil {
		return err
	}
	id, err := strconv.ParseInt(r.ResourceName, 10, 32)
	if err != nil {
		return withMessage(kerr.InvalidRequest, "Node id must be an integer, but it is: %s", r.ResourceName)
	}
	if int32(id) != s.nodeID {
		return withMessage(kerr.InvalidRequest, "Unexpected node id. Expected %d, but received %d", s.nodeID, id)
	}
	for _, c := range r.Configs {
		if err := s.loggers.checkLevel(c); err != nil {
			return err
		}
	}
	if !validateOnly {
		s.loggers.alter(r.Configs)
	}
	return nil
}
