package txncoordinator

import (
	"errors"
	"log/slog"
	"slices"
	"time"

	"github.com/twmb/franz-go/pkg/kerr"
)

// expectedFailures are the answers that only say that a partition isn't there just now.
var expectedFailures = []error{
	kerr.UnknownTopicOrPartition, kerr.NotLeaderForPartition, kerr.RequestTimedOut, kerr.NotEnoughReplicas,
	kerr.NotEnoughReplicasAfterAppend, kerr.KafkaStorageError, kerr.NetworkException,
}

// again parks what could not be written until its next try. cause is nil if the partitions have no leader.
func (s *Sender) again(p parcel, partitions Partitions, cause error) {
	p = p.of(partitions)
	tried := p.delay
	p.delay = min(max(2*tried, retryMin), retryMax)
	var kafka *kerr.Error
	if errors.As(cause, &kafka) && !slices.ContainsFunc(expectedFailures, func(e error) bool { return errors.Is(kafka, e) }) {
		p.delay = retryMax
		if tried < retryMax { // once is enough
			s.logger.Error("transaction marker is refused, it will be tried again",
				slog.String("transactionalId", p.markers.TransactionalID), slog.Int64("producerId", p.markers.Producer.ID),
				slog.Int("producerEpoch", int(p.markers.Producer.Epoch)), slog.Int("coordinatorEpoch", int(p.markers.CoordinatorEpoch)),
				slog.String("topic", partitions[0].Name), slog.Int("partition", int(partitions[0].Partitions[0])), slog.Any("error", cause))
		}
	}
	p.due = time.Now().Add(p.delay)
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.closed {
		return
	}
	s.parked = append(s.parked, p)
	if !s.retrying {
		s.retrying = true
		s.running.Go(s.retry)
		return
	}
	select {
	case s.sooner <- struct{}{}:
	default:
	}
}

// retry brings parked parcels on their way again when they are due, or the cluster has changed. It ends when none is left.
func (s *Sender) retry() {
	timer := time.NewTimer(0)
	defer timer.Stop()
	for {
		changed := s.o.Changed()
		first, more := s.firstDue()
		if !more {
			return
		}
		timer.Reset(time.Until(first))
		all := false
		select {
		case <-s.ctx.Done():
			return
		case <-s.sooner:
			continue
		case <-changed:
			all = true
		case <-timer.C:
		}
		for _, p := range s.takeParked(all) {
			s.dispatch(p)
		}
	}
}

// firstDue is when the first parked parcel is due. Without one, retry has to end.
func (s *Sender) firstDue() (first time.Time, more bool) {
	s.mu.Lock()
	defer s.mu.Unlock()
	if len(s.parked) == 0 || s.closed {
		s.retrying = false
		return first, false
	}
	for i, p := range s.parked {
		if i == 0 || p.due.Before(first) {
			first = p.due
		}
	}
	return first, true
}

func (s *Sender) takeParked(all bool) []parcel {
	now := time.Now()
	s.mu.Lock()
	defer s.mu.Unlock()
	var due []parcel
	s.parked = slices.DeleteFunc(s.parked, func(p parcel) bool {
		if !all && p.due.After(now) {
			return false
		}
		due = append(due, p)
		return true
	})
	return due
}
