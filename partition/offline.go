package partition

import (
	"path/filepath"

	"oncelog/internal/vfs"
	"oncelog/protocol"
)

// What follows is for tools that read log directories which no broker uses. Nothing of it changes any file.

// The files of a log directory.
const (
	LockFile          = lockFile
	PropertiesFile    = metaPropertiesFile
	CleanShutdownFile = cleanShutdownFile
	RecoveryPointFile = recoveryPointFile
	LogStartFile      = logStartFile
	HighWatermarkFile = highWatermarkFile
	CleanerFile       = cleanerFile
)

// The files of a partition's directory beside the segments', and the extension of our own.
const (
	MetadataFile     = partitionMetadataFile
	LeaderEpochsFile = leaderEpochFile
	DamageFile       = damageFile
	ExtWindow        = extWindow
)

// The suffixes of directories that were put aside.
const (
	DeleteSuffix = deleteSuffix
	FutureSuffix = futureSuffix
	StraySuffix  = straySuffix
)

// ParseDirName takes the name of a partition's directory apart: suffix is "" or one of those above. ok is false for a name of any other form.
func ParseDirName(name string) (topic string, index int32, suffix string, ok bool) {
	return parseDirName(name)
}

// DirName is the name of a partition's directory.
func DirName(topic string, index int32) string { return dirName(topic, index) }

// IsOtherDir tells the directories in a log directory that are no partitions and belong there all the same.
func IsOtherDir(name string) bool {
	return name == lostAndFound || name == metadataTopicDir || name == remoteIndexCacheDir
}

// KafkaMetadataDir is where Kafka keeps its metadata in a log directory.
const KafkaMetadataDir = metadataTopicDir

// Properties is what a log directory's meta.properties says.
type Properties = properties

// ReadProperties reads meta.properties.
func ReadProperties(fsys vfs.FS, dir string) (Properties, error) {
	data, err := vfs.ReadFile(fsys, filepath.Join(dir, metaPropertiesFile), maxMetadataBytes)
	if err != nil {
		return Properties{}, err
	}
	return parseProperties(data)
}

// ReadTopicID reads partition.metadata.
func ReadTopicID(fsys vfs.FS, dir string) (protocol.UUID, error) { return readMetadata(fsys, dir) }

// ReadCheckpoint reads one of a log directory's checkpoints, by the names of the partitions' directories. A missing file is an empty one.
func ReadCheckpoint(fsys vfs.FS, name string) (map[string]int64, error) {
	offsets, err := readOffsets(fsys, name)
	byName := make(map[string]int64, len(offsets))
	for k, v := range offsets {
		byName[k.String()] = v
	}
	return byName, err
}

// EpochStart is a leader epoch and the offset that it begins with.
type EpochStart struct {
	Epoch int32
	Start int64
}

// ReadLeaderEpochs reads a partition's leader epochs, ascending. A missing file is an empty one.
func ReadLeaderEpochs(fsys vfs.FS, dir string) ([]EpochStart, error) {
	e, err := readEpochs(fsys, dir)
	list := make([]EpochStart, len(e))
	for i, s := range e {
		list[i] = EpochStart{s.epoch, s.start}
	}
	return list, err
}
