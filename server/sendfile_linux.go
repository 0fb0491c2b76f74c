package server

import (
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// errNoSendfile tells that the file has to be copied through memory.
var errNoSendfile = errors.New("sendfile not possible")

// readable tells whether something has arrived that has not been read.
func (c *conn) readable() (yes bool) {
	if c.raw == nil {
		return false
	}
	_ = c.raw.Control(func(fd uintptr) {
		var first [1]byte
		n, _, _ := unix.Recvfrom(int(fd), first[:], unix.MSG_PEEK|unix.MSG_DONTWAIT)
		yes = n > 0
	})
	return yes
}

// sendFile writes n bytes of a file from pos on to the socket, without moving
// the file's own position: many connections read the same file. It gives how
// many it has written.
func (c *conn) sendFile(file *os.File, pos int64, n int) (written int, err error) {
	source := int(file.Fd())
	c.beginSending()
	defer c.sending.Store(false)
	var failed error
	err = c.raw.Write(func(fd uintptr) bool {
		for written < n {
			m, err := unix.Sendfile(int(fd), source, &pos, n-written)
			if m > 0 {
				written += m
				c.sent(m)
			}
			switch {
			case err == unix.EAGAIN:
				return false
			case err == unix.EINTR:
			case err == unix.EINVAL || err == unix.ENOSYS || err == unix.EOPNOTSUPP:
				failed = errNoSendfile
				return true
			case err != nil:
				failed = fmt.Errorf("sendfile: %w", err)
				return true
			case m == 0:
				failed = fmt.Errorf("%s ends early: %w", file.Name(), io.ErrUnexpectedEOF)
				return true
			}
		}
		return true
	})
	if err == nil {
		err = failed
	}
	return written, err
}
