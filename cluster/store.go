package cluster

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"hash/crc32"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"runtime/debug"
	"sync"
	"syscall"
	"time"

	"github.com/hashicorp/raft"
	"go.etcd.io/bbolt"
)

// Names in the metadata directory.
var castagnoli = crc32.MakeTable(crc32.Castagnoli)

const (
	storeFile        = "metadata.db" // bbolt: raft's log, term and vote
	reserveFile      = "reserve"     // see type reserve
	snapshotsRetain  = 2             // snapshots kept, in snapshots/
	storeInitialSize = 1 << 20       // of the memory map, and so of the file
	storeLockTimeout = time.Second   // another process holds the file
	roomPause        = time.Second   // between two tries on a full disk
	logEntryVersion  = 2
)

var (
	bucketLog    = []byte("log")    // big-endian index -> entry
	bucketStable = []byte("stable") // raft's key -> its value

	// errNotFound has the text by which raft knows that a key is not there.
	errNotFound = errors.New("not found")
)

// store keeps raft's log and its stable values (term and vote) in one bbolt file. Each change of the log is one transaction of two
// fdatasyncs.
//
// Stable values of a lone voter ride with the next entries: a term or vote that nobody else has seen and that no entry carries means nothing, so
// nothing is lost if it is. That saves a start four transactions. With other voters each value is durable when Set returns.
//
// A write that finds the disk full gets the reserve. If that doesn't do, or is gone, it fails, and the next may succeed. Any other failure may have left pages that are not on disk although the kernel says
// so, and ends the store: all later writes fail with the same error.
type store struct {
	db      *bbolt.DB
	lone    bool
	logger  *slog.Logger
	closing chan struct{} // closed by close

	mu          sync.Mutex
	set         map[string][]byte // stable values, the ones not yet on disk too
	unwritten   map[string][]byte // what of set is not on disk
	err         error             // the failure that ended it
	reserve     reserve
	first, last uint64 // indexes in the log, 0 if it is empty
}

// openStores opens the stores of a lone voter in dir.
func openStores(dir string, logger *slog.Logger) (Stores, error) {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return Stores{}, err
	}
	s, err := openStore(filepath.Join(dir, storeFile), true, logger)
	if err != nil {
		return Stores{}, err
	}
	snapshots, err := raft.NewFileSnapshotStoreWithLogger(dir, snapshotsRetain, raftLogger(logger))
	if err != nil {
		return Stores{}, errors.Join(err, s.close())
	}
	return Stores{Log: s, Stable: s, Snapshots: snapshots, Room: s.room, Err: s.failure, Close: s.close}, nil
}

func openStore(name string, lone bool, logger *slog.Logger) (*store, error) {
	_, statErr := os.Stat(name)
	if statErr == nil {
		if err := checkStore(name); err != nil {
			return nil, fmt.Errorf("%s: %w", name, err)
		}
	}
	db, err := bbolt.Open(name, 0o644, &bbolt.Options{
		Timeout:         storeLockTimeout,
		NoFreelistSync:  true,
		FreelistType:    bbolt.FreelistMapType,
		InitialMmapSize: storeInitialSize,
	})
	if err != nil {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	s := &store{db: db, lone: lone, logger: logger, closing: make(chan struct{}), set: map[string][]byte{}, unwritten: map[string][]byte{}}
	s.reserve.name = filepath.Join(filepath.Dir(name), reserveFile)
	if errors.Is(statErr, os.ErrNotExist) {
		err = errors.Join(syncDir(filepath.Dir(name)), syncDir(filepath.Dir(filepath.Dir(name))))
	}
	if err == nil {
		err = db.View(s.load)
	}
	if err != nil {
		return nil, errors.Join(fmt.Errorf("%s: %w", name, err), db.Close())
	}
	if err := s.reserve.take(); err != nil {
		s.logger.Warn("no room for the metadata's reserve", slog.Any("error", err))
	}
	return s, nil
}

// checkStore reads a store whole, so that damage is an error that says so, and not found by bbolt while it works.
func checkStore(name string) error {
	return guarded(func() error {
		db, err := bbolt.Open(name, 0o644, &bbolt.Options{ReadOnly: true, Timeout: storeLockTimeout})
		if err != nil {
			return err
		}
		defer db.Close()
		return db.View(func(tx *bbolt.Tx) error {
			if b := tx.Bucket(bucketStable); b != nil {
				err := b.ForEach(func(k, v []byte) error {
					_, _ = bytes.Clone(k), bytes.Clone(v) // they can be read
					return nil
				})
				if err != nil {
					return err
				}
			}
			return eachEntry(tx, func(*raft.Log) error { return nil })
		})
	})
}

// eachEntry reads the log's entries, which follow each other without a gap.
func eachEntry(tx *bbolt.Tx, do func(*raft.Log) error) error {
	err := tx.ForEach(func(name []byte, b *bbolt.Bucket) error {
		if b == nil || !bytes.Equal(name, bucketLog) && !bytes.Equal(name, bucketStable) {
			return fmt.Errorf("%q is no part of it: %w", name, errCorrupt)
		}
		return nil
	})
	if err != nil {
		return err
	}
	b := tx.Bucket(bucketLog)
	if b == nil {
		return nil
	}
	last := uint64(0)
	return b.ForEach(func(k, v []byte) error {
		index := indexOf(k)
		if index == 0 || last > 0 && index != last+1 {
			return fmt.Errorf("log entry %d behind %d: %w", index, last, errCorrupt)
		}
		last = index
		var l raft.Log
		if err := decodeLog(v, index, &l); err != nil {
			return fmt.Errorf("log entry %d: %w", index, err)
		}
		return do(&l)
	})
}

// guarded calls what reads a bbolt file that may be damaged: its pages point to each other, and wherever they shouldn't.
func guarded(read func() error) (err error) {
	defer debug.SetPanicOnFault(debug.SetPanicOnFault(true))
	defer func() {
		if v := recover(); v != nil {
			err = fmt.Errorf("damaged file: %w: %v", errCorrupt, v)
		}
	}()
	return read()
}

// room tells, by the reserve, whether new entries may be written.
func (s *store) room() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.reserve.held {
		return nil
	}
	if err := s.reserve.take(); err != nil {
		return err
	}
	s.logger.Info("there is room for metadata again")
	return nil
}

