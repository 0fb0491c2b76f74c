package main

import (
	"bufio"
	"context"
	"errors"
	"fmt"
	"hash/crc32"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"syscall"
	"time"
)

// limit is what the bytes of a load cost at least: a process that does nothing else with them.
//
//	receive   reads them from a socket, 64 KiB at a time, computes CRC-32C and writes them to new files of 64 MiB
//	send      sends files of page cache to a socket by sendfile
//	answer    answers requests of single records, see limitrecords.go
//	flush     the same with an fsync before each answer
type limit struct {
	mode        string
	bytes       int // at full scale, of receive and send
	connections int // of answer and flush
	// drive is the other end of the connections.
	drive func(ctx context.Context, b *bed) (result, error)
}

const (
	limitRead = 64 << 10
	limitFile = 64 << 20
)

// limitBytes is receive or send.
func limitBytes(mode string, bytes int) *limit {
	return &limit{mode: mode, bytes: bytes, drive: func(_ context.Context, b *bed) (result, error) { return moveBytes(b, mode, b.n(bytes)) }}
}

// run measures a round of it.
func (l *limit) run(ctx context.Context, dir string, scale float64) (figures, error) {
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	b := &bed{broker: &broker{contender: contender{name: "limit"}}, scale: scale}
	n := l.connections
	if l.bytes > 0 {
		n = b.n(l.bytes)
	}
	cmd := exec.CommandContext(ctx, self, "limit", l.mode, dir, strconv.Itoa(n))
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	cmd.Stderr = os.Stderr
	if err := cmd.Start(); err != nil {
		return nil, err
	}
	defer cmd.Wait()
	defer cmd.Process.Kill()
	address, err := bufio.NewReader(out).ReadString('\n')
	if err != nil {
		return nil, fmt.Errorf("limit %s: %w", l.mode, err)
	}
	b.broker.pid, b.address = cmd.Process.Pid, address[:len(address)-1]
	r, err := l.drive(ctx, b)
	if err != nil {
		return nil, fmt.Errorf("limit %s: %w", l.mode, err)
	}
	return b.figures(r), nil
}

// moveBytes is the other end of receive and send.
func moveBytes(b *bed, mode string, n int) (result, error) {
	conn, err := net.Dial("tcp", b.address)
	if err != nil {
		return result{}, err
	}
	defer conn.Close()
	r := result{work: float64(n) / 1e9, unit: "GB"}
	if err := b.begin(); err != nil {
		return result{}, err
	}
	buf := make([]byte, 1<<20)
	move := conn.Write
	if mode == "send" {
		move = conn.Read
	}
	for n > 0 {
		m, err := move(buf[:min(n, len(buf))])
		if err != nil {
			return result{}, err
		}
		n -= m
	}
	if mode == "receive" {
		if _, err := io.ReadFull(conn, buf[:1]); err != nil { // it has written all
			return result{}, err
		}
	}
	return r, b.end()
}

// limitMain is the process: args are mode, folder, and the number of bytes or of connections. It prints where it listens.
func limitMain(args []string) error {
	if len(args) != 3 {
		return errors.New("limit receive|send DIR BYTES, or limit answer|flush DIR CONNECTIONS")
	}
	n, err := strconv.ParseInt(args[2], 10, 64)
	if err != nil {
		return err
	}
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return err
	}
	defer l.Close()
	var files []*os.File
	if args[0] == "send" {
		if files, err = limitFiles(args[1], n); err != nil {
			return err
		}
	}
	fmt.Println(l.Addr())
	switch args[0] {
	case "answer":
		return limitAnswer(l, args[1], int(n))
	case "flush":
		return limitFlush(l, args[1], int(n))
	}
	conn, err := l.Accept()
	if err != nil {
		return err
	}
	defer conn.Close()
	if args[0] == "send" {
		for _, f := range files {
			if _, err := io.Copy(conn, f); err != nil { // sendfile
				return err
			}
		}
	} else if err := limitReceive(conn, args[1], n); err != nil {
		return err
	}
	conn.Read(make([]byte, 1)) // who measures looks at this process before it hangs up
	return nil
}

// limitReceive writes what comes to new files. They are removed while they are open, so nothing is left of them.
func limitReceive(conn net.Conn, dir string, n int64) error {
	raw, err := conn.(*net.TCPConn).SyscallConn()
	if err != nil {
		return err
	}
	buf, table := make([]byte, limitRead), crc32.MakeTable(crc32.Castagnoli)
	var f *os.File // all stay open, for their pages stay in memory then, as a broker's do
	room, sum := 0, uint32(0)
	for n > 0 {
		var m int
		var failed error
		err := raw.Read(func(fd uintptr) bool {
			m, failed = syscall.Read(int(fd), buf)
			return failed != syscall.EAGAIN
		})
		if err := errors.Join(err, failed); err != nil || m <= 0 {
			return errors.Join(err, io.ErrUnexpectedEOF)
		}
		sum = crc32.Update(sum, table, buf[:m])
		if room < m {
			if f, err = limitCreate(dir); err != nil {
				return err
			}
			room = limitFile
		}
		if _, err := f.Write(buf[:m]); err != nil {
			return err
		}
		room -= m
		n -= int64(m)
	}
	_, err = conn.Write([]byte{byte(sum)})
	return err
}

func limitCreate(dir string) (*os.File, error) {
	name := filepath.Join(dir, fmt.Sprint("limit-", time.Now().UnixNano()))
	f, err := os.Create(name)
	if err != nil {
		return nil, err
	}
	return f, os.Remove(name)
}

// limitFiles makes files whose pages are in memory.
func limitFiles(dir string, n int64) (files []*os.File, err error) {
	block := make([]byte, 1<<20)
	for n > 0 {
		f, err := limitCreate(dir)
		if err != nil {
			return nil, err
		}
		for room := int64(limitFile); room > 0 && n > 0; {
			m, err := f.Write(block[:min(n, room, int64(len(block)))])
			if err != nil {
				return nil, err
			}
			room, n = room-int64(m), n-int64(m)
		}
		if _, err := f.Seek(0, io.SeekStart); err != nil {
			return nil, err
		}
		files = append(files, f)
	}
	return files, nil
}
