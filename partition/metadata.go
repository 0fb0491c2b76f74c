package partition

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"

	"oncelog/internal/vfs"
	"oncelog/protocol"
)

// errMetadata is what can't be read as partition.metadata.
var errMetadata = errors.New("malformed partition.metadata")

const maxMetadataBytes = 4096 // of partition.metadata and meta.properties, which have some 50 and 200

// parseMetadata reads partition.metadata.
func parseMetadata(data []byte) (topicID protocol.UUID, err error) {
	var version, id bool
	for line := range strings.Lines(string(data)) {
		name, value, _ := strings.Cut(strings.TrimRight(line, "\r\n"), ":")
		switch value = strings.TrimSpace(value); name {
		case "version":
			version = value != "" && strings.Trim(value, "0123456789") == ""
		case "topic_id":
			topicID, err = protocol.ParseUUID(value)
			id = err == nil && !topicID.IsZero()
		}
	}
	if !version || !id {
		return topicID, fmt.Errorf("%.60q: %w", data, errMetadata)
	}
	return topicID, nil
}

func readMetadata(fsys vfs.FS, dir string) (protocol.UUID, error) {
	data, err := vfs.ReadFile(fsys, filepath.Join(dir, partitionMetadataFile), maxMetadataBytes)
	if err != nil {
		return protocol.UUID{}, err
	}
	return parseMetadata(data)
}

// writeMetadata creates partition.metadata, whole or not at all as far as this process goes. It is synced before the first
// append (settleLocked); a directory that a power failure leaves without it has no records.
func writeMetadata(fsys vfs.FS, dir string, topicID protocol.UUID) error {
	name := filepath.Join(dir, partitionMetadataFile)
	f, err := fsys.OpenFile(name+tmpSuffix, os.O_WRONLY|os.O_CREATE|os.O_TRUNC, 0o644)
	if err != nil {
		return err
	}
	_, err = f.WriteAt([]byte("version: 0\ntopic_id: "+topicID.String()), 0)
	if err = errors.Join(err, f.Close()); err != nil {
		return err
	}
	return fsys.Rename(name+tmpSuffix, name)
}

func syncFile(fsys vfs.FS, name string) error {
	f, err := fsys.OpenFile(name, os.O_RDWR, 0)
	if err != nil {
		return err
	}
	return errors.Join(f.Sync(), f.Close())
}
