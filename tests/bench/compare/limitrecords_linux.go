package main

import (
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"runtime"
	"runtime/debug"
	"sync"
	"syscall"
	"unsafe"

	"golang.org/x/sys/unix"
)

// System calls are raw ones, of which Go's scheduler knows nothing. Of the others it is told, and with a thread that waits in one it
// gives its processor to another thread: at a thousand messages a second that costs more than the messages. The same holds
// for its own poller. So a thread keeps its processor while it waits, and nothing may wait for it to stop.

// rawConn is a connection that Go's poller does not know.
type rawConn struct {
	fd   int
	in   []byte
	have int // bytes of in
}

// limitConns takes connections from the listener.
func limitConns(l net.Listener, n int) (list []*rawConn, err error) {
	for range n {
		conn, err := l.Accept()
		if err != nil {
			return nil, err
		}
		raw, err := conn.(*net.TCPConn).SyscallConn()
		if err != nil {
			return nil, err
		}
		c := &rawConn{in: make([]byte, 16<<10)}
		var failed error
		err = raw.Control(func(fd uintptr) { c.fd, failed = unix.Dup(int(fd)) })
		if err := errors.Join(err, failed, conn.Close()); err != nil {
			return nil, err
		}
		list = append(list, c)
	}
	return list, nil
}

// raw makes a system call of a buffer, once more if a signal has come in between.
func raw(trap uintptr, fd int, b []byte, more int) (n int, e syscall.Errno) {
	for {
		n, _, e := unix.RawSyscall6(trap, uintptr(fd), uintptr(unsafe.Pointer(unsafe.SliceData(b))), uintptr(len(b)), uintptr(more), 0, 0)
		if e != unix.EINTR {
			return int(n), e
		}
	}
}

// request reads. It gives a request when there is one as a whole; no other follows before the answer. The end is io.EOF.
func (c *rawConn) request() ([]byte, error) {
	n, e := raw(unix.SYS_READ, c.fd, c.in[c.have:], 0)
	switch {
	case e == unix.EAGAIN:
		return nil, nil
	case e != 0:
		return nil, e
	case n == 0:
		return nil, io.EOF
	}
	c.have += n
	if c.have < 4 || c.have < 4+int(binary.BigEndian.Uint32(c.in)) {
		return nil, nil
	}
	request := c.in[:c.have]
	c.have = 0
	return request, nil
}

func (c *rawConn) send(b []byte) error {
	if n, e := raw(unix.SYS_WRITE, c.fd, b, 0); e != 0 || n < len(b) {
		return fmt.Errorf("%d of %d bytes sent: %w", n, len(b), e)
	}
	return nil
}

// rawFile is a file that is only appended to.
type rawFile struct{ fd, size int }

func newRawFile(dir string) (*rawFile, error) {
	f, err := limitCreate(dir)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	fd, err := unix.Dup(int(f.Fd()))
	return &rawFile{fd: fd}, err
}

func (f *rawFile) append(b []byte) error {
	n, e := raw(unix.SYS_PWRITE64, f.fd, b, f.size)
	if e != 0 || n < len(b) {
		return fmt.Errorf("%d of %d bytes written: %w", n, len(b), e)
	}
	f.size += n
	return nil
}

// limitAnswer is a thread that waits for all connections, and answers what comes.
func limitAnswer(l net.Listener, dir string, connections int) error {
	conns, err := limitConns(l, connections)
	if err != nil {
		return err
	}
	r := relay{limitAnswers: newLimitAnswers()}
	if r.file, err = newRawFile(dir); err != nil {
		return err
	}
	runtime.LockOSThread()
	poll, err := unix.EpollCreate1(unix.EPOLL_CLOEXEC)
	if err != nil {
		return err
	}
	for i, c := range conns {
		event := unix.EpollEvent{Events: unix.EPOLLIN | unix.EPOLLET, Fd: int32(i)}
		if err := unix.EpollCtl(poll, unix.EPOLL_CTL_ADD, c.fd, &event); err != nil {
			return err
		}
	}
	var events [128]unix.EpollEvent
	for open := connections; open > 0; {
		n, e := waitRaw(poll, events[:])
		if e != 0 && e != unix.EINTR {
			return e
		}
		for i := range n {
			switch err := r.serve(conns[events[i].Fd]); {
			case err == io.EOF:
				open--
			case err != nil:
				return err
			}
		}
	}
	return nil
}

// waitRaw returns after a while in any case: the thread is to come by a place where the scheduler may stop it.
//
//go:noinline
func waitRaw(poll int, events []unix.EpollEvent) (int, syscall.Errno) {
	const millis = 10
	n, _, e := unix.RawSyscall6(unix.SYS_EPOLL_PWAIT, uintptr(poll), uintptr(unsafe.Pointer(unsafe.SliceData(events))), uintptr(len(events)), millis, 0, 0)
	if e != 0 {
		return 0, e
	}
	return int(n), 0
}

// relay answers Produce, and hands what comes by it to the connection that sends Fetch.
type relay struct {
	limitAnswers
	file     *rawFile
	consumer *rawConn // who has sent Fetch; nil: nobody
	waiting  bool     // it has no answer yet
	answer   []byte   // for it: the head, and the batches since the last one
}

func (r *relay) serve(c *rawConn) error {
	request, err := c.request()
	if request == nil || err != nil {
		return err
	}
	const apiKeyAt, fetchKey = 5, 1
	if request[apiKeyAt] == fetchKey {
		if r.consumer == nil {
			r.consumer, r.answer = c, append(r.answer, r.fetch...)
			return c.send(r.fetch) // it knows by this that nothing from here on passes it by
		}
		r.waiting = true
		return r.pass()
	}
	batch := request[r.batchAt : len(request)-r.tail]
	if err := r.file.append(batch); err != nil {
		return err
	}
	if r.consumer != nil {
		r.answer = append(r.answer, batch...)
		if err := r.pass(); err != nil {
			return err
		}
	}
	return c.send(r.produce)
}

// pass sends what there is to who waits for it.
func (r *relay) pass() error {
	if !r.waiting || len(r.answer) == len(r.fetch) {
		return nil
	}
	binary.BigEndian.PutUint32(r.answer, uint32(len(r.answer)-4))
	err := r.consumer.send(r.answer)
	r.answer, r.waiting = r.answer[:len(r.fetch)], false
	return err
}

// limitFlush has a thread and a file for each connection.
func limitFlush(l net.Listener, dir string, connections int) error {
	conns, err := limitConns(l, connections)
	if err != nil {
		return err
	}
	runtime.GOMAXPROCS(connections + 1) // each thread keeps one
	debug.SetGCPercent(-1)              // a collection would wait for a thread that waits for a connection
	answers, failures := newLimitAnswers(), make([]error, connections)
	var group sync.WaitGroup
	for i, c := range conns {
		group.Go(func() { failures[i] = answers.flushEach(c, dir) })
	}
	group.Wait()
	return errors.Join(failures...)
}

func (a limitAnswers) flushEach(c *rawConn, dir string) error {
	runtime.LockOSThread()
	file, err := newRawFile(dir)
	if err != nil {
		return err
	}
	if err := unix.SetNonblock(c.fd, false); err != nil {
		return err
	}
	for {
		request, err := c.request()
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
		if request == nil {
			continue
		}
		if err := file.append(request[a.batchAt : len(request)-a.tail]); err != nil {
			return err
		}
		if _, e := raw(unix.SYS_FSYNC, file.fd, nil, 0); e != 0 {
			return e
		}
		if err := c.send(a.produce); err != nil {
			return err
		}
	}
}
