package cluster

import (
	"errors"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/config"
	"oncelog/protocol"
)

// decider takes decisions on one image: its methods turn a request into the answer and the records that make it true. They change nothing; the
// answer holds once the records are committed. It is used for one image and by one goroutine.
type decider struct {
	im     *Image
	static *config.Broker // this node's own settings, without the dynamic ones
	nodeID int32          // the node that the request came to
	newID  func() [16]byte

	defaults    []kmsg.CreateTopicsResponseTopicConfig // topicDefaults, once they have been asked for
	inDirectory map[[16]byte]int                       // replicas by log directory, once that has been asked for
}

// broker is the settings of this node as the image's dynamic configs make them.
func (d *decider) broker() *config.Broker { return d.im.BrokerConfig(d.static, d.nodeID) }

// BrokerConfig puts the dynamic configs of one broker over its static ones.
func (im *Image) BrokerConfig(static *config.Broker, id int32) *config.Broker {
	cluster, broker := im.Config(kmsg.ConfigResourceTypeBroker, ""), im.Config(kmsg.ConfigResourceTypeBroker, brokerName(id))
	if len(cluster) == 0 && len(broker) == 0 {
		return static
	}
	return static.WithDynamic(cluster, broker)
}

func (d *decider) numPartitions() int32     { return int32(d.static.Int("num.partitions")) }
func (d *decider) replicationFactor() int16 { return int16(d.static.Int("default.replication.factor")) }

func newTopicID() [16]byte { return protocol.NewUUID() }

// codeAndText are the two fields of an answer that tell an error. A bare kerr error has no text.
func codeAndText(err error) (int16, *string) {
	if err == nil {
		return 0, nil
	}
	code := kerr.UnknownServerError.Code
	if known, ok := errors.AsType[*kerr.Error](err); ok {
		code = known.Code
	}
	if r, ok := errors.AsType[*rejection](err); ok {
		return code, &r.text
	}
	return code, nil
}

func createFailed(name string, err error) kmsg.CreateTopicsResponseTopic {
	t := kmsg.NewCreateTopicsResponseTopic()
	t.Topic = name
	t.ErrorCode, t.ErrorMessage = codeAndText(err)
	t.Configs = []kmsg.CreateTopicsResponseTopicConfig{}
	return t
}

func failCreateTopics(req *kmsg.CreateTopicsRequest, err error) *kmsg.CreateTopicsResponse {
	resp := req.ResponseKind().(*kmsg.CreateTopicsResponse)
	for i := range req.Topics {
		resp.Topics = append(resp.Topics, createFailed(req.Topics[i].Topic, err))
	}
	return resp
}

func failDeleteTopics(req *kmsg.DeleteTopicsRequest, err error) *kmsg.DeleteTopicsResponse {
	resp := req.ResponseKind().(*kmsg.DeleteTopicsResponse)
	for _, e := range deleteEntries(req) {
		t := kmsg.NewDeleteTopicsResponseTopic()
		t.Topic, t.TopicID = e.Topic, e.TopicID
		t.ErrorCode, t.ErrorMessage = codeAndText(err)
		resp.Topics = append(resp.Topics, t)
	}
	return resp
}

func partitionsAnswer(name string, err error) kmsg.CreatePartitionsResponseTopic {
	t := kmsg.NewCreatePartitionsResponseTopic()
	t.Topic = name
	t.ErrorCode, t.ErrorMessage = codeAndText(err)
	return t
}

func failCreatePartitions(req *kmsg.CreatePartitionsRequest, err error) *kmsg.CreatePartitionsResponse {
	resp := req.ResponseKind().(*kmsg.CreatePartitionsResponse)
	for i := range req.Topics {
		resp.Topics = append(resp.Topics, partitionsAnswer(req.Topics[i].Topic, err))
	}
	return resp
}
