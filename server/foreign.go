package server

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"log/slog"
	"path/filepath"
	"slices"

	"oncelog/cluster"
	"oncelog/config"
	"oncelog/partition"
)

// metadataFolder is the name of the folder that holds the metadata.
const metadataFolder = "raft"

// importJournal is the plan of an import that is going on, in the first log directory.
const importJournal = ".import"

// MetadataDir is where a node with these settings has its metadata: in metadata.log.dir, by default in the first log directory.
func MetadataDir(cfg *config.Broker) string {
	if dir, null := cfg.Value("metadata.log.dir"); !null && dir != "" {
		return filepath.Join(dir, metadataFolder)
	}
	return filepath.Join(cfg.LogDirs()[0], metadataFolder)
}

// refuseForeign keeps the broker from starting on what Kafka left and nobody has taken over: all partitions would be put aside as strays.
func (s *Server) refuseForeign(context.Context) error {
	exists := func(name string) (bool, error) {
		_, err := s.fs.Stat(name)
		if errors.Is(err, fs.ErrNotExist) {
			return false, nil
		}
		return err == nil, err
	}
	interrupted, err := exists(filepath.Join(s.logDir(), importJournal))
	if err != nil {
		return err
	}
	if interrupted {
		return fmt.Errorf("an import into %s was interrupted: run \"broker import\" to finish it", s.logDir())
	}
	for _, dir := range s.static.LogDirs() {
		kafkas, err := exists(filepath.Join(dir, partition.KafkaMetadataDir))
		if err != nil || !kafkas || s.stores != nil {
			return err
		}
		ours, err := cluster.HasMetadata(s.raftDir())
		if err != nil {
			return err
		}
		if !ours {
			return fmt.Errorf("%s holds the metadata of Apache Kafka and none of Oncelog: take its topics over with \"broker import %s\"", dir, dir)
		}
	}
	return nil
}

// knownCluster is the cluster that the metadata is of. It is asked for only if a log directory has no meta.properties, which are made anew then, and is
// "" otherwise.
func (s *Server) knownCluster() (string, error) {
	if s.stores != nil {
		return "", nil
	}
	has, err := cluster.HasMetadata(s.raftDir())
	if err != nil || !has {
		return "", err
	}
	lost := false
	for _, dir := range s.static.LogDirs() {
		entries, err := s.fs.ReadDir(dir)
		if err != nil || slices.ContainsFunc(entries, func(e fs.DirEntry) bool { return e.Name() == partition.PropertiesFile }) {
			continue // whoever opens it tells
		}
		lost = true
		if len(entries) > 0 {
			s.loggers.of(logReplicas).Warn("meta.properties is missing, it is made anew from the metadata", slog.String("dir", dir))
		}
	}
	if !lost {
		return "", nil
	}
	image, err := cluster.ReadImage(s.raftDir())
	if err != nil {
		return "", err
	}
	return image.ClusterID, nil
}
