package server

import (
	"net"
	"path/filepath"
	"testing"
	"time"
)

// The metadata may lie in a folder of the log directory, which then is no partition that nobody knows.
func TestMetadataInAFolderOfTheLogDirectory(t *testing.T) {
	dir := t.TempDir()
	for range 2 {
		s, err := New(Options{Config: testConfig(t, dir, "metadata.log.dir="+filepath.Join(dir, "meta", "data")), Logger: testLog(t)})
		if err != nil {
			t.Fatal(err)
		}
		if err := s.Start(t.Context()); err != nil {
			t.Fatal(err)
		}
		if err := s.Stop(t.Context()); err != nil {
			t.Fatal(err)
		}
	}
}

type brokenConn struct{ net.Conn }

func (brokenConn) Read([]byte) (int, error) { panic("broken") }

// A panic while a request is read ends its connection, not the process.
func TestPanicWhileReadingEndsTheConnection(t *testing.T) {
	s := startServer(t)
	near, far := net.Pipe()
	newConn(s, s.listeners[0], brokenConn{near}).run()
	far.SetReadDeadline(time.Now().Add(10 * time.Second))
	if _, err := far.Read(make([]byte, 1)); err == nil || err.Error() != "EOF" {
		t.Errorf("the connection is not closed: %v", err)
	}
}