// failure is what ended the store.
func (s *store) failure() error {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.err
}

func syncDir(name string) error {
	d, err := os.Open(name)
	if err != nil {
		return err
	}
	return errors.Join(d.Sync(), d.Close())
}

// load reads what is small enough to be kept in memory.
func (s *store) load(tx *bbolt.Tx) error {
	if b := tx.Bucket(bucketLog); b != nil {
		k, _ := b.Cursor().First()
		s.first = indexOf(k)
		k, _ = b.Cursor().Last()
		s.last = indexOf(k)
	}
	if b := tx.Bucket(bucketStable); b != nil {
		return b.ForEach(func(k, v []byte) error {
			s.set[string(k)] = append([]byte(nil), v...)
			return nil
		})
	}
	return nil
}

func (s *store) close() error {
	close(s.closing)
	s.mu.Lock()
	defer s.mu.Unlock()
	var err error
	if len(s.unwritten) > 0 && s.err == nil {
		err = s.updateLocked(func(*bbolt.Tx) error { return nil })
	}
	return errors.Join(err, s.db.Close())
}

// updateLocked is one transaction: the unwritten stable values and what change does, which may be called twice.
func (s *store) updateLocked(change func(*bbolt.Tx) error) error {
	if s.err != nil {
		return s.err
	}
	err := s.tryLocked(change)
	if diskFull(err) && s.reserve.give() {
		s.logger.Error("no space left, metadata is written to its reserve", slog.Any("error", err))
		err = s.tryLocked(change)
	}
	switch {
	case err == nil:
		clear(s.unwritten)
	case !diskFull(err):
		s.err = fmt.Errorf("metadata store is out of order: %w", err)
		return s.err
	}
	return err
}

func (s *store) tryLocked(change func(*bbolt.Tx) error) error {
	return s.db.Update(func(tx *bbolt.Tx) error {
		if len(s.unwritten) > 0 {
			b, err := tx.CreateBucketIfNotExists(bucketStable)
			if err != nil {
				return err
			}
			for k, v := range s.unwritten {
				if err := b.Put([]byte(k), v); err != nil {
					return err
				}
			}
		}
		return change(tx)
	})
}

// diskFull tells the failures that leave the file as it was.
func diskFull(err error) bool {
	return errors.Is(err, syscall.ENOSPC) || errors.Is(err, syscall.EDQUOT) || errors.Is(err, syscall.EFBIG)
}

// FirstIndex is that of the oldest entry, 0 if there is none.
func (s *store) FirstIndex() (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.first, nil
}

// LastIndex is that of the newest entry, 0 if there is none.
func (s *store) LastIndex() (uint64, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	return s.last, nil
}

// GetLog reads one entry, or says raft.ErrLogNotFound.
func (s *store) GetLog(index uint64, l *raft.Log) error {
	return s.db.View(func(tx *bbolt.Tx) error {
		b := tx.Bucket(bucketLog)
		if b == nil {
			return raft.ErrLogNotFound
		}
		v := b.Get(logKey(index))
		if v == nil {
			return raft.ErrLogNotFound
		}
		return decodeLog(v, index, l)
	})
}

// StoreLog appends one entry.
func (s *store) StoreLog(l *raft.Log) error { return s.StoreLogs([]*raft.Log{l}) }

// StoreLogs appends entries, all or none.
func (s *store) StoreLogs(logs []*raft.Log) error {
	if len(logs) == 0 {
		return nil
	}
	s.mu.Lock()
	defer s.mu.Unlock()
	err := s.updateLocked(func(tx *bbolt.Tx) error {
		b, err := tx.CreateBucketIfNotExists(bucketLog)
		if err != nil {
			return err
		}
		b.FillPercent = 0.95 // entries are appended, so pages fill up
		for _, l := range logs {
			if err := b.Put(logKey(l.Index), encodeLog(l)); err != nil {
				return err
			}
		}
		return nil
	})
	if err != nil {
		return err
	}
	if s.first == 0 {
		s.first = logs[0].Index
	}
	s.last = logs[len(logs)-1].Index
	return nil
}

