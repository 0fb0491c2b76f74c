package main

import (
	"fmt"
	"os"
	"path/filepath"
	"strings"
)

// Between these two lines of the page is what compare writes; the rest is written by people.
const (
	pageBegin = "<!-- measured: begin -->"
	pageEnd   = "<!-- measured: end -->"
)

// writePage puts the table into a page, in the place of an earlier one, and the chart and all figures beside it.
func (r *report) writePage(name string) error {
	data, err := r.json()
	if err != nil {
		return err
	}
	base := beside(name)
	if err := os.WriteFile(base+".json", data, 0o644); err != nil {
		return err
	}
	if err := os.WriteFile(base+".svg", []byte(r.chart()), 0o644); err != nil {
		return err
	}
	return replaceBetween(name, pageBegin, pageEnd, r.markdown(base+".svg"))
}

// beside is the name of a page without its ending, for what lies beside it.
func beside(page string) string { return strings.TrimSuffix(page, filepath.Ext(page)) }

// replaceBetween writes text into a file, between two lines that it has.
func replaceBetween(name, begin, end, text string) error {
	old, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	before, rest, ok1 := strings.Cut(string(old), begin)
	_, after, ok2 := strings.Cut(rest, end)
	if !ok1 || !ok2 {
		return fmt.Errorf("%s has no lines %q and %q", name, begin, end)
	}
	return os.WriteFile(name, []byte(before+begin+"\n"+text+end+after), 0o644)
}

func (r *report) markdown(chart string) string {
	var b strings.Builder
	rounds := 0
	for _, o := range r.Outcomes {
		rounds = max(rounds, len(o.Rounds))
	}
	fmt.Fprintf(&b, "Measured %s on %s; up to %d pairs of runs; load average %s.\n\n", r.Date, r.Machine, rounds, r.Busy)
	fmt.Fprintf(&b, "![Ratios, Oncelog to Kafka](%s)\n\n", filepath.Base(chart))
	b.WriteString("| " + strings.Join(heads, " | ") + " |\n|" + strings.Repeat("---|", len(heads)) + "\n")
	last := ""
	for _, w := range r.rows {
		cells := w.cells()
		if cells[0] == last {
			cells[0] = ""
		} else {
			last, cells[0] = cells[0], "**"+cells[0]+"** "+w.about
		}
		b.WriteString("| " + strings.Join(cells, " | ") + " |\n")
	}
	b.WriteString("\n")
	return b.String()
}
