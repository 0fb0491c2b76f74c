//go:build !linux

package main

import (
	"errors"
	"net"
)

var errLimitOnLinux = errors.New("the limit of single records is measured on Linux only")

func limitAnswer(net.Listener, string, int) error { return errLimitOnLinux }

func limitFlush(net.Listener, string, int) error { return errLimitOnLinux }
