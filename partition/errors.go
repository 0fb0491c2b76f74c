package partition

import (
	"errors"
	"fmt"
	"syscall"

	"github.com/twmb/franz-go/pkg/kerr"

	"oncelog/idempotence"
	"oncelog/log"
	"oncelog/protocol"
)

// batchError gives an error of the checks on a batch its protocol code. Where Kafka 4.4 throws a batch out by an exception
// that becomes UNKNOWN_SERVER_ERROR (a payload that its codec can't read, a codec that doesn't exist), ours says
// INVALID_RECORD, which makes clients give up as they should.
func batchError(err error) error {
	switch {
	case errors.Is(err, protocol.ErrTooLarge):
		return fmt.Errorf("%w: %w", kerr.MessageTooLarge, err)
	case errors.Is(err, protocol.ErrDecompress), errors.Is(err, protocol.ErrInvalid), errors.Is(err, protocol.ErrMagic):
		return fmt.Errorf("%w: %w", kerr.InvalidRecord, err)
	default:
		return fmt.Errorf("%w: %w", kerr.CorruptMessage, err)
	}
}

// producerError does the same for what the producer table refuses.
func producerError(err error) error {
	switch {
	case errors.Is(err, idempotence.ErrSequence):
		return fmt.Errorf("%w: %w", kerr.OutOfOrderSequenceNumber, err)
	case errors.Is(err, idempotence.ErrEpoch):
		return fmt.Errorf("%w: %w", kerr.InvalidProducerEpoch, err)
	case errors.Is(err, idempotence.ErrTransaction):
		return fmt.Errorf("%w: %w", kerr.InvalidTxnState, err)
	case errors.Is(err, idempotence.ErrCoordinatorEpoch):
		return fmt.Errorf("%w: %w", kerr.TransactionCoordinatorFenced, err)
	}
	return err
}

// showsLogStart tells the errors of an append whose answer carries the log start offset: those of the batch's content and of the
// producer's state. Kafka finds the others before it looks at the log.
func showsLogStart(err error) bool {
	known, ok := errors.AsType[*kerr.Error](err)
	if !ok {
		return false
	}
	switch known {
	case kerr.InvalidRecord, kerr.InvalidTimestamp, kerr.OutOfOrderSequenceNumber, kerr.InvalidProducerEpoch, kerr.InvalidTxnState:
		return true
	}
	return false
}

// readError gives an error of a read of the log its protocol code.
func readError(err error) error {
	if errors.Is(err, log.ErrOutOfRange) {
		return fmt.Errorf("%w: %w", kerr.OffsetOutOfRange, err)
	}
	return fmt.Errorf("%w: %w", kerr.KafkaStorageError, err)
}

// noSpace tells the failures of a write that an administrator mends without a restart.
func noSpace(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT)
}
