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
type limit struct {
	mode  string
	bytes int // at full scale
}

const (
	limitRead = 64 << 10
	limitFile = 64 << 20
)

// run measures a round of it.
func (l *limit) run(ctx context.Context, dir string, scale float64) (figures, error) {
	n := int64(float64(l.bytes) * scale)
	self, err := os.Executable()
	if err != nil {
		return nil, err
	}
	cmd := exec.CommandContext(ctx, self, "limit", l.mode, dir, strconv.FormatInt(n, 10))
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
	b := &bed{broker: &broker{contender: contender{name: "limit"}, pid: cmd.Process.Pid}}
	conn, err := net.Dial("tcp", address[:len(address)-1])
	if err != nil {
		return nil, err
	}
	defer conn.Close()
	if err := b.begin(); err != nil {
		return nil, err
	}
	if err := l.drive(conn, n); err != nil {
		return nil, err
	}
	if err := b.end(); err != nil {
		return nil, err
	}
	return b.figures(result{work: float64(n) / 1e9, unit: "GB"}), nil
}

// drive is the other end of the connection.
func (l *limit) drive(conn net.Conn, n int64) error {
	buf := make([]byte, 1<<20)
	if l.mode == "send" {
		for n > 0 {
			m, err := conn.Read(buf)
			if err != nil {
				return err
			}
			n -= int64(m)
		}
		return nil
	}
	for n > 0 {
		m, err := conn.Write(buf[:min(n, int64(len(buf)))])
		if err != nil {
			return err
		}
		n -= int64(m)
	}
	_, err := io.ReadFull(conn, buf[:1]) // it has written all
	return err
}

// limitMain is the process: args are mode, folder and bytes. It prints where it listens.
func limitMain(args []string) error {
	if len(args) != 3 {
		return errors.New("limit receive|send DIR BYTES")
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
