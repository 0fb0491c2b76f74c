package server

import (
	"os"
	"path/filepath"
	"testing"
)

// meta.properties that are lost are made anew: the directories stay in their cluster, and what lies in them is served.
func TestLostProperties(t *testing.T) {
	for name, lost := range map[string][]string{"of both": {"a", "b"}, "of one": {"b"}} {
		t.Run(name, func(t *testing.T) {
			base := t.TempDir()
			s, stop := startOn(t, twoDirs(t, base))
			c := dial(t, s)
			c.createTopic("t", 4)
			for i := range int32(4) {
				c.produce("t", i, batch(t, 3, 100))
			}
			cluster := s.replicas.ClusterID()
			stop()
			for _, dir := range lost {
				if err := os.Remove(filepath.Join(base, dir, "meta.properties")); err != nil {
					t.Fatal(err)
				}
			}
			for range 2 {
				s, stop = startOn(t, twoDirs(t, base))
				if got := s.replicas.ClusterID(); got != cluster {
					t.Errorf("cluster %s, was %s", got, cluster)
				}
				c = dial(t, s)
				if got := c.logDirs(); got != "a: t-0 t-2; b: t-1 t-3" {
					t.Errorf("directories %s", got)
				}
				for i := range int32(4) {
					if got := s.replicas.Get("t", i).Offsets().End; got < 3 {
						t.Errorf("t-%d ends at %d", i, got)
					}
					if code := c.produceCode("t", i); code != 0 {
						t.Errorf("t-%d: code %d", i, code)
					}
				}
				stop()
			}
		})
	}
}
