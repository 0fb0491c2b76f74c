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
	old, err := os.ReadFile(name)
	if err != nil {
		return err
	}
	before, rest, ok1 := strings.Cut(string(old), pageBegin)
	_, after, ok2 := strings.Cut(rest, pageEnd)
	if !ok1 || !ok2 {
		return fmt.Errorf("%s has no lines %q and %q", name, pageBegin, pageEnd)
	}
	base := strings.TrimSuffix(filepath.Base(name), filepath.Ext(name))
	if err := os.WriteFile(filepath.Join(filepath.Dir(name), base+".svg"), []byte(r.chart()), 0o644); err != nil {
		return err
	}
	return os.WriteFile(name, []byte(before+pageBegin+"\n"+r.markdown(base+".svg")+pageEnd+after), 0o644)
}

func (r *report) markdown(chart string) string {
	var b strings.Builder
	rounds := 0
	for _, o := range r.Outcomes {
		rounds = max(rounds, len(o.Rounds))
	}
	fmt.Fprintf(&b, "Measured %s on %s; up to %d pairs of runs; load average %s.\n\n", r.Date, r.Machine, rounds, r.Busy)
	fmt.Fprintf(&b, "![Ratios, Oncelog to Kafka](%s)\n\n", chart)
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
