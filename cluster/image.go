package cluster

import (
	"iter"

	iradix "github.com/hashicorp/go-immutable-radix"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// Image is the cluster's metadata as of one raft index. It is immutable, and so is everything that it hands out: readers keep it as long
// as they like, and two images share what did not change between them.
type Image struct {
	ClusterID    string // "" until the cluster has been formatted by its first leader
	ControllerID int32  // the node that leads the metadata, -1 if none is known
	Index        int64  // raft index of the last entry that is part of the image

	topics  *iradix.Tree // name -> *Topic
	ids     *iradix.Tree // topic id -> *Topic
	similar *iradix.Tree // similarKey of each topic with a '.' or '_' in its name -> its name
	configs *iradix.Tree // resource kind and name -> map[string]string

	quotas      *iradix.Tree // entity -> *ClientQuota
	credentials *iradix.Tree // user name -> *ScramUser

	brokers        []*Broker // ascending by ID
	features       map[string]int16
	nextProducerID int64 // first id of the next block to hand out
	partitions     int   // sum over all topics

	// recent are the last changes, the newest behind: what Since knows.
	recent []change
}

// Topic is a topic and its partitions; Partitions[i] is partition i.
type Topic struct {
	Name       string
	ID         [16]byte
	Internal   bool // __consumer_offsets, __transaction_state and their like
	Partitions []Partition
}

// Partition is the controller's view of one partition.
type Partition struct {
	Leader         int32 // -1 if there is none
	LeaderEpoch    int32 // grows with each election
	PartitionEpoch int32 // grows with each change of anything here
	Replicas       []int32
	ISR            []int32
	Directories    [][16]byte // per replica: the log dir it lives in; zero is unassigned
}

// Broker is a registered broker.
type Broker struct {
	ID          int32
	Epoch       int64 // raft index of its registration
	Incarnation [16]byte
	Endpoints   []Endpoint
	Rack        *string
	Fenced      bool
	LogDirs     [][16]byte
}

// Endpoint is one listener of a broker, as advertised. Host and Port are "" and 0 where nothing is advertised.
type Endpoint struct {
	Name     string // listener name
	Host     string
	Port     int32
	Protocol string // security protocol: PLAINTEXT, SSL, SASL_PLAINTEXT, SASL_SSL
}

// recentChanges is how many changes an image remembers. Who looks at images more seldom compares them whole.
const recentChanges = 32

// change is what one entry touched.
type change struct {
	from    int64 // index of the image before
	topics  []string
	configs []Resource
}

// Resource is something that has dynamic configs.
type Resource struct {
	Kind kmsg.ConfigResourceType
	Name string
}

// Delta is what differs between two images, in the order in which it changed; names may come more than once.
type Delta struct {
	Topics  []string   // created, changed or deleted
	Configs []Resource // whose configs were set or removed; not those that went with their topic
}

// Since tells what has changed from an older image to this one. ok is false if that is too long ago to be known.
func (im *Image) Since(old *Image) (d Delta, ok bool) {
	if old.Index == im.Index {
		return d, true
	}
	for i := len(im.recent) - 1; i >= 0; i-- {
		if im.recent[i].from != old.Index {
			continue
		}
		for _, c := range im.recent[i:] {
			d.Topics = append(d.Topics, c.topics...)
			d.Configs = append(d.Configs, c.configs...)
		}
		return d, true
	}
	return d, false
}

// Topic returns the topic of that name, nil if there is none.
func (im *Image) Topic(name string) *Topic {
	if v, ok := im.topics.Get([]byte(name)); ok {
		return v.(*Topic)
	}
	return nil
}

// TopicByID returns the topic of that id, nil if there is none.
func (im *Image) TopicByID(id [16]byte) *Topic {
	if v, ok := im.ids.Get(id[:]); ok {
		return v.(*Topic)
	}
	return nil
}

// Topics yields all topics, ascending by name.
func (im *Image) Topics() iter.Seq[*Topic] {
	return func(yield func(*Topic) bool) {
		it := im.topics.Root().Iterator()
		for _, v, ok := it.Next(); ok; _, v, ok = it.Next() {
			if !yield(v.(*Topic)) {
				return
			}
		}
	}
}

// NumTopics is the number of topics.
func (im *Image) NumTopics() int { return im.topics.Len() }

// NumPartitions is the number of partitions of all topics.
func (im *Image) NumPartitions() int { return im.partitions }

// Broker returns the registered broker of that id, nil if there is none.
func (im *Image) Broker(id int32) *Broker {
	for _, b := range im.brokers {
		if b.ID == id {
			return b
		}
	}
	return nil
}

// Brokers returns all registered brokers, ascending by id, the fenced ones included.
func (im *Image) Brokers() []*Broker { return im.brokers }

// Config returns the dynamic configs of one resource: of a topic, of a broker (name is its id, "" the cluster's default), of a group or of a
// client metrics subscription. The map is nil if nothing is set and must not be changed.
func (im *Image) Config(kind kmsg.ConfigResourceType, name string) map[string]string {
	if v, ok := im.configs.Get(configKey(kind, name)); ok {
		return v.(map[string]string)
	}
	return nil
}

// ConfigNames yields the names of the resources of one kind that have any dynamic config, ascending.
func (im *Image) ConfigNames(kind kmsg.ConfigResourceType) iter.Seq[string] {
	return func(yield func(string) bool) {
		it := im.configs.Root().Iterator()
		it.SeekPrefix([]byte{byte(kind)})
		for k, _, ok := it.Next(); ok; k, _, ok = it.Next() {
			if !yield(string(k[1:])) {
				return
			}
		}
	}
}

// Features returns the finalized levels of features. The map must not be changed.
func (im *Image) Features() map[string]int16 { return im.features }

func configKey(kind kmsg.ConfigResourceType, name string) []byte {
	return append(append(make([]byte, 0, 1+len(name)), byte(kind)), name...)
}

func emptyImage() *Image {
	return &Image{
		ControllerID: -1,
		topics:       iradix.New(),
		ids:          iradix.New(),
		similar:      iradix.New(),
		configs:      iradix.New(),
		quotas:       iradix.New(),
		credentials:  iradix.New(),
		features:     map[string]int16{},
	}
}