// DeleteRange drops the entries from lo to hi, both included: old ones that a snapshot holds, or new ones that a leader overruled.
func (s *store) DeleteRange(lo, hi uint64) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	first, last := uint64(0), uint64(0)
	err := s.updateLocked(func(tx *bbolt.Tx) error {
		b := tx.Bucket(bucketLog)
		if b == nil {
			return nil
		}
		for i := max(lo, s.first); i <= min(hi, s.last); i++ {
			if err := b.Delete(logKey(i)); err != nil {
				return err
			}
		}
		k, _ := b.Cursor().First()
		first = indexOf(k)
		k, _ = b.Cursor().Last()
		last = indexOf(k)
		return nil
	})
	if err == nil {
		s.first, s.last = first, last
	}
	return err
}

// Set keeps a stable value.
func (s *store) Set(key, value []byte) error {
	s.mu.Lock()
	defer s.mu.Unlock()
	if old, ok := s.set[string(key)]; ok && string(old) == string(value) {
		return nil
	}
	v := append([]byte(nil), value...)
	before := maps.Clone(s.unwritten)
	s.unwritten[string(key)] = v
	if !s.lone {
		if err := s.persistLocked(); err != nil {
			s.unwritten = before
			return err
		}
	}
	s.set[string(key)] = v
	return nil
}

// persistLocked writes the stable values. It waits for room if there is none: raft can't do without, and would panic. The lock is free meanwhile.
func (s *store) persistLocked() error {
	for {
		err := s.updateLocked(func(*bbolt.Tx) error { return nil })
		if !diskFull(err) {
			return err
		}
		s.mu.Unlock()
		select {
		case <-time.After(roomPause):
			s.mu.Lock()
		case <-s.closing:
			s.mu.Lock()
			return err
		}
	}
}

// Get returns a stable value.
func (s *store) Get(key []byte) ([]byte, error) {
	s.mu.Lock()
	defer s.mu.Unlock()
	v, ok := s.set[string(key)]
	if !ok {
		return nil, errNotFound
	}
	return append([]byte(nil), v...), nil
}

// SetUint64 keeps a stable number.
func (s *store) SetUint64(key []byte, v uint64) error {
	return s.Set(key, binary.BigEndian.AppendUint64(nil, v))
}

// GetUint64 returns a stable number.
func (s *store) GetUint64(key []byte) (uint64, error) {
	v, err := s.Get(key)
	if err != nil {
		return 0, err
	}
	if len(v) != 8 {
		return 0, fmt.Errorf("%w: stable value %q has %d bytes", errCorrupt, key, len(v))
	}
	return binary.BigEndian.Uint64(v), nil
}

func logKey(index uint64) []byte { return binary.BigEndian.AppendUint64(nil, index) }

func indexOf(key []byte) uint64 {
	if len(key) != 8 {
		return 0
	}
	return binary.BigEndian.Uint64(key)
}

// encodeLog is an entry on disk:
//
//	| version u8 = 2 | CRC-32C u32 of the rest | type u8 | term uvarint | appended at, unix ns varint | extensions: length uvarint, bytes | data to the end |
//
// Version 1 has no CRC.
func encodeLog(l *raft.Log) []byte {
	b := make([]byte, 0, 32+len(l.Extensions)+len(l.Data))
	b = append(b, logEntryVersion, 0, 0, 0, 0, byte(l.Type))
	b = binary.AppendUvarint(b, l.Term)
	appended := int64(0)
	if !l.AppendedAt.IsZero() {
		appended = l.AppendedAt.UnixNano()
	}
	b = binary.AppendVarint(b, appended)
	b = binary.AppendUvarint(b, uint64(len(l.Extensions)))
	b = append(b, l.Extensions...)
	b = append(b, l.Data...)
	binary.BigEndian.PutUint32(b[1:], crc32.Checksum(b[5:], castagnoli))
	return b
}

// decodeLog reverses encodeLog. The entry does not alias v.
func decodeLog(v []byte, index uint64, l *raft.Log) error {
	r := reader{src: v}
	switch version := r.byte(); {
	case version == 1:
	case version != logEntryVersion:
		r.fail(fmt.Sprintf("log entry %d has version %d", index, version))
	default:
		sum := r.bytes(4)
		if r.err == nil && binary.BigEndian.Uint32(sum) != crc32.Checksum(r.src, castagnoli) {
			r.fail(fmt.Sprintf("log entry %d has the CRC of something else", index))
		}
	}
	*l = raft.Log{Index: index, Type: raft.LogType(r.byte()), Term: r.uvarint()}
	if appended := r.varint(); appended != 0 {
		l.AppendedAt = time.Unix(0, appended)
	}
	l.Extensions = append([]byte(nil), r.bytes(r.uvarint())...)
	l.Data = append([]byte(nil), r.src...)
	return r.err
}
