package inspect

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"oncelog/cluster"
	"oncelog/config"
	"oncelog/internal/vfs"
	"oncelog/log"
	"oncelog/partition"
	"oncelog/protocol"
)

// source is a log directory that partitions come from.
type source struct {
	dir     string
	names   []string // of the partitions' directories
	checker *checker // reads them
	kafka   *kafkaMetadata
}

// arrival is a partition that was read.
type arrival struct {
	source *source
	place  found
	id     protocol.UUID
	check  *partitionCheck
}

// plan finds out what is to be imported, reads it, and checks that it can be.
func (m *importer) plan() error {
	image, err := m.readImage()
	if err != nil {
		return err
	}
	sources, err := m.sources()
	if err != nil {
		return err
	}
	byTopic := map[string][]arrival{}
	m.journal.Copy, m.journal.Clean = m.o.Copy, true
	if image != nil {
		m.journal.ClusterID = image.ClusterID
	}
	for _, s := range sources {
		release, err := m.openSource(s)
		if err != nil {
			return err
		}
		if slices.Contains(m.dirs, s.dir) {
			defer release() // it is claimed again for the work
		} else {
			m.releases = append(m.releases, release)
		}
		m.journal.Clean = m.journal.Clean && s.checker.clean
		for _, name := range s.names {
			a, err := m.read(s, name)
			if err != nil {
				return err
			}
			byTopic[a.place.topic] = append(byTopic[a.place.topic], a)
			m.journal.NextProducerID = max(m.journal.NextProducerID, a.check.maxProducer+1)
		}
		if s.kafka != nil {
			m.journal.NextProducerID = max(m.journal.NextProducerID, s.kafka.nextProducerID)
			for _, what := range slices.Sorted(maps.Keys(s.kafka.left)) {
				m.o.Tell(fmt.Sprintf("%s: %d %s are not taken over", s.dir, s.kafka.left[what], what))
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(byTopic)) {
		if err := m.planTopic(image, name, byTopic[name]); err != nil {
			return err
		}
	}
	sortTopics(m.journal.Topics)
	m.tellPlan()
	return m.checkNames(image)
}

// readImage reads what the node knows; nil if it has never run.
func (m *importer) readImage() (*cluster.Image, error) {
	has, err := cluster.HasMetadata(m.o.MetadataDir)
	if err != nil || !has {
		return nil, err
	}
	image, err := cluster.ReadImage(m.o.MetadataDir)
	if err != nil {
		return nil, fmt.Errorf("%w: %w (is the broker running?)", ErrImport, err)
	}
	for _, b := range image.Brokers() {
		if b.ID != m.nodeID {
			return nil, refuse("the cluster has other brokers than %d: import into a node of its own", m.nodeID)
		}
	}
	return image, nil
}

// sources groups what is to be imported by the log directories that it lies in.
func (m *importer) sources() ([]*source, error) {
	byDir := map[string]*source{}
	add := func(dir, name string) {
		if byDir[dir] == nil {
			byDir[dir] = &source{dir: dir}
		}
		if s := byDir[dir]; !slices.Contains(s.names, name) {
			s.names = append(s.names, name)
		}
	}
	for _, arg := range m.o.Sources {
		dir, err := filepath.Abs(arg)
		if err != nil {
			return nil, err
		}
		entries, err := m.fsys.ReadDir(dir)
		if err != nil {
			return nil, fmt.Errorf("%w: %w", ErrImport, err)
		}
		if _, _, suffix, ok := partition.ParseDirName(filepath.Base(dir)); ok && (suffix == "" || suffix == partition.StraySuffix) && looksLikePartition(entries) {
			add(filepath.Dir(dir), filepath.Base(dir))
			continue
		}
		found := 0
		for _, e := range entries {
			_, _, suffix, ok := partition.ParseDirName(e.Name())
			switch {
			case !e.IsDir() || !ok || partition.IsOtherDir(e.Name()):
			case suffix == partition.DeleteSuffix:
			case suffix != "":
				m.o.Tell(fmt.Sprintf("%s: was put aside, it is not imported", filepath.Join(arg, e.Name())))
			default:
				add(dir, e.Name())
				found++
			}
		}
		if found == 0 {
			return nil, refuse("%s is neither a partition's directory nor one that holds some", arg)
		}
	}
	return slices.SortedFunc(maps.Values(byDir), func(a, b *source) int { return strings.Compare(a.dir, b.dir) }), nil
}

func looksLikePartition(entries []fs.DirEntry) bool {
	return slices.ContainsFunc(entries, func(e fs.DirEntry) bool {
		return e.Name() == partition.MetadataFile || filepath.Ext(e.Name()) == log.ExtLog
	})
}

// openSource locks a directory, so that no broker uses it meanwhile, and reads what it says of all its partitions.
func (m *importer) openSource(s *source) (release func(), err error) {
	s.checker = &checker{fsys: m.fsys, dir: s.dir, nodeID: -1}
	if release, err = s.checker.lock(); err != nil {
		return nil, fmt.Errorf("%w: %w", ErrImport, err)
	}
	s.checker.checkMarker()
	s.checker.readCheckpoints()
	for _, f := range s.checker.report.Findings {
		if f.Severity > Note {
			m.o.Tell(fmt.Sprintf("%s: %s: %s", s.dir, f.Path, f.What))
		}
	}
	s.kafka, err = readKafkaMetadata(m.fsys, filepath.Join(s.dir, partition.KafkaMetadataDir))
	if err != nil {
		release()
		return nil, fmt.Errorf("%w: Kafka's metadata: %w", ErrImport, err)
	}
	if err := m.checkOwner(s.dir); err != nil {
		release()
		return nil, err
	}
	return release, nil
}

// checkOwner looks whether a directory can be used by this node where it is, if it is one of its log directories. A node that belongs to no cluster
// gets into that of the directory.
func (m *importer) checkOwner(dir string) error {
	p, err := partition.ReadProperties(m.fsys, dir)
	switch {
	case err != nil || !slices.Contains(m.dirs, dir): // the claim of the directory tells
	case p.NodeID != m.nodeID:
		return refuse("%s is of node %d, the settings say node.id=%d", dir, p.NodeID, m.nodeID)
	case m.journal.ClusterID == "":
		m.journal.ClusterID = p.ClusterID
	case m.journal.ClusterID != p.ClusterID:
		return refuse("%s is of cluster %s, the node of cluster %s: import it from a directory that isn't in log.dirs", dir, p.ClusterID, m.journal.ClusterID)
	}
	return nil
}

// read reads a partition whole. One that is damaged is not imported.
func (m *importer) read(s *source, name string) (arrival, error) {
	topic, index, _, _ := partition.ParseDirName(name)
	a := arrival{source: s, place: found{name, topic, index}}
	id, err := partition.ReadTopicID(m.fsys, filepath.Join(s.dir, name))
	if err != nil {
		return a, fmt.Errorf("%w: %w", ErrImport, err)
	}
	a.id = id
	a.check = newPartitionCheck(s.checker, a.place)
	a.check.run()
	for _, f := range a.check.findings {
		switch f.Severity {
		case Error:
			err = errors.Join(err, errors.New(f.String()))
		case Warning:
			m.o.Tell(fmt.Sprintf("%s: %s: %s", s.dir, f.Path, f.What))
		}
	}
	if err != nil {
		return a, fmt.Errorf("%w: %s is damaged: %w", ErrImport, filepath.Join(s.dir, name), err)
	}
	return a, nil
}

// planTopic decides about one topic.
func (m *importer) planTopic(image *cluster.Image, name string, arrivals []arrival) error {
	slices.SortFunc(arrivals, func(a, b arrival) int { return int(a.place.index) - int(b.place.index) })
	first := arrivals[0]
	for i, a := range arrivals {
		if a.id != first.id {
			return refuse("%s and %s have different topic ids", filepath.Join(first.source.dir, first.place.name), filepath.Join(a.source.dir, a.place.name))
		}
		if i > 0 && a.place.index == arrivals[i-1].place.index {
			return refuse("partition %d of %s comes twice", a.place.index, name)
		}
	}
	if image != nil && image.Topic(name) != nil {
		if image.Topic(name).ID == first.id && slices.Contains(m.dirs, first.source.dir) {
			return nil // it lies where it is served
		}
		return refuse("topic %s is there already", name)
	}
	kafka := first.kafkaTopic()
	count, err := m.count(name, kafka, arrivals)
	if err != nil {
		return err
	}
	t := plannedTopic{Name: name, ID: first.id.String(), Configs: m.configs(name, first.source.kafka), Epochs: make([]int32, count)}
	for _, a := range arrivals {
		i := a.place.index
		t.Epochs[i] = a.nextEpoch(kafka)
		t.Partitions = append(t.Partitions, m.planPartition(a))
		if err := m.checkPlace(&t.Partitions[len(t.Partitions)-1]); err != nil {
			return err
		}
	}
	m.journal.Topics = append(m.journal.Topics, t)
	return nil
}

func (a *arrival) kafkaTopic() *kafkaTopic {
	if a.source.kafka == nil {
		return nil
	}
	return a.source.kafka.topics[a.id]
}

// nextEpoch is a leader epoch above all that the partition has seen.
func (a *arrival) nextEpoch(kafka *kafkaTopic) int32 {
	last := a.check.lastEpoch
	for _, e := range a.check.epochs {
		last = max(last, e.Epoch)
	}
	if kafka != nil {
		last = max(last, kafka.epochs[a.place.index])
	}
	return last + 1
}

// partitionSettings are the settings that say how many partitions internal topics get.
var partitionSettings = map[string]string{
	cluster.ConsumerOffsets: "offsets.topic.num.partitions", cluster.TransactionState: "transaction.state.log.num.partitions",
	"__share_group_state": "share.coordinator.state.topic.num.partitions",
}

// count is how many partitions the topic has, and checks that they are all there.
func (m *importer) count(name string, kafka *kafkaTopic, arrivals []arrival) (int, error) {
	count := int(arrivals[len(arrivals)-1].place.index) + 1
	configured := partitionSettings[name]
	switch {
	case kafka != nil && len(kafka.epochs) < count:
		return 0, refuse("Kafka's metadata has %d partitions of %s, there is one with the number %d", len(kafka.epochs), name, count-1)
	case kafka != nil:
		count = len(kafka.epochs)
	case configured != "":
		// Which partition a group or transactional id belongs to follows from their number.
		n := int(m.o.Config.Int(configured))
		if n < count {
			return 0, refuse("%s has at least %d partitions, %s says %d: set it to what it was", name, count, configured, n)
		}
		count = n
	}
	if missing := count - len(arrivals); missing > 0 && !m.o.Partial {
		return 0, refuse("%d of the %d partitions of %s are not among the directories (--partial lets them begin empty)", missing, count, name)
	} else if missing > 0 {
		m.o.Tell(fmt.Sprintf("topic %s: %d of %d partitions are missing, they begin empty", name, missing, count))
	}
	return count, nil
}

// configs are the settings of a topic: those of Kafka's metadata that can be taken over, and those that were given.
func (m *importer) configs(name string, kafka *kafkaMetadata) map[string]string {
	configs := map[string]string{}
	if kafka != nil {
		for key, value := range kafka.configs[name] {
			if err := config.CheckTopic(key, value); err != nil {
				m.o.Tell(fmt.Sprintf("topic %s: setting %s=%s is not taken over: %v", name, key, value, err))
				continue
			}
			configs[key] = value
		}
	} else if !cluster.IsInternal(name) && len(m.o.TopicConfigs) == 0 {
		m.o.Tell(fmt.Sprintf("topic %s: there is no metadata of Kafka beside it, it gets the broker's settings: records older than log.retention.hours are removed (--topic-set retention.ms=-1 keeps them)", name))
	}
	if cluster.IsInternal(name) {
		m.internalConfigs(name, configs)
		return configs
	}
	maps.Copy(configs, m.o.TopicConfigs)
	return configs
}

// internalConfigs adds what a broker gives an internal topic when it makes it.
func (m *importer) internalConfigs(name string, configs map[string]string) {
	defaults := map[string]string{"cleanup.policy": "compact"}
	switch name {
	case cluster.ConsumerOffsets:
		defaults["compression.type"] = "producer"
		defaults["segment.bytes"] = strconv.FormatInt(m.o.Config.Int("offsets.topic.segment.bytes"), 10)
	case cluster.TransactionState:
		defaults["compression.type"] = "uncompressed"
		defaults["segment.bytes"] = strconv.FormatInt(m.o.Config.Int("transaction.state.log.segment.bytes"), 10)
	}
	for key, value := range defaults {
		if _, set := configs[key]; !set {
			configs[key] = value
		}
	}
}

func (m *importer) planPartition(a arrival) plannedPartition {
	c := a.source.checker
	at := func(file string, missing int64) int64 {
		if offset, ok := c.checkpoint(file, a.place.name); ok {
			return offset
		}
		return missing
	}
	p := plannedPartition{
		Arrival: partition.Arrival{
			Topic: a.place.topic, Index: a.place.index,
			RecoveryPoint: min(at(partition.RecoveryPointFile, 0), a.check.end), LogStart: at(partition.LogStartFile, 0),
			HighWatermark: at(partition.HighWatermarkFile, 0), Cleaned: at(partition.CleanerFile, -1),
		},
		From: filepath.Join(a.source.dir, a.place.name), Dir: m.dirs[0], Records: a.check.counts.records,
	}
	if slices.Contains(m.dirs, a.source.dir) {
		p.Dir = a.source.dir
	}
	return p
}

// checkPlace makes sure that nothing is in the way.
func (m *importer) checkPlace(p *plannedPartition) error {
	if p.From == p.to() {
		return nil
	}
	there, err := exists(m.fsys, p.to())
	if err == nil && there {
		err = refuse("%s is there already", p.to())
	}
	return err
}

// checkNames has the metadata's own rules checked before anything is changed.
func (m *importer) checkNames(image *cluster.Image) error {
	names := []string{}
	for _, t := range m.journal.Topics {
		if err := cluster.CheckTopicName(t.Name); err != nil {
			return refuse("%v", err)
		}
		if err := config.CheckTopicConfigs(t.Configs); err != nil {
			return refuse("topic %s: %v", t.Name, err)
		}
		names = append(names, t.Name)
	}
	if image != nil {
		for t := range image.Topics() {
			names = append(names, t.Name)
		}
	}
	seen := map[string]string{}
	for _, name := range names {
		alike := strings.ReplaceAll(name, ".", "_")
		if other := seen[alike]; other != "" && other != name {
			return refuse("the names of %s and %s are the same in metrics, where '.' and '_' are", name, other)
		}
		seen[alike] = name
	}
	return nil
}

// Interrupted tells whether an import into a log directory was interrupted.
func Interrupted(fsys vfs.FS, dir string) (bool, error) {
	return exists(fsys, filepath.Join(dir, JournalFile))
}
