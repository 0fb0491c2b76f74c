package differential

import (
	"flag"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/twmb/franz-go/pkg/kerr"
	"github.com/twmb/franz-go/pkg/kmsg"

	"oncelog/tests/brokertest"
)

func TestMain(m *testing.M) {
	flag.Parse()
	if *kafkaFlag == "" {
		flag.Set("test.parallel", "24") // scripts mostly wait
	}
	os.Exit(brokertest.Main(m.Run))
}

// Every script is answered as Apache Kafka answered it when it was recorded, but for the steps that say how Oncelog differs.
func TestScripts(t *testing.T) {
	files, err := filepath.Glob("testdata/*.txt")
	if err != nil || len(files) == 0 {
		t.Fatalf("no scripts: %v", err)
	}
	broker := shared(t)
	for _, file := range files {
		s, err := readScript(file)
		if err != nil {
			t.Fatal(err)
		}
		t.Run(s.name, func(t *testing.T) {
			if *kafkaFlag == "" {
				t.Parallel()
			}
			p := broker
			if s.own {
				p = own(t, s.settings)
			}
			r := newRunner(t, s, p, &seen)
			r.run()
			if !brokertest.Race { // many answers are due within milliseconds
				r.judge()
			}
			r.seen.done()
		})
	}
}

// Every version of every API that ApiVersions lists has been answered without an error in some script, and with each of the
// errors that one node can be brought to give; with no others, but while coordinators come and go.
func TestEverythingIsCovered(t *testing.T) {
	files, _ := os.ReadDir("testdata")
	seen.mu.Lock()
	defer seen.mu.Unlock()
	if seen.scripts < len(files) || brokertest.Race {
		t.Skipf("%d scripts of %d have run and were judged", seen.scripts, len(files))
	}
	for _, k := range seen.listed {
		first := k.MinVersion
		if k.ApiKey == 0 {
			first = 3 // lower versions are listed, and not served
		}
		for v := first; v <= k.MaxVersion; v++ {
			name := kmsg.NameForKey(k.ApiKey)
			if !seen.success[[2]int16{k.ApiKey, v}] && !slices.Contains(onlyRefused, name) {
				t.Errorf("%s v%d is never answered without an error", name, v)
			}
		}
	}
	for name, list := range refusals {
		for _, text := range strings.Fields(list) {
			if !seen.codes[name][codeOf(t, text)] {
				t.Errorf("%s is never answered with %s", name, text)
			}
		}
	}
	for name, codes := range seen.codes {
		for code := range codes {
			text := kerr.ErrorForCode(code).(*kerr.Error).Message
			if !strings.Contains(text, "COORDINATOR") && !slices.Contains(strings.Fields(refusals[name]), text) {
				t.Errorf("%s is answered with %s, which is not among its errors", name, text)
			}
		}
	}
}

// Each documented error is met in some script, or has a reason why it can't be.
func TestDocumentedErrorsAreMet(t *testing.T) {
	excused := map[string]bool{}
	for _, list := range unreached {
		for name, texts := range list {
			for _, text := range strings.Fields(texts) {
				excused[name+" "+text] = true
				if slices.Contains(strings.Fields(refusals[name]), text) || !slices.Contains(strings.Fields(documented[name]), text) {
					t.Errorf("%s with %s needs no reason", name, text)
				}
			}
		}
	}
	for name, texts := range documented {
		for _, text := range strings.Fields(texts) {
			codeOf(t, text)
			if !slices.Contains(strings.Fields(refusals[name]), text) && !excused[name+" "+text] {
				t.Errorf("%s is documented with %s, which no script meets", name, text)
			}
		}
	}
}

// Each difference that a script names is on the page of differences.
func TestDifferencesAreListed(t *testing.T) {
	page, err := os.ReadFile("../../docs/differences.md")
	if err != nil {
		t.Fatal(err)
	}
	files, err := os.ReadDir("testdata")
	if err != nil {
		t.Fatal(err)
	}
	for _, f := range files {
		s, err := readScript("testdata/" + f.Name())
		if err != nil {
			t.Fatal(err)
		}
		s.steps(func(st *step) {
			for _, b := range st.blocks[min(1, len(st.blocks)):] {
				if !strings.Contains(string(page), fmt.Sprintf("`%s`", b.differs)) {
					t.Errorf("%s:%d: docs/differences.md has no %q", s.path, st.line, b.differs)
				}
			}
		})
	}
}

// judge compares what the steps printed with what they should, or takes it as that.
func (r *runner) judge() {
	r.script.steps(func(s *step) {
		got := lines(r.got[s])
		if !s.answered {
			if *recordFlag && slices.ContainsFunc(r.got[s], func(o outcome) bool { return o.text != "" }) {
				s.answered = true
			} else if len(got) > 0 {
				r.t.Errorf("%s:%d: %s\nunexpected answer:\n%s", r.script.path, s.line, s.source, strings.Join(got, "\n"))
				return
			} else {
				return
			}
		}
		r.compare(s, got)
	})
	if *recordFlag || *ownFlag {
		if err := r.script.write(); err != nil {
			r.t.Fatal(err)
		}
	}
}

func (r *runner) compare(s *step, got []string) {
	if len(s.blocks) == 0 {
		s.blocks = []block{{}}
	}
	want := &s.blocks[0]
	if *kafkaFlag == "" && len(s.blocks) > 1 {
		want = &s.blocks[1]
		if *ownFlag {
			want.lines = got
		}
		if slices.Equal(got, s.blocks[0].lines) {
			r.t.Errorf("%s:%d: %s\ndoes not differ", r.script.path, s.line, s.source)
		}
	}
	if *kafkaFlag != "" && *recordFlag {
		want.lines = got
	}
	if !slices.Equal(got, want.lines) {
		r.t.Errorf("%s:%d: %s\n%s", r.script.path, s.line, s.source, diff(want.lines, got))
	}
}

// lines are the outcomes of a step. Turns of loops one after the other that came out the same share one.
func lines(os []outcome) []string {
	if len(os) == 1 && os[0].label == "" {
		if os[0].text == "" {
			return nil
		}
		return strings.Split(os[0].text, "\n")
	}
	var all []string
	for i := 0; i < len(os); {
		j := i + 1
		for j < len(os) && os[j].text == os[i].text {
			j++
		}
		if os[i].text != "" {
			var labels []string
			for _, o := range os[i:j] {
				labels = append(labels, o.label)
			}
			text := strings.Split(os[i].text, "\n")
			text[0] = ranges(labels) + ": " + text[0]
			all = append(all, text...)
		}
		i = j
	}
	return all
}

// ranges joins labels; numbers that follow each other become 3-7.
func ranges(labels []string) string {
	var all []string
	for i := 0; i < len(labels); {
		j := i + 1
		for j < len(labels) && follows(labels[j-1], labels[j]) {
			j++
		}
		if j-i > 2 {
			last := labels[j-1][strings.LastIndexByte(labels[j-1], ' ')+1:]
			all = append(all, labels[i]+"-"+strings.TrimPrefix(last, "v"))
		} else {
			all = append(all, labels[i:j]...)
		}
		i = j
	}
	return strings.Join(all, ",")
}

// follows tells whether b is the number after a, under the same loops.
func follows(a, b string) bool {
	i, j := strings.LastIndexByte(a, ' ')+1, strings.LastIndexByte(b, ' ')+1
	x, err1 := strconv.Atoi(strings.TrimPrefix(a[i:], "v"))
	y, err2 := strconv.Atoi(strings.TrimPrefix(b[j:], "v"))
	return a[:i] == b[:j] && err1 == nil && err2 == nil && x >= 0 && y == x+1
}
