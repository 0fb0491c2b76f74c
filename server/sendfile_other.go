//go:build !linux

package server

import (
	"errors"
	"os"
)

var errNoSendfile = errors.New("sendfile not possible")

// readable can't tell, and so expects more.
func (c *conn) readable() bool { return true }

func (c *conn) sendFile(*os.File, int64, int) (written int, err error) { return 0, errNoSendfile }
