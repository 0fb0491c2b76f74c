package main

import (
	"encoding/json"
	"fmt"
	"maps"
	"math"
	"os"
	"path/filepath"
	"runtime"
	"slices"
	"strconv"
	"strings"
	"text/tabwriter"
	"time"
)

// report is all outcomes, and what is told of them: one row for each figure that counts.
type report struct {
	Machine  string
	Outcomes []outcome
	rows     []row
}

// row compares one figure of one load: medians, and the median of the ratios of the pairs.
type row struct {
	load, about, figure string
	values              map[string]float64 // by contender
	ratio               float64            // ours to Kafka's; NaN without Kafka
	limit               float64            // ours to the limit's; NaN without one
	goals               []goal
}

// newReport tells of what was measured just now; busy are the load averages.
func newReport(all []outcome, busy string, scale float64) *report {
	r := &report{Machine: machine(), Outcomes: all}
	for i := range all {
		all[i].When = fmt.Sprintf("%s, load average %s, scale %g", time.Now().Format(time.DateOnly), busy, scale)
	}
	r.setRows()
	return r
}

func (r *report) setRows() {
	r.rows = nil
	for _, o := range r.Outcomes {
		for _, figure := range o.told() {
			r.rows = append(r.rows, o.row(figure))
		}
	}
}

// loadAverage is that of the last 15 minutes, which a comparison itself raises to about 2.
func loadAverage() string {
	text, _ := os.ReadFile("/proc/loadavg")
	fields := strings.Fields(string(text))
	if len(fields) < 3 {
		return "unknown"
	}
	return fields[2]
}

func machine() string {
	text, _ := os.ReadFile("/proc/cpuinfo")
	model := "unknown processor"
	for line := range strings.Lines(string(text)) {
		if name, value, _ := strings.Cut(line, ":"); strings.TrimSpace(name) == "model name" {
			model = strings.TrimSpace(value)
			break
		}
	}
	return fmt.Sprintf("%d cores of %s, %s, %s", runtime.NumCPU(), model, runtime.GOOS, runtime.Version())
}

// told are the figures of a load that get a row, in order.
func (o outcome) told() (list []string) {
	if len(o.Rounds) == 0 {
		return nil
	}
	first := o.Rounds[0]["oncelog"]
	order := []string{cpuPer, rate, p50, p99, p999}
	if _, ok := first[cpuPer]; !ok {
		return sortedKeys(first)
	}
	for _, name := range order {
		if _, ok := first[name]; ok {
			list = append(list, name)
		}
	}
	return list
}

func (o outcome) row(figure string) row {
	w := row{load: o.Name, about: o.About, figure: o.label(figure), values: map[string]float64{}}
	for _, who := range []string{"kafka", "oncelog", "limit"} {
		if v := o.series(figure, who); len(v) > 0 {
			w.values[who] = median(v) * o.factor(figure)
		}
	}
	w.ratio, w.limit = o.ratio(figure, "kafka"), o.ratio(figure, "limit")
	for _, g := range o.goals {
		if g.figure == figure {
			w.goals = append(w.goals, g)
		}
	}
	return w
}

// label names a figure with its unit.
func (o outcome) label(figure string) string {
	switch {
	case figure == cpuPer && o.Unit == "GB":
		return "CPU s/GB"
	case figure == cpuPer:
		return "CPU µs/" + o.Unit
	case figure == rate && o.Unit == "GB":
		return "MB/s"
	case figure == rate:
		return o.Unit + "s/s"
	}
	return figure
}

func (o outcome) factor(figure string) float64 {
	switch {
	case figure == cpuPer && o.Unit != "GB":
		return 1e6
	case figure == rate && o.Unit == "GB":
		return 1e3
	}
	return 1
}

func (o outcome) series(figure, who string) (list []float64) {
	for _, round := range o.Rounds {
		if v, ok := round[who][figure]; ok {
			list = append(list, v)
		}
	}
	return list
}

// ratio is the median of ours to another's, pair by pair.
func (o outcome) ratio(figure, other string) float64 {
	var list []float64
	for _, round := range o.Rounds {
		ours, ok1 := round["oncelog"][figure]
		theirs, ok2 := round[other][figure]
		if ok1 && ok2 && theirs > 0 {
			list = append(list, ours/theirs)
		}
	}
	return median(list)
}

func median(list []float64) float64 {
	if len(list) == 0 {
		return math.NaN()
	}
	list = slices.Sorted(slices.Values(list))
	return (list[(len(list)-1)/2] + list[len(list)/2]) / 2
}

func sortedKeys[V any](m map[string]V) []string { return slices.Sorted(maps.Keys(m)) }

// met tells for each goal of a row whether it is reached.
func (w row) met() (text string, all bool) {
	var parts []string
	all = true
	for _, g := range w.goals {
		ratio, than := w.ratio, ""
		if g.than == "limit" {
			ratio, than = w.limit, " of the limit"
		}
		bound, ok := fmt.Sprintf("<= %s", number(g.most)), ratio <= g.most
		if g.least > 0 {
			bound, ok = fmt.Sprintf(">= %s", number(g.least)), ratio >= g.least
		}
		if math.IsNaN(ratio) {
			continue
		}
		if !ok {
			bound += " missed"
			all = false
		}
		parts = append(parts, bound+than)
	}
	return strings.Join(parts, ", "), all
}

// number prints three digits that count.
func number(v float64) string {
	switch {
	case math.IsNaN(v):
		return ""
	case v == 0:
		return "0"
	case math.Abs(v) >= 100:
		return strconv.FormatFloat(v, 'f', 0, 64)
	}
	return strconv.FormatFloat(v, 'g', 3, 64)
}

// cells are a row's columns: load, figure, kafka, oncelog, ratio, limit, ratio to it, goal.
func (w row) cells() []string {
	value := func(who string) string {
		if v, ok := w.values[who]; ok {
			return number(v)
		}
		return ""
	}
	goals, _ := w.met()
	return []string{w.load, w.figure, value("kafka"), value("oncelog"), number(w.ratio), value("limit"), number(w.limit), goals}
}

var heads = []string{"load", "figure", "Kafka", "Oncelog", "ratio", "limit", "ratio to it", "to reach"}

func (r *report) text() string {
	var b strings.Builder
	t := tabwriter.NewWriter(&b, 0, 0, 2, ' ', 0)
	fmt.Fprintln(t, strings.Join(heads, "\t"))
	for _, w := range r.rows {
		fmt.Fprintln(t, strings.Join(w.cells(), "\t"))
	}
	t.Flush()
	return b.String()
}

// write puts the results into a folder.
func (r *report) write(dir string) error {
	if err := os.MkdirAll(dir, 0o755); err != nil {
		return err
	}
	data, err := r.json()
	if err != nil {
		return err
	}
	for name, text := range map[string]string{"results.json": string(data), "table.txt": r.text(), "chart.svg": r.chart()} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			return err
		}
	}
	return nil
}

// json is all that was measured.
func (r *report) json() ([]byte, error) {
	data, err := json.MarshalIndent(r, "", " ")
	return append(data, '\n'), err
}
