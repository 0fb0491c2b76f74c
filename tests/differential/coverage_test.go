package differential

import (
	"sync"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"
)

// coverage is which APIs, versions and error codes the scripts have met.
type coverage struct {
	mu sync.Mutex

	success map[[2]int16]bool         // key and version, guarded by mu
	codes   map[string]map[int16]bool // by the API's name; guarded by mu
	listed  []kmsg.ApiVersionsResponseApiKey
	scripts int // run to their end; guarded by mu
}

var seen = coverage{success: map[[2]int16]bool{}, codes: map[string]map[int16]bool{}}

// add notes an answer and the error codes in it. A nil coverage notes nothing.
func (c *coverage) add(req kmsg.Request, resp kmsg.Response, codes map[int16]bool) {
	if c == nil || req == nil {
		return
	}
	c.mu.Lock()
	defer c.mu.Unlock()
	name := kmsg.NameForKey(req.Key())
	if c.codes[name] == nil {
		c.codes[name] = map[int16]bool{}
	}
	good := true
	for code := range codes {
		if code != 0 {
			good = false
			c.codes[name][code] = true
		}
	}
	if good {
		c.success[[2]int16{req.Key(), req.GetVersion()}] = true
		if v, ok := resp.(*kmsg.ApiVersionsResponse); ok {
			c.listed = v.ApiKeys
		}
	}
}

// done notes that a script has run to its end.
func (c *coverage) done() {
	c.mu.Lock()
	defer c.mu.Unlock()
	c.scripts++
}

func codeOf(t *testing.T, text string) int16 {
	for code := int16(-1); code < 200; code++ {
		if err, ok := kerr.ErrorForCode(code).(*kerr.Error); ok && err.Message == text {
			return code
		}
	}
	t.Fatalf("there is no error %s", text)
	return 0
}
