package inspect

import (
	"cmp"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"oncelog/cluster"
	"oncelog/config"
	"oncelog/internal/vfs"
	"oncelog/partition"
	"oncelog/protocol"
)

// An import takes partitions over that Apache Kafka wrote, or that were put aside. It
//
//  1. reads every partition whole, and says what is wrong (the plan; a dry run ends here),
//  2. writes the plan down in the first log directory (JournalFile),
//  3. tells the log directories' checkpoints of the partitions, and takes away the marker of a clean stop if they weren't left by one,
//  4. brings each directory to its place: by a rename, or by a copy that is durable before it gets its name,
//  5. makes the topics known to the metadata store, all at once,
//  6. removes the journal.
//
// Commit point: 5. An error before it takes back what was brought. After a crash the journal is there: no broker starts on the directory, and the
// next import does steps 3 to 6 again, all of which may be done twice.

// JournalFile is the name of the plan of an import that is going on, in the first log directory.
const JournalFile = ".import"

const maxJournalBytes = 256 << 20

// ImportOptions say what is imported, and where to.
type ImportOptions struct {
	Config      *config.Broker // of the node
	MetadataDir string         // of the node
	Sources     []string       // log directories, or directories of single partitions
	Copy        bool           // leave the sources as they are
	DryRun      bool           // change nothing
	Partial     bool           // partitions that are not among the sources begin empty
	// TopicConfigs are set on every topic that isn't internal, above what Kafka's metadata says.
	TopicConfigs map[string]string
	// Tell gets lines about what is going to be done, and what isn't.
	Tell func(line string)
}

// Imported is what an import did, or would do.
type Imported struct {
	Topics, Partitions int
	Records            int64
}

// ErrImport is what keeps an import from being done; nothing has been changed then.
var ErrImport = errors.New("can't import")

// journal is the plan of an import, whole: nothing else is needed to do it.
type journal struct {
	Version        int
	ClusterID      string
	NextProducerID int64
	Clean          bool
	Copy           bool
	Topics         []plannedTopic
}

type plannedTopic struct {
	Name       string
	ID         string
	Configs    map[string]string
	Epochs     []int32 // to begin with, by partition
	Partitions []plannedPartition
}

type plannedPartition struct {
	partition.Arrival
	From    string // the directory as it was found
	Dir     string // log directory that it belongs in
	Records int64
}

func (p *plannedPartition) to() string {
	return filepath.Join(p.Dir, partition.DirName(p.Topic, p.Index))
}

// importer is an import going on.
type importer struct {
	fsys    vfs.FS
	o       ImportOptions
	nodeID  int32
	dirs    []string // the node's log directories
	journal journal
	records int64

	releases []func() // give the sources back
}

// Import takes partitions over. The broker is stopped.
func Import(ctx context.Context, fsys vfs.FS, o ImportOptions) (Imported, error) {
	if o.Tell == nil {
		o.Tell = func(string) {}
	}
	m := &importer{fsys: fsys, o: o, nodeID: int32(o.Config.Int("node.id"))}
	for _, dir := range o.Config.LogDirs() {
		abs, err := filepath.Abs(dir)
		if err != nil {
			return Imported{}, err
		}
		m.dirs = append(m.dirs, abs)
	}
	defer func() {
		for _, release := range m.releases {
			release()
		}
	}()
	resumed, err := m.readJournal()
	if err != nil {
		return Imported{}, err
	}
	if resumed {
		o.Tell("an import was interrupted, it is finished first")
	} else if err := m.plan(); err != nil {
		return Imported{}, err
	}
	done := Imported{Topics: len(m.journal.Topics), Records: m.records}
	for _, t := range m.journal.Topics {
		done.Partitions += len(t.Partitions)
	}
	if o.DryRun || done.Topics == 0 {
		return done, nil
	}
	return done, m.execute(ctx, resumed)
}

// refuse is an error that explains itself.
func refuse(format string, args ...any) error {
	return fmt.Errorf("%w: %s", ErrImport, fmt.Sprintf(format, args...))
}

// execute does what the journal says.
func (m *importer) execute(ctx context.Context, resumed bool) error {
	holdings, err := m.hold()
	if err != nil {
		return err
	}
	defer func() {
		for _, h := range holdings {
			h.Release()
		}
	}()
	if !resumed {
		if err := m.writeJournal(holdings[m.dirs[0]]); err != nil {
			return err
		}
	}
	if err := m.bring(holdings); err != nil {
		return errors.Join(err, m.takeBack())
	}
	if err := m.register(ctx, holdings); err != nil {
		return errors.Join(err, m.takeBack())
	}
	return m.removeJournal()
}

// hold claims the node's log directories.
func (m *importer) hold() (map[string]*partition.Holding, error) {
	holdings, err := partition.Hold(m.fsys, m.dirs, m.journal.ClusterID, m.nodeID)
	if err != nil {
		return nil, fmt.Errorf("%w: %w", ErrImport, err)
	}
	return holdings, nil
}

