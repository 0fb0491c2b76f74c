package conformance

import (
	"context"
	"errors"
	"fmt"
	"slices"
	"testing"
	"time"

	"github.com/IBM/sarama"

	"oncelog/tests/brokertest"
)

func saramaConfig() *sarama.Config {
	c := sarama.NewConfig()
	c.Version = sarama.V3_6_0_0
	c.Producer.Return.Successes = true
	c.Producer.RequiredAcks = sarama.WaitForAll
	c.Producer.Partitioner = sarama.NewManualPartitioner
	c.Consumer.IsolationLevel = sarama.ReadCommitted
	c.Consumer.Offsets.Initial = sarama.OffsetOldest
	c.Consumer.MaxWaitTime = 100 * time.Millisecond
	return c
}

func saramaTransactional(t *testing.T, b *brokertest.Broker, id string) sarama.SyncProducer {
	t.Helper()
	c := saramaConfig()
	c.Producer.Idempotent = true
	c.Producer.Transaction.ID = id
	c.Producer.Transaction.Timeout = 10 * time.Second
	c.Net.MaxOpenRequests = 1
	p, err := sarama.NewSyncProducer([]string{b.Addr()}, c)
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { p.Close() })
	return p
}

func message(topic string, partition int32, value string) *sarama.ProducerMessage {
	return &sarama.ProducerMessage{Topic: topic, Partition: partition, Value: sarama.StringEncoder(value)}
}

