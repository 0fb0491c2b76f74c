package inspect

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"math"
	"os"
	"path/filepath"
	"strings"

	"oncelog/controlmarkers"
	"oncelog/protocol"
)

// log prints the batches of a file. As Kafka's tool it stops at what is no whole batch, and says how many bytes that is.
func (d *dumper) log(name string) error {
	f, err := d.fsys.OpenFile(name, os.O_RDONLY, 0)
	if err != nil {
		return err
	}
	defer f.Close()
	st, err := f.Stat()
	if err != nil {
		return err
	}
	size := st.Size()
	if d.o.MaxBytes > 0 {
		size = min(size, d.o.MaxBytes)
	}
	last := int64(-1)
	s := newScanner(f, size)
	for {
		b, pos, err := s.next()
		switch {
		case err == io.EOF:
			return nil
		case errors.Is(err, errTail):
			if d.o.MaxBytes <= 0 {
				fmt.Fprintf(d.out, "Found %d invalid bytes at the end of %s\n", size-pos, filepath.Base(name))
			}
			return nil
		case err != nil:
			return fmt.Errorf("batch at %d: %w: %w", pos, ErrDump, err)
		}
		h := b.Header()
		if !h.Codec().Valid() {
			return fmt.Errorf("batch at %d: %w: unknown compression type id: %d", pos, ErrDump, h.Codec())
		}
		d.batch(b, &h, pos)
		if d.o.Deep || d.o.Contents {
			if err := d.records(name, b, &h, &last); err != nil {
				return fmt.Errorf("batch at %d: %w: %w", pos, ErrDump, err)
			}
		}
	}
}

func (d *dumper) batch(b protocol.Batch, h *protocol.BatchHeader, pos int64) {
	horizon := "OptionalLong.empty"
	if h.HasDeleteHorizon() {
		horizon = fmt.Sprintf("OptionalLong[%d]", h.BaseTimestamp)
	}
	fmt.Fprintf(d.out, "baseOffset: %d lastOffset: %d count: %d baseSequence: %d lastSequence: %d producerId: %d producerEpoch: %d "+
		"partitionLeaderEpoch: %d isTransactional: %t isControl: %t deleteHorizonMs: %s",
		h.BaseOffset, h.LastOffset(), h.NumRecords, h.BaseSequence, h.LastSequence(), h.ProducerID, h.ProducerEpoch,
		h.LeaderEpoch, h.Transactional(), h.Control(), horizon)
	fmt.Fprintf(d.out, " position: %d %s: %d size: %d magic: %d compresscodec: %s crc: %d isvalid: %t\n",
		pos, timestampType(h), h.MaxTimestamp, h.Size, h.Magic, h.Codec(), h.CRC, b.CheckCRC() == nil)
}

func timestampType(h *protocol.BatchHeader) string {
	if h.LogAppendTime() {
		return "LogAppendTime"
	}
	return "CreateTime"
}

// records prints the records of a batch. last is the offset of the one before, -1 at first.
func (d *dumper) records(name string, b protocol.Batch, h *protocol.BatchHeader, last *int64) error {
	rr := b.Records(math.MaxInt32)
	defer rr.Close()
	for rr.Next() {
		r := rr.Record()
		offset := h.BaseOffset + int64(r.OffsetDelta)
		if offset != *last+1 {
			d.complaints.consecutive.add(absolute(name), *last, offset)
		}
		*last = offset
		prefix := "| "
		if !d.o.SkipMetadata {
			prefix = " "
			d.recordMetadata(h, &r, offset)
			if h.Control() {
				if err := d.control(&r); err != nil {
					return err
				}
			}
		}
		if d.o.Contents && !h.Control() {
			key, value, err := d.contents(&r, offset)
			if err != nil {
				return err
			}
			if key != nil {
				fmt.Fprintf(d.out, "%skey: %s", prefix, *key)
				prefix = " "
			}
			if value != nil {
				fmt.Fprintf(d.out, "%spayload: %s", prefix, *value)
			}
		}
		fmt.Fprintln(d.out)
	}
	return rr.Err()
}

func (d *dumper) recordMetadata(h *protocol.BatchHeader, r *protocol.Record, offset int64) {
	size := func(b []byte) int {
		if b == nil {
			return -1
		}
		return len(b)
	}
	sequence := int32(-1)
	if h.BaseSequence >= 0 {
		sequence = protocol.AddSequence(h.BaseSequence, r.OffsetDelta)
	}
	keys := make([]string, len(r.Headers))
	for i := range r.Headers {
		keys[i] = javaText([]byte(r.Headers[i].Key))
	}
	fmt.Fprintf(d.out, "| offset: %d %s: %d keySize: %d valueSize: %d sequence: %d headerKeys: [%s]",
		offset, timestampType(h), h.Timestamp(r.TimestampDelta), size(r.Key), size(r.Value), sequence, strings.Join(keys, ","))
}

// The types of control records beside the markers of transactions.
var controlMessages = map[uint16]struct{ title, message string }{
	2: {"LeaderChange:", "LeaderChangeMessage"},
	3: {"SnapshotHeader", "SnapshotHeaderRecord"},
	4: {"SnapshotFooter", "SnapshotFooterRecord"},
	5: {"KRaftVersion", "KRaftVersionRecord"},
	6: {"KRaftVoters", "VotersRecord"},
}

// control prints what a control record says.
func (d *dumper) control(r *protocol.Record) error {
	if len(r.Key) < 4 {
		return fmt.Errorf("key of a control record has %d bytes", len(r.Key))
	}
	kind := binary.BigEndian.Uint16(r.Key[2:])
	if m, ok := controlMessages[kind]; ok {
		return d.controlMessage(m.title, messageNamed(m.message), r.Value)
	}
	if kind > 1 {
		fmt.Fprintf(d.out, " controlType: UNKNOWN(%d)", int16(kind))
		return nil
	}
	marker, _, err := controlmarkers.DecodeRecord(r.Key, r.Value)
	if err != nil {
		return err
	}
	verdict := "ABORT"
	if marker.Commit {
		verdict = "COMMIT"
	}
	fmt.Fprintf(d.out, " endTxnMarker: %s coordinatorEpoch: %d", verdict, marker.CoordinatorEpoch)
	return nil
}

// controlMessage prints a message whose first field is its version.
func (d *dumper) controlMessage(title string, m *message, value []byte) error {
	if len(value) < 2 {
		return fmt.Errorf("control record of %d bytes", len(value))
	}
	o, err := m.decode(value, min(int16(binary.BigEndian.Uint16(value)), m.max))
	if err != nil {
		return err
	}
	fmt.Fprintf(d.out, " %s %s", title, appendJSON(nil, o))
	return nil
}
