package main

import (
	"cmp"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"slices"
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

// keep takes over what a page tells of the loads that are not in the report, and of the memory after all of them; all gives their order.
func (r *report) keep(name string, all []load) error {
	data, err := os.ReadFile(beside(name) + ".json")
	if err != nil {
		return err
	}
	var earlier report
	if err := json.Unmarshal(data, &earlier); err != nil {
		return err
	}
	if earlier.Machine != r.Machine {
		return fmt.Errorf("%s is of another machine: %s", name, earlier.Machine)
	}
	alone := slices.IndexFunc(all, func(l load) bool { return len(l.settings) > 0 || l.alone != nil })
	place := map[string]int{memoryLoad: 2*alone - 1}
	goals := map[string][]goal{memoryLoad: memoryGoals()}
	for i, l := range all {
		place[l.name], goals[l.name] = 2*i, l.goals
	}
	for _, o := range earlier.Outcomes {
		if o.Name == memoryLoad {
			r.Outcomes = slices.DeleteFunc(r.Outcomes, func(n outcome) bool { return n.Name == memoryLoad })
		}
		if !slices.ContainsFunc(r.Outcomes, func(n outcome) bool { return n.Name == o.Name }) {
			o.goals = goals[o.Name]
			r.Outcomes = append(r.Outcomes, o)
		}
	}
	slices.SortStableFunc(r.Outcomes, func(a, b outcome) int { return cmp.Compare(place[a.Name], place[b.Name]) })
	r.setRows()
	return nil
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
	fmt.Fprintf(&b, "Measured on %s.\n\n", r.Machine)
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
	b.WriteString("\nWhen, how busy the machine was, and how many pairs:\n\n")
	loads := map[string][]string{}
	var runs []string
	for _, o := range r.Outcomes {
		if loads[o.When] == nil {
			runs = append(runs, o.When)
		}
		loads[o.When] = append(loads[o.When], fmt.Sprintf("%s (%d)", o.Name, len(o.Rounds)))
	}
	for _, run := range runs {
		fmt.Fprintf(&b, "- %s: %s\n", run, strings.Join(loads[run], ", "))
	}
	b.WriteString("\n")
	return b.String()
}
