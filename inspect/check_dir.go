package inspect

import (
	"encoding/json"
	"errors"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"

	"oncelog/cluster"
	"oncelog/partition"
)

const maxMarkerBytes = 4096

// checkProperties reads meta.properties.
func (c *checker) checkProperties() {
	c.nodeID = -1
	p, err := partition.ReadProperties(c.fsys, c.dir)
	switch {
	case errors.Is(err, fs.ErrNotExist):
		c.found(Warning, partition.PropertiesFile, "missing: it isn't known to which node the directory belongs")
	case err != nil:
		c.found(Error, partition.PropertiesFile, "%v", err)
	default:
		c.nodeID, c.directoryID = p.NodeID, p.DirectoryID
	}
}

// checkMarker looks whether the directory was left by a clean stop.
func (c *checker) checkMarker() {
	if c.o.Live {
		return
	}
	data, err := c.readFile(partition.CleanShutdownFile, maxMarkerBytes)
	switch {
	case err != nil:
		c.found(Error, partition.CleanShutdownFile, "%v", err)
	case data == nil:
		c.found(Note, partition.CleanShutdownFile, "missing: the next start recovers what may not be on disk whole")
	case len(data) > 0 && !json.Valid(data):
		c.found(Note, partition.CleanShutdownFile, "not understood, its broker epoch is not known")
		c.clean = true
	default:
		c.clean = true
	}
}

// The checkpoints of a log directory.
var checkpointFiles = []string{partition.RecoveryPointFile, partition.LogStartFile, partition.HighWatermarkFile, partition.CleanerFile}

func (c *checker) readCheckpoints() {
	c.checkpoints = map[string]map[string]int64{}
	for _, name := range checkpointFiles {
		offsets, err := partition.ReadCheckpoint(c.fsys, filepath.Join(c.dir, name))
		if err != nil {
			c.found(Warning, name, "%v", err)
		}
		c.checkpoints[name] = offsets
	}
}

// checkpoint gives a partition's offset.
func (c *checker) checkpoint(file, partition string) (offset int64, ok bool) {
	offset, ok = c.checkpoints[file][partition]
	return offset, ok
}

// metadataFolder is where the metadata lies if nothing else is said.
const metadataFolder = "raft"

// isMetadata tells whether a folder of the log directory is that of the metadata.
func (c *checker) isMetadata(name string) bool {
	if c.o.MetadataDir == "" {
		return name == metadataFolder
	}
	return filepath.Clean(c.o.MetadataDir) == filepath.Join(c.dir, name)
}

// readMetadata reads what the node knows of the cluster.
func (c *checker) readMetadata(entries []fs.DirEntry) {
	dir, name := c.o.MetadataDir, c.o.MetadataDir
	if dir == "" {
		dir, name = filepath.Join(c.dir, metadataFolder), metadataFolder
		if !slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == metadataFolder }) {
			c.found(Note, metadataFolder, "no metadata here, partitions can't be compared with it")
			return
		}
	}
	if c.o.Live {
		return // its owner writes it
	}
	im, err := cluster.ReadImage(dir)
	if err != nil {
		c.found(Error, name, "%v", err)
		return
	}
	c.image = im
	p, err := partition.ReadProperties(c.fsys, c.dir)
	if err == nil && im.ClusterID != "" && im.ClusterID != p.ClusterID {
		c.found(Error, partition.PropertiesFile, "cluster.id is %s, the metadata is of cluster %s", p.ClusterID, im.ClusterID)
	}
}

// elsewhere tells whether the metadata has this node's replica in another log directory.
func (c *checker) elsewhere(p *cluster.Partition) bool {
	dir := p.Directory(c.nodeID)
	return dir != [16]byte{} && c.directoryID != [16]byte{} && dir != c.directoryID
}

// checkMissing looks for partitions that should be there, and for checkpoints of partitions that aren't.
func (c *checker) checkMissing(partitions []found) {
	there := map[string]bool{}
	for _, p := range partitions {
		there[p.name] = true
	}
	for _, file := range checkpointFiles {
		gone := 0
		for name := range c.checkpoints[file] {
			if !there[name] {
				gone++
			}
		}
		if gone > 0 {
			c.found(Note, file, "%d partitions in it are not in the directory", gone)
		}
	}
	if c.image == nil || c.nodeID < 0 {
		return
	}
	missing := map[string]int64{} // name -> what is known of its end
	for t := range c.image.Topics() {
		for i := range t.Partitions {
			name := partition.DirName(t.Name, int32(i))
			if !there[name] && slices.Contains(t.Partitions[i].Replicas, c.nodeID) && !c.elsewhere(&t.Partitions[i]) {
				missing[name] = max(c.checkpoints[partition.HighWatermarkFile][name], c.checkpoints[partition.RecoveryPointFile][name])
			}
		}
	}
	for _, name := range slices.Sorted(maps.Keys(missing)) {
		if end := missing[name]; end > 0 {
			c.found(Error, name, "missing: it had the offsets up to %d", end-1)
		}
		// What nothing was appended to has no directory yet.
	}
}
