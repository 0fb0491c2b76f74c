package cluster

import (
	"errors"
	"os"
)

// reserveBytes is more than any one transaction of the store writes: the largest request that is taken makes an entry of some 2 MiB.
const reserveBytes = 4 << 20

// reserve is room on the disk for the metadata when there is no other. The store gives it up to what is being written when the disk is full,
// so that raft, which takes a failed write for the end of its office and one of its term for the end of everything, doesn't see that. Nothing new
// is decided until the reserve is there again.
//
// It is a file without meaning, made anew at each start if need be, so it needn't be durable. Guarded by its owner.
type reserve struct {
	name string
	held bool
}

// take makes the reserve, if it is not there. An error says that the disk has no room.
func (r *reserve) take() (err error) {
	if r.held {
		return nil
	}
	f, err := os.OpenFile(r.name, os.O_RDWR|os.O_CREATE, 0o644)
	if err != nil {
		return err
	}
	defer func() {
		if err = errors.Join(err, f.Close()); err != nil {
			err = errors.Join(err, os.Remove(r.name))
		}
	}()
	if err := allocate(f, reserveBytes); err != nil {
		return err
	}
	r.held = true
	return nil
}

// give gives the room up. It is false if there is none to give.
func (r *reserve) give() bool {
	if !r.held {
		return false
	}
	r.held = false
	return os.Remove(r.name) == nil
}

// fill writes zeros up to a size, where the file system can't be asked for room.
func fill(f *os.File, size int64) error {
	zeros := make([]byte, 64<<10)
	for at := int64(0); at < size; at += int64(len(zeros)) {
		if _, err := f.WriteAt(zeros, at); err != nil {
			return err
		}
	}
	return nil
}