// saramaRead reads the first n committed values of a partition.
func saramaRead(t *testing.T, b *brokertest.Broker, topic string, partition int32, n int) (vs []string) {
	t.Helper()
	c, err := sarama.NewConsumer([]string{b.Addr()}, saramaConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	pc, err := c.ConsumePartition(topic, partition, sarama.OffsetOldest)
	if err != nil {
		t.Fatal(err)
	}
	defer pc.Close()
	ctx := within(t, 20*time.Second)
	for len(vs) < n {
		select {
		case m := <-pc.Messages():
			vs = append(vs, string(m.Value))
		case <-ctx.Done():
			t.Fatalf("read %q and no more, want %d", vs, n)
		}
	}
	return vs
}

// Each version of the protocol that sarama speaks, with each codec.
func TestSaramaProducesAndConsumes(t *testing.T) {
	b := brokertest.Start(t, settings...)
	for _, version := range []sarama.KafkaVersion{sarama.V1_0_0_0, sarama.V2_1_0_0, sarama.V2_8_0_0, sarama.V4_0_0_0} {
		for codec := sarama.CompressionNone; codec <= sarama.CompressionZSTD; codec++ {
			if codec == sarama.CompressionZSTD && !version.IsAtLeast(sarama.V2_1_0_0) {
				continue
			}
			t.Run(version.String()+"/"+codec.String(), func(t *testing.T) {
				topic := newTopic(t, b, 1, nil)
				c := saramaConfig()
				c.Version, c.Producer.Compression = version, codec
				p, err := sarama.NewSyncProducer([]string{b.Addr()}, c)
				if err != nil {
					t.Fatal(err)
				}
				defer p.Close()
				want := numbered("", 50)
				var ms []*sarama.ProducerMessage
				for _, v := range want {
					ms = append(ms, message(topic, 0, v))
				}
				if err := p.SendMessages(ms); err != nil {
					t.Fatal(err)
				}
				if got := saramaRead(t, b, topic, 0, len(want)); !slices.Equal(got, want) {
					t.Errorf("got %q, want %q", got, want)
				}
			})
		}
	}
}

func TestSaramaTransactions(t *testing.T) {
	b := brokertest.Start(t, settings...)
	topic := newTopic(t, b, 2, nil)
	p := saramaTransactional(t, b, name(t, "id"))
	for i := range 4 {
		if err := p.BeginTxn(); err != nil {
			t.Fatal(err)
		}
		for partition := range int32(2) {
			if _, _, err := p.SendMessage(message(topic, partition, fmt.Sprint(i))); err != nil {
				t.Fatal(err)
			}
		}
		end := p.CommitTxn
		if i%2 == 1 {
			end = p.AbortTxn
		}
		if err := end(); err != nil {
			t.Fatalf("transaction %d: %v", i, err)
		}
	}
	for partition := range int32(2) {
		if got := saramaRead(t, b, topic, partition, 2); !slices.Equal(got, []string{"0", "2"}) {
			t.Errorf("partition %d: got %q", partition, got)
		}
	}
}

func TestSaramaZombieIsFenced(t *testing.T) {
	b := brokertest.Start(t, settings...)
	topic, id := newTopic(t, b, 1, nil), name(t, "id")
	zombie := saramaTransactional(t, b, id)
	if err := zombie.BeginTxn(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := zombie.SendMessage(message(topic, 0, "of the zombie")); err != nil {
		t.Fatal(err)
	}
	heir := saramaTransactional(t, b, id)
	if err := heir.BeginTxn(); err != nil {
		t.Fatal(err)
	}
	if _, _, err := heir.SendMessage(message(topic, 0, "of the heir")); err != nil {
		t.Fatal(err)
	}
	if err := heir.CommitTxn(); err != nil {
		t.Fatal(err)
	}
	if err := zombie.CommitTxn(); err == nil {
		t.Error("the zombie committed")
	}
	if zombie.TxnStatus()&sarama.ProducerTxnFlagFatalError == 0 {
		t.Errorf("the zombie's state is %v", zombie.TxnStatus())
	}
	if got := saramaRead(t, b, topic, 0, 1); !slices.Equal(got, []string{"of the heir"}) {
		t.Errorf("got %q", got)
	}
}

// copier copies what a group is given, with the offsets in the same transaction; every third transaction it aborts.
type copier struct {
	p     sarama.SyncProducer
	out   string
	group string
	want  int // committed copies after which it is done
	done  context.CancelFunc
	tries int
}

func (c *copier) Setup(sarama.ConsumerGroupSession) error   { return nil }
func (c *copier) Cleanup(sarama.ConsumerGroupSession) error { return nil }

func (c *copier) ConsumeClaim(s sarama.ConsumerGroupSession, claim sarama.ConsumerGroupClaim) error {
	for {
		select {
		case m := <-claim.Messages():
			if m == nil {
				return nil
			}
			aborted, err := c.copy(m)
			if err != nil {
				return err
			}
			if aborted {
				return nil // ends the session: the group goes back to what is committed
			}
			s.MarkMessage(m, "")
		case <-s.Context().Done():
			return nil
		}
	}
}

func (c *copier) copy(m *sarama.ConsumerMessage) (aborted bool, err error) {
	if err := c.p.BeginTxn(); err != nil {
		return false, err
	}
	if _, _, err := c.p.SendMessage(message(c.out, 0, string(m.Value))); err != nil {
		return false, err
	}
	if err := c.p.AddMessageToTxn(m, c.group, nil); err != nil {
		return false, err
	}
	c.tries++
	if c.tries%3 == 0 {
		return true, c.p.AbortTxn()
	}
	if err := c.p.CommitTxn(); err != nil {
		return false, err
	}
	if c.want--; c.want == 0 {
		c.done()
	}
	return false, nil
}

func TestSaramaOffsetsGoWithTheTransaction(t *testing.T) {
	b := brokertest.Start(t, settings...)
	in, out, group := newTopic(t, b, 1, nil), newTopic(t, b, 1, nil), name(t, "group")
	want := numbered("", 8)
	var ms []*sarama.ProducerMessage
	for _, v := range want {
		ms = append(ms, message(in, 0, v))
	}
	plain, err := sarama.NewSyncProducer([]string{b.Addr()}, saramaConfig())
	if err != nil {
		t.Fatal(err)
	}
	defer plain.Close()
	if err := plain.SendMessages(ms); err != nil {
		t.Fatal(err)
	}
	config := saramaConfig()
	config.Consumer.Offsets.AutoCommit.Enable = false
	ctx, cancel := context.WithCancel(within(t, 90*time.Second))
	defer cancel()
	c := &copier{p: saramaTransactional(t, b, name(t, "id")), out: out, group: group, want: len(want), done: cancel}
	for ctx.Err() == nil {
		// A new member each time, which starts from what is committed.
		g, err := sarama.NewConsumerGroup([]string{b.Addr()}, group, config)
		if err != nil {
			t.Fatal(err)
		}
		if err := g.Consume(ctx, []string{in}, c); err != nil && !errors.Is(err, context.Canceled) {
			t.Fatal(err)
		}
		if err := g.Close(); err != nil {
			t.Fatal(err)
		}
	}
	if c.want > 0 {
		t.Fatalf("%d are not copied", c.want)
	}
	if got := saramaRead(t, b, out, 0, len(want)); !slices.Equal(got, want) {
		t.Errorf("got %q, want %q", got, want)
	}
}
