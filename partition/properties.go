package partition

import (
	"errors"
	"fmt"
	"io/fs"
	"path/filepath"
	"strconv"
	"strings"

	"oncelog/internal/vfs"
	"oncelog/protocol"
)

// errProperties is what can't be read as meta.properties, or contradicts the node's settings.
var errProperties = errors.New("unusable meta.properties")

// properties is what a log directory says about itself in meta.properties.
type properties struct {
	ClusterID   string
	NodeID      int32
	DirectoryID protocol.UUID // zero if the file has none
}

// parseProperties reads meta.properties, version 1.
func parseProperties(data []byte) (properties, error) {
	values := javaProperties(data)
	p := properties{ClusterID: values["cluster.id"]}
	if v := values["version"]; v != "1" {
		return p, fmt.Errorf("version %.20q, only 1 is supported: %w", v, errProperties)
	}
	node, err := strconv.ParseInt(values["node.id"], 10, 32)
	if err != nil || node < 0 {
		return p, fmt.Errorf("node.id %.20q: %w", values["node.id"], errProperties)
	}
	p.NodeID = int32(node)
	if p.ClusterID == "" {
		return p, fmt.Errorf("no cluster.id: %w", errProperties)
	}
	if text, given := values["directory.id"]; given {
		if p.DirectoryID, err = protocol.ParseUUID(text); err != nil || reservedDirectoryID(p.DirectoryID) {
			return p, fmt.Errorf("directory.id %.40q: %w", text, errProperties)
		}
	}
	return p, nil
}

func (p properties) format() []byte {
	return fmt.Appendf(nil, "#\ncluster.id=%s\ndirectory.id=%s\nnode.id=%d\nversion=1\n",
		p.ClusterID, p.DirectoryID, p.NodeID)
}

// reservedDirectoryID tells the ids that stand for no directory: the first hundred.
func reservedDirectoryID(id protocol.UUID) bool {
	return [15]byte(id[:15]) == [15]byte{} && id[15] < 100
}

// ensureProperties reads meta.properties and checks it against the node's settings, or writes it if there is none.
func ensureProperties(fsys vfs.FS, dir string, nodeID int32) (properties, error) {
	name := filepath.Join(dir, metaPropertiesFile)
	data, err := vfs.ReadFile(fsys, name, maxMetadataBytes)
	if errors.Is(err, fs.ErrNotExist) {
		p := properties{ClusterID: protocol.NewUUID().String(), NodeID: nodeID, DirectoryID: protocol.NewUUID()}
		return p, vfs.WriteFileAtomic(fsys, name, p.format())
	}
	if err != nil {
		return properties{}, err
	}
	p, err := parseProperties(data)
	switch {
	case err != nil:
		return p, fmt.Errorf("%s: %w", name, err)
	case p.NodeID != nodeID:
		return p, fmt.Errorf("%s: node.id is %d, the node's settings say %d: %w", name, p.NodeID, nodeID, errProperties)
	case p.DirectoryID.IsZero():
		p.DirectoryID = protocol.NewUUID()
		return p, vfs.WriteFileAtomic(fsys, name, p.format())
	}
	return p, nil
}

// javaProperties reads the lines of a properties file: `key=value` or `key:value`, with # and ! for comments and a
// backslash before characters that would mean something.
func javaProperties(data []byte) map[string]string {
	values := map[string]string{}
	for line := range strings.Lines(string(data)) {
		line = strings.TrimSpace(line)
		if line == "" || line[0] == '#' || line[0] == '!' {
			continue
		}
		var field strings.Builder
		name, inValue := "", false
		for i := 0; i < len(line); i++ {
			switch c := line[i]; {
			case c == '\\' && i+1 < len(line):
				i++
				field.WriteByte(line[i])
			case !inValue && (c == '=' || c == ':'):
				name, inValue = field.String(), true
				field.Reset()
			default:
				field.WriteByte(c)
			}
		}
		if inValue {
			values[strings.TrimSpace(name)] = strings.TrimSpace(field.String())
		}
	}
	return values
}