func (m *importer) journalName() string { return filepath.Join(m.dirs[0], JournalFile) }

// readJournal reads the plan of an import that was interrupted; it reports false if there is none.
func (m *importer) readJournal() (bool, error) {
	data, err := vfs.ReadFile(m.fsys, m.journalName(), maxJournalBytes)
	if errors.Is(err, fs.ErrNotExist) {
		return false, nil
	}
	if err == nil {
		err = json.Unmarshal(data, &m.journal)
	}
	if err == nil && m.journal.Version != 1 {
		err = fmt.Errorf("version %d", m.journal.Version)
	}
	if err != nil {
		return false, fmt.Errorf("%w: %s: %w", ErrImport, m.journalName(), err)
	}
	return true, nil
}

func (m *importer) writeJournal(h *partition.Holding) error {
	m.journal.Version = 1
	if m.journal.ClusterID == "" {
		m.journal.ClusterID = h.ClusterID()
	}
	data, err := json.MarshalIndent(m.journal, "", " ")
	if err != nil {
		return err
	}
	return vfs.WriteFileAtomic(m.fsys, m.journalName(), data)
}

func (m *importer) removeJournal() error {
	if err := m.fsys.Remove(m.journalName()); err != nil {
		return err
	}
	return m.fsys.SyncDir(m.dirs[0])
}

// partitions are all that are brought, by log directory.
func (m *importer) partitions(dir string) (list []*plannedPartition) {
	for i := range m.journal.Topics {
		for k := range m.journal.Topics[i].Partitions {
			if p := &m.journal.Topics[i].Partitions[k]; p.Dir == dir {
				list = append(list, p)
			}
		}
	}
	return list
}

// bring gets all directories to their places.
func (m *importer) bring(holdings map[string]*partition.Holding) error {
	for dir, h := range holdings {
		list := m.partitions(dir)
		if len(list) == 0 {
			continue
		}
		arrivals := make([]partition.Arrival, len(list))
		for i, p := range list {
			arrivals[i] = p.Arrival
		}
		if err := h.Announce(arrivals, m.journal.Clean); err != nil {
			return err
		}
		for _, p := range list {
			if err := m.place(p); err != nil {
				return fmt.Errorf("%s: %w", p.From, err)
			}
		}
		if err := m.fsys.SyncDir(dir); err != nil {
			return err
		}
	}
	return nil
}

// adopted are the topic's partitions for the metadata. Those that begin empty come into the first log directory.
func (m *importer) adopted(t *plannedTopic, holdings map[string]*partition.Holding) []cluster.AdoptedPartition {
	partitions := make([]cluster.AdoptedPartition, len(t.Epochs))
	for i, epoch := range t.Epochs {
		partitions[i] = cluster.AdoptedPartition{LeaderEpoch: epoch, Directory: holdings[m.dirs[0]].DirectoryID()}
	}
	for _, p := range t.Partitions {
		partitions[p.Index].Directory = holdings[p.Dir].DirectoryID()
	}
	return partitions
}

// register makes the topics known.
func (m *importer) register(ctx context.Context, holdings map[string]*partition.Holding) error {
	c, err := cluster.Open(cluster.Options{
		NodeID: m.nodeID, Dir: m.o.MetadataDir, Config: m.o.Config, Logger: slog.New(slog.DiscardHandler),
	})
	if err != nil {
		return err
	}
	a := cluster.Adoption{ClusterID: m.journal.ClusterID, NextProducerID: m.journal.NextProducerID}
	for _, t := range m.journal.Topics {
		id, err := protocol.ParseUUID(t.ID)
		if err != nil {
			return errors.Join(err, c.Close())
		}
		if known := c.Image().Topic(t.Name); known != nil && known.ID == id {
			continue // the import was interrupted behind its commit point
		}
		a.Topics = append(a.Topics, cluster.AdoptedTopic{Name: t.Name, ID: id, Configs: t.Configs, Partitions: m.adopted(&t, holdings)})
	}
	return errors.Join(c.Adopt(ctx, a), c.Close())
}

// tellPlan says what is going to be done.
func (m *importer) tellPlan() {
	for _, t := range m.journal.Topics {
		records := int64(0)
		for _, p := range t.Partitions {
			records += p.Records
		}
		settings := "no settings"
		if len(t.Configs) > 0 {
			var list []string
			for _, key := range slices.Sorted(maps.Keys(t.Configs)) {
				list = append(list, key+"="+t.Configs[key])
			}
			settings = strings.Join(list, " ")
		}
		m.o.Tell(fmt.Sprintf("topic %s, id %s: %d of %d partitions, %d records, %s", t.Name, t.ID, len(t.Partitions), len(t.Epochs), records, settings))
		m.records += records
	}
}

func sortTopics(topics []plannedTopic) {
	slices.SortFunc(topics, func(a, b plannedTopic) int { return cmp.Compare(a.Name, b.Name) })
}
