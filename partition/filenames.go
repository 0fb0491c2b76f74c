package partition

import (
	"encoding/hex"
	"strconv"
	"strings"

	"oncelog/log"
	"oncelog/protocol"
)

// The files of a log directory.
const (
	lockFile            = ".lock"
	metaPropertiesFile  = "meta.properties"
	cleanShutdownFile   = ".kafka_cleanshutdown"
	recoveryPointFile   = "recovery-point-offset-checkpoint"
	highWatermarkFile   = "replication-offset-checkpoint"
	logStartFile        = "log-start-offset-checkpoint"
	cleanerFile         = "cleaner-offset-checkpoint"
	segmentsFile        = "segments-checkpoint" // ours; Kafka leaves it alone
	lostAndFound        = "lost+found"
	metadataTopicDir    = "__cluster_metadata-0" // Kafka's metadata log
	remoteIndexCacheDir = "remote-log-index-cache"
)

// The files of a partition directory that are not the log's.
const (
	partitionMetadataFile = "partition.metadata"
	leaderEpochFile       = "leader-epoch-checkpoint"
	extSnapshot           = log.ExtSnapshot
	extTxnIndex           = log.ExtTxnIndex
	extWindow             = ".window"    // ours; Kafka leaves it alone
	damageFile            = "damage.txt" // ours, too: why the partition stays offline
	badSuffix             = ".bad"       // what couldn't be read and was replaced
	tmpSuffix             = ".tmp"
)

// A partition directory's name may carry one of these, after a random part.
const (
	deleteSuffix = "-delete"
	futureSuffix = "-future"
	straySuffix  = "-stray"
)

const maxFileName = 255 // bytes that file systems take

// dirName is the directory of a partition.
func dirName(topic string, index int32) string {
	return topic + "-" + strconv.Itoa(int(index))
}

// suffixedName is the name of a directory put aside: `<topic>-<p>.<32 hex digits><suffix>`, its topic cut so that it fits.
func suffixedName(topic string, index int32, suffix string) string {
	id := protocol.NewUUID()
	tail := "-" + strconv.Itoa(int(index)) + "." + hex.EncodeToString(id[:]) + suffix
	return topic[:min(len(topic), maxFileName-len(tail))] + tail
}

// parseDirName takes a partition directory's name apart; suffix is "" or one of those above.
func parseDirName(name string) (topic string, index int32, suffix string, ok bool) {
	for _, s := range []string{deleteSuffix, futureSuffix, straySuffix} {
		if strings.HasSuffix(name, s) {
			if dot := strings.LastIndexByte(name, '.'); dot > 0 {
				name, suffix = name[:dot], s
			}
			break
		}
	}
	dash := strings.LastIndexByte(name, '-')
	if dash <= 0 || dash == len(name)-1 {
		return "", 0, "", false
	}
	digits := name[dash+1:]
	n, err := strconv.ParseInt(digits, 10, 32)
	if err != nil || strconv.FormatInt(n, 10) != digits || protocol.CheckTopicName(name[:dash]) != nil {
		return "", 0, "", false
	}
	return name[:dash], int32(n), suffix, true
}
