package differential

import (
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// scenarios are how many there are of each kind. Those of B have odd numbers.
var scenarios = map[string]int{"T": 79, "G": 70, "S": 76, "B": 173}

var (
	scenarioLine = regexp.MustCompile(`^([TGSB])(\d+)(?:-(\d+))? [^:]+: (.+)$`)
	scenarioRow  = regexp.MustCompile(`(?m)^# Scenarios: (.+)$`)
)

// Each scenario has scripts or tests that exist, or a reason; and each script says which it runs.
func TestScenariosAreRun(t *testing.T) {
	data, err := os.ReadFile("scenarios.txt")
	if err != nil {
		t.Fatal(err)
	}
	seen := map[string]bool{}
	byScript := map[string][]string{}
	for i, line := range strings.Split(string(data), "\n") {
		if line == "" || line[0] == '#' {
			continue
		}
		m := scenarioLine.FindStringSubmatch(line)
		if m == nil {
			t.Errorf("scenarios.txt:%d: %q", i+1, line)
			continue
		}
		first, _ := strconv.Atoi(m[2])
		last := first
		if m[3] != "" {
			last, _ = strconv.Atoi(m[3])
		}
		for n := first; n <= last; n++ {
			seen[m[1]+strconv.Itoa(n)] = true
		}
		if strings.HasPrefix(m[4], "not: ") {
			continue
		}
		for _, ref := range strings.Fields(m[4]) {
			folder, name, isTest := strings.Cut(ref, ":")
			if !isTest {
				byScript[ref] = append(byScript[ref], m[1]+m[2])
			} else if !hasTest(folder, name) {
				t.Errorf("scenarios.txt:%d: there is no test %s in %s", i+1, name, folder)
			}
		}
	}
	for kind, most := range scenarios {
		step := 1
		if kind == "B" {
			step = 2
		}
		for n := 1; n <= most; n += step {
			if name := kind + strconv.Itoa(n); !seen[name] {
				t.Errorf("scenarios.txt has no %s", name)
			}
		}
	}
	scripts, _ := filepath.Glob("testdata/*.txt")
	for _, path := range scripts {
		name := strings.TrimSuffix(filepath.Base(path), ".txt")
		if want, got := byScript[name], namedScenarios(t, path); !slices.Equal(want, got) {
			t.Errorf("%s names the scenarios %v, scenarios.txt has %v for it", path, got, want)
		}
		delete(byScript, name)
	}
	for name := range byScript {
		t.Errorf("scenarios.txt: there is no script %s", name)
	}
}

// namedScenarios are those that a script says it runs.
func namedScenarios(t *testing.T, path string) []string {
	data, err := os.ReadFile(path)
	if err != nil {
		t.Fatal(err)
	}
	var all []string
	for _, m := range scenarioRow.FindAllStringSubmatch(string(data), -1) {
		all = append(all, strings.Fields(m[1])...)
	}
	return all
}

func hasTest(folder, name string) bool {
	files, _ := filepath.Glob(filepath.Join("../..", folder, "*_test.go"))
	return slices.ContainsFunc(files, func(file string) bool {
		data, err := os.ReadFile(file)
		return err == nil && strings.Contains(string(data), fmt.Sprintf("func %s(t *testing.T)", name))
	})
}
