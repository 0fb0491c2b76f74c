//go:build !linux

package server

import (
	"errors"
	"os"
)

var errNoSendfile = errors.New("sendfile not possible")

func (c *conn) sendFile(*os.File, int64, int) (written int, err error) { return 0, errNoSendfile }
